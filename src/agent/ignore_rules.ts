/**
 * Owns the common part of gitignore(5): comments, `!`, patterns for directories, patterns bound to their directory,
 * `*`, `?`, `[…]` and `**`. What is ignored is only looked at less; so a rule that is not understood hides nothing.
 */
export interface IgnoreRule {
  readonly glob: Bun.Glob;
  readonly isNegated: boolean;
  readonly isForDirectories: boolean;
  /** Matches a path from the rules' directory; else a name anywhere below it. */
  readonly isBound: boolean;
}

const RULES_MAX = 1000;

export function parseIgnoreRules(text: string): readonly IgnoreRule[] {
  const rules: IgnoreRule[] = [];
  for (const line of text.split(/\r?\n/).slice(0, RULES_MAX)) {
    const rule = parseRule(line);
    if (rule !== null) rules.push(rule);
  }
  return rules;
}

function parseRule(line: string): IgnoreRule | null {
  if (line.startsWith("#")) return null;
  let pattern = line.replace(/(?<!\\)\s+$/, "");
  const isNegated = pattern.startsWith("!");
  if (isNegated) pattern = pattern.slice(1);
  const isForDirectories = pattern.endsWith("/");
  pattern = pattern.replace(/\/+$/, "");
  const isBound = pattern.includes("/");
  pattern = pattern.replace(/^\//, "");
  if (pattern === "") return null;
  // Braces mean themselves here.
  const escaped = pattern.replace(/[{}]/g, "\\$&");
  return { glob: new Bun.Glob(escaped), isNegated, isForDirectories, isBound };
}

/** The rules of one `.gitignore`, with the directory it stands in. */
export interface IgnoreScope {
  /** From the root of the walk, without a slash at the end; empty for the root itself. */
  readonly directory: string;
  readonly rules: readonly IgnoreRule[];
}

/** Whether the last rule that matches ignores the path. Scopes come from the outermost in. */
export function isIgnored(
  scopes: readonly IgnoreScope[],
  path: string,
  isDirectory: boolean,
): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  for (const { directory, rules } of scopes.toReversed()) {
    const local = directory === "" ? path : path.slice(directory.length + 1);
    const rule = rules.findLast(
      (candidate) =>
        (isDirectory || !candidate.isForDirectories) &&
        candidate.glob.match(candidate.isBound ? local : name),
    );
    if (rule !== undefined) return !rule.isNegated;
  }
  return false;
}
