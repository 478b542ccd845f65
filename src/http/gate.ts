import { Elysia } from "elysia";
import { Problem } from "../wire/problem.ts";
import { empty } from "./answers.ts";
import { createTokenCheck } from "./auth.ts";
import { type OriginRules, checkOrigin, isPreflight, preflight } from "./origins.ts";

/**
 * Owns what is checked before anything of a request but its head is looked at, in this order: who sends it
 * (`origins.ts`), the token (`auth.ts`), and that its target can be decoded at all. Unknown paths pass through here
 * too, so that nobody without a token learns which exist.
 */
export interface GateDependencies {
  readonly rules: OriginRules;
  readonly token: string;
  readonly methodsAt: (path: string) => readonly string[];
}

export function gate({ rules, token, methodsAt }: GateDependencies) {
  const checkToken = createTokenCheck(token);
  return new Elysia({ name: "gate" }).onRequest(({ request }) => {
    const path = pathOf(request.url);
    checkOrigin(rules, request.headers);
    const isOptions = request.method === "OPTIONS";
    if (isOptions && isPreflight(request.headers)) {
      return preflight(request.headers, methodsAt(path));
    }
    checkToken(path, request.headers);
    checkEncoding(request.url);
    return isOptions ? options(methodsAt(path)) : undefined;
  });
}

/** `http://host/path?query` without its ends. */
function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  const end = url.indexOf("?", start);
  return end === -1 ? url.slice(start) : url.slice(start, end);
}

/** A target that cannot be decoded would reach the routes as it is and look like some other value there. */
function checkEncoding(url: string): void {
  if (!url.includes("%")) return;
  try {
    decodeURIComponent(url);
  } catch {
    throw new Problem("invalid_request", "The request target has a bad percent-encoding");
  }
}

function options(methods: readonly string[]): Response {
  if (methods.length === 0) throw new Problem("not_found");
  return empty(204, { allow: methods.join(", ") });
}
