import { Elysia } from "elysia";
import type { Clock } from "../base/clock.ts";
import { ADMISSION_BODY_BYTES_MAX, BODY_BYTES_MAX } from "../base/limits.ts";
import { Problem } from "../wire/problem.ts";
import { BodyBudget } from "./body_budget.ts";
import { BodyPatience } from "./body_patience.ts";

/**
 * Owns how a request's body becomes a value: JSON in UTF-8, of a bounded size, read only once its type and declared
 * size are known to be right (contract.md, Admission and receipts). A web page can post `text/plain` without asking
 * first; such a body is refused before a byte of it is read.
 */

/** The parsers a route may name in `parse`. */
export function bodies(clock: Clock) {
  const reader = new BodyReader(clock);
  return new Elysia({ name: "bodies" })
    .parser("admission", ({ request }) => reader.json(request, ADMISSION_BODY_BYTES_MAX))
    .parser("command", ({ request }) => reader.json(request, BODY_BYTES_MAX))
    .parser("nothing", ({ request }) =>
      isEmpty(request) ? undefined : reader.json(request, BODY_BYTES_MAX),
    );
}
export type Bodies = ReturnType<typeof bodies>;

const CHARSET_REGEXP = /^\s*application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?$/i;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Four admissions of the largest size at once. */
const HELD_BYTES_MAX = 4 * ADMISSION_BODY_BYTES_MAX;
class BodyReader {
  readonly #clock: Clock;
  readonly #budget = new BodyBudget(HELD_BYTES_MAX);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Reads a whole body.
   *
   * @throws {Problem} invalid_request, payload_too_large, unsupported_media_type, request_timeout
   */
  async json(request: Request, bytesMax: number): Promise<unknown> {
    if (isEmpty(request)) throw new Problem("invalid_request", "The request has no body");
    checkType(request.headers);
    const length = request.headers.get("content-length");
    const declared = length === null ? null : Number(length);
    if (declared !== null && declared > bytesMax) throw tooLarge(bytesMax);
    // The server hands out no more than what was declared.
    if (declared !== null && declared <= BODY_BYTES_MAX) {
      return parse(await request.bytes().catch(brokenOff));
    }
    return parse(await this.#readChunks(request, bytesMax, declared ?? bytesMax));
  }

  /**
   * A large body or one of unknown size, given up as soon as it is too large, silent or too late. What fits a small
   * body is read first, so that a small body without a length never waits for large ones, and one of which nothing
   * comes holds nothing.
   */
  async #readChunks(request: Request, bytesMax: number, expected: number): Promise<Uint8Array> {
    const reader = request.body?.getReader();
    if (reader === undefined) return new Uint8Array();
    let held: Disposable | null = null;
    const patience = new BodyPatience(this.#clock, () => void reader.cancel());
    try {
      const chunks: Uint8Array[] = [];
      let size = 0;
      for (;;) {
        const { done, value } = await patience.during(reader.read().catch(brokenOff));
        if (done) return Buffer.concat(chunks, size);
        size += value.length;
        if (size > bytesMax) throw tooLarge(bytesMax);
        chunks.push(value);
        if (size > BODY_BYTES_MAX) held ??= await this.#budget.acquire(expected);
      }
    } finally {
      patience.end();
      held?.[Symbol.dispose]();
    }
  }
}

function parse(bytes: Uint8Array): unknown {
  if (bytes.length === 0) throw new Problem("invalid_request", "The request has no body");
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch {
    throw new Problem("invalid_request", "The request body is not UTF-8 text");
  }
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message would quote the body.
    throw new Problem("invalid_request", "The request body is not valid JSON");
  }
}

function isEmpty({ headers }: Request): boolean {
  const length = headers.get("content-length");
  return (length === null || length === "0") && !headers.has("transfer-encoding");
}

function checkType(headers: Headers): void {
  if (!CHARSET_REGEXP.test(headers.get("content-type") ?? "")) {
    throw new Problem("unsupported_media_type", "The request body must be 'application/json'", {
      headers: { "accept-post": "application/json" },
    });
  }
  const coding = headers.get("content-encoding");
  if (coding !== null && coding.toLowerCase() !== "identity") {
    throw new Problem("unsupported_media_type", "The request body must not be compressed", {
      headers: { "accept-encoding": "identity" },
    });
  }
}

/** The sender went away, so nobody hears this; but it is no bug. */
function brokenOff(): never {
  throw new Problem("invalid_request", "The request body ended early");
}

function tooLarge(bytesMax: number): Problem {
  return new Problem("payload_too_large", `The request body must have at most ${bytesMax} bytes`);
}
