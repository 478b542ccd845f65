import type { Reply } from "../session/sessions.ts";
import { REPLAYED_HEADER } from "../wire/operation.ts";

/**
 * Owns what answers have in common. Handlers return finished `Response`s and never touch Elysia's `set`, which
 * would wrap the body of a stream once more and lose its `cancel`.
 */

export const JSON_TYPE = "application/json";
export const PROBLEM_TYPE = "application/problem+json";

/** Whatever is told to the holder of a token is told to nobody else (contract.md, One admission, two doors). */
const NO_STORE = "no-store";

/** A JSON answer. */
export function json(
  status: number,
  value: unknown,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return text(status, JSON_TYPE, JSON.stringify(value), headers);
}

/** An answer whose bytes are already there. */
export function text(
  status: number,
  contentType: string,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return new Response(body, {
    status,
    headers: { "content-type": contentType, "cache-control": NO_STORE, ...headers },
  });
}

/** An answer without a body. */
export function empty(status: number, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(null, { status, headers: { "cache-control": NO_STORE, ...headers } });
}

/** An admission's stored answer, to the byte (contract.md, Admission and receipts). */
export function admitted(reply: Reply): Response {
  return text(reply.status, reply.contentType, reply.body, {
    ...(reply.location === null ? {} : { location: reply.location }),
    ...(reply.replayed ? { [REPLAYED_HEADER]: "true" } : {}),
  });
}
