/**
 * Owns which methods a path takes. Elysia answers 404 to an unknown method on a known path (elysiajs/elysia#682),
 * so `Allow` is read from its route table.
 */
export interface Route {
  readonly method: string;
  readonly path: string;
}

/**
 * @param routes read once, at the first question, when every plugin is in place
 * @returns the methods of a path in alphabetical order; `HEAD` and `OPTIONS` go with any route
 */
export function createMethodTable(routes: () => readonly Route[]): (path: string) => string[] {
  let table: readonly { readonly segments: readonly string[]; readonly method: string }[] | null =
    null;
  return (path) => {
    table ??= routes().map((route) => ({ segments: route.path.split("/"), method: route.method }));
    const segments = path.split("/");
    const methods = new Set<string>();
    for (const route of table) if (matches(route.segments, segments)) methods.add(route.method);
    if (methods.size === 0) return [];
    if (methods.has("GET")) methods.add("HEAD");
    methods.add("OPTIONS");
    return [...methods].sort();
  };
}

function matches(pattern: readonly string[], segments: readonly string[]): boolean {
  return (
    pattern.length === segments.length &&
    pattern.every((part, index) =>
      part.startsWith(":") ? segments[index] !== "" : part === segments[index],
    )
  );
}
