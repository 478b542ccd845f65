/**
 * Owns what may be shown of a value that goes to a log or into an error message: no token, key, header, body or
 * prompt (contract.md, Files, process, safety).
 */

/** Stands in place of what was dropped. */
export const REDACTED = "[redacted]";

const TEXT_CHARS_MAX = 1000;
const ITEMS_MAX = 32;
const DEPTH_MAX = 4;

/** Parts of a field's name that mark a secret, in lower case without separators. */
const SECRET_NAME_PARTS = ["token", "secret", "password", "authorization", "cookie", "credential"];
/** Ends of a field's name that mark a secret or what a person or a model wrote. */
const PRIVATE_NAME_ENDS = [
  "key",
  "body",
  "text",
  "prompt",
  "content",
  "arguments",
  "headers",
  "data",
  "title",
];
const PRIVATE_NAMES = ["args", "input", "output", "env", "environment", "request", "response"];

const SCRUBBED: readonly [RegExp, string][] = [
  // Everything behind a scheme of RFC 9110 §11, whatever its form.
  [/\b(bearer|basic)\s+[^\s"',;]+/gi, `$1 ${REDACTED}`],
  // The usual prefixes of keys of model services and code hosts.
  [/\b(?:sk|pk|rk|gsk|xai|ghp|gho|ghs|github_pat|glpat|hf|AIza)[-_]?[A-Za-z0-9_-]{12,}/g, REDACTED],
  // User information of a URL, and the values of its query.
  [/(\/\/)[^\s/@"']+@/g, "$1"],
  [/([?&][^\s=&"']{1,64}=)[^\s&"']+/g, `$1${REDACTED}`],
  // Anything as long as a random key; a UUID is shorter.
  [/[A-Za-z0-9_+=-]{40,}/g, REDACTED],
];

/** The text without what looks like a secret, bounded. */
export function scrub(text: string, charsMax: number = TEXT_CHARS_MAX): string {
  // Cut first, with room for what shrinks, so that the work is bounded too.
  let scrubbed = text.length > charsMax * 4 ? text.slice(0, charsMax * 4) : text;
  for (const [pattern, replacement] of SCRUBBED) scrubbed = scrubbed.replace(pattern, replacement);
  if (scrubbed.length > charsMax) scrubbed = `${scrubbed.slice(0, charsMax)}…`;
  return scrubbed.toWellFormed();
}

/** The fields as a log may hold them. */
export function redactFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return redactObject(fields, 0);
}

function redactObject(value: object, depth: number): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value).slice(0, ITEMS_MAX)) {
    result[name] = isPrivateName(name) && canHoldText(item) ? REDACTED : redactValue(item, depth);
  }
  return result;
}

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return scrub(value);
  if (typeof value === "bigint") return String(value);
  if (typeof value === "function" || typeof value === "symbol") return undefined;
  if (typeof value !== "object") return value;
  if (value === null) return null;
  if (value instanceof Error) return redactError(value, depth);
  if (ArrayBuffer.isView(value)) return `${value.byteLength} bytes`;
  if (depth >= DEPTH_MAX) return "…";
  if (Array.isArray(value)) {
    return value.slice(0, ITEMS_MAX).map((item) => redactValue(item, depth + 1));
  }
  return redactObject(value, depth + 1);
}

/** Name, code, scrubbed message and where it was thrown; never what the error carries besides. */
function redactError(error: Error, depth: number): Record<string, unknown> {
  const { code } = error as { code?: unknown };
  const frames = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return {
    name: error.name,
    ...(typeof code === "string" || typeof code === "number" ? { code } : {}),
    message: scrub(error.message, 300),
    at: frames.slice(0, 8).map((line) => line.trim().replace(/^at /, "")),
    ...(error.cause === undefined || depth >= DEPTH_MAX
      ? {}
      : { cause: redactValue(error.cause, depth + 1) }),
  };
}

function isPrivateName(name: string): boolean {
  const plain = name.toLowerCase().replace(/[^a-z0-9]/g, "");
  return (
    PRIVATE_NAMES.includes(plain) ||
    SECRET_NAME_PARTS.some((part) => plain.includes(part)) ||
    PRIVATE_NAME_ENDS.some((end) => plain.endsWith(end))
  );
}

/** Numbers and flags hold no secret: `output_tokens` and the like may stay. */
function canHoldText(value: unknown): boolean {
  return typeof value !== "number" && typeof value !== "boolean" && value != null;
}
