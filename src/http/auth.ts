import { equalInConstantTime } from "../base/constant_time.ts";
import { Problem } from "../wire/problem.ts";

/**
 * Owns the bearer token (contract.md, Files, process, safety): everything but `GET /health` needs it, in the
 * `Authorization` header and nowhere else (RFC 6750 §2.1).
 */

const OPEN_PATH = "/health";
const SCHEME_REGEXP = /^bearer +/i;

/**
 * @returns a check of one request
 * @throws {Problem} unauthorized, from the check
 */
export function createTokenCheck(token: string): (path: string, headers: Headers) => void {
  const expected = Buffer.from(token, "utf8");
  return (path, headers) => {
    if (path === OPEN_PATH) return;
    const header = headers.get("authorization");
    if (header === null || !isToken(header, expected)) {
      throw new Problem("unauthorized", undefined, { headers: { "www-authenticate": "Bearer" } });
    }
  };
}

/** Takes the same time for every token of the right length; the length itself is no secret. */
function isToken(header: string, expected: Buffer): boolean {
  if (!SCHEME_REGEXP.test(header)) return false;
  const given = Buffer.from(header.replace(SCHEME_REGEXP, ""), "utf8");
  return equalInConstantTime(given, expected);
}
