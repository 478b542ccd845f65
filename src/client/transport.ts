import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { CALL_MS_DEFAULT } from "../base/limits.ts";
import { ProblemSchema } from "../wire/problem.ts";
import { Deadline } from "./deadline.ts";
import type { CallOptions } from "./deadline.ts";
import { ApiError, ProtocolError, TransportError } from "./errors.ts";

/**
 * Owns one exchange with the daemon: where it is, the bearer token, whole answers, and their check against the
 * schemas of `wire/`. It never repeats a request on its own, except after a 401 from an endpoint that has moved
 * since, where nothing was decided.
 *
 * The token goes into the `Authorization` header alone, and redirects are refused, so that it reaches no other
 * host.
 */

export interface Endpoint {
  /** Where the daemon listens, such as `http://127.0.0.1:4321`. */
  readonly url: string;
  readonly token: string;
}

/** An endpoint, or how to find it: the function is asked before every attempt, so a restarted daemon is found. */
export type EndpointSource = Endpoint | (() => Endpoint | Promise<Endpoint>);

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface WireRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Path and query, already encoded. */
  readonly path: string;
  readonly body?: Uint8Array<ArrayBuffer> | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly accept?: string;
  /** Called right before the request may leave. */
  readonly onSend?: () => void;
}

/** An answer that arrived whole. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface TransportDependencies {
  readonly endpoint: EndpointSource;
  readonly clock: Clock;
  readonly fetch: Fetch;
}

export class Transport {
  readonly clock: Clock;
  readonly #endpoint: EndpointSource;
  readonly #fetch: Fetch;

  constructor({ endpoint, clock, fetch }: TransportDependencies) {
    this.clock = clock;
    this.#endpoint = endpoint;
    this.#fetch = fetch;
  }

  /**
   * Sends a request and resolves with the head of the answer; its body is still to be read.
   *
   * @throws {TransportError} when no answer came
   * @throws the signal's reason when it aborted
   */
  async open(request: WireRequest, signal: AbortSignal): Promise<Response> {
    const endpoint = await this.#locate(signal);
    const response = await this.#send(endpoint, request, signal);
    if (response.status !== 401 || typeof this.#endpoint !== "function") return response;
    // A daemon that came back elsewhere leaves the old address to others, who do not know the token.
    const current = await this.#locate(signal);
    if (current.url === endpoint.url && current.token === endpoint.token) return response;
    await discard(response);
    return this.#send(current, request, signal);
  }

  /**
   * Sends a request and reads the whole answer, whatever its status.
   *
   * @throws {TransportError} when no whole answer came in time
   * @throws the caller's reason when it aborted
   */
  async exchange(request: WireRequest, deadline: Deadline): Promise<Answer> {
    try {
      const response = await this.open(request, deadline.signal);
      const bytes = await abortable(response.arrayBuffer(), deadline.signal);
      return { status: response.status, headers: response.headers, bytes: new Uint8Array(bytes) };
    } catch (error) {
      if (deadline.ended === "timeout") {
        throw new TransportError(
          "timeout",
          `No answer in time: '${request.method} ${pathOf(request)}'`,
          error,
        );
      }
      if (deadline.ended === "aborted" || error instanceof TransportError) throw error;
      throw new TransportError(
        "connection",
        `The answer broke off: '${request.method} ${pathOf(request)}'`,
        error,
      );
    }
  }

  /**
   * One exchange within a deadline of its own.
   *
   * @throws {ApiError} on a refusal
   */
  async call(request: WireRequest, options: CallOptions = {}): Promise<Answer> {
    const deadline = new Deadline(this.clock, options.timeoutMs ?? CALL_MS_DEFAULT, options.signal);
    try {
      const answer = await this.exchange(request, deadline);
      if (!isSuccess(answer.status)) throw refusal(answer);
      return answer;
    } finally {
      deadline.close();
    }
  }

  async #locate(signal: AbortSignal): Promise<Endpoint> {
    if (typeof this.#endpoint !== "function") return this.#endpoint;
    try {
      return await abortable(Promise.resolve(this.#endpoint()), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      throw new TransportError("endpoint", "The daemon could not be located", error);
    }
  }

  async #send(endpoint: Endpoint, request: WireRequest, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = {
      accept: request.accept ?? "application/json, application/problem+json",
      authorization: `Bearer ${endpoint.token}`,
      ...(isLoopback(endpoint.url) ? { "accept-encoding": "identity" } : {}),
      ...(request.body === undefined ? {} : { "content-type": "application/json" }),
      ...request.headers,
    };
    const init: RequestInit = {
      method: request.method,
      headers,
      signal,
      redirect: "error",
      ...(request.body === undefined ? {} : { body: request.body }),
    };
    signal.throwIfAborted();
    request.onSend?.();
    try {
      return await abortable(this.#fetch(join(endpoint.url, request.path), init), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      throw new TransportError(
        "connection",
        `No answer: '${request.method} ${pathOf(request)}'${codeOf(error)}`,
        error,
      );
    }
  }
}

/** The code alone: what a runtime says in words may hold a header. */
function codeOf(error: unknown): string {
  for (let each = error; each instanceof Error; each = each.cause) {
    if ("code" in each && typeof each.code === "string" && each.code !== "")
      return ` (${each.code})`;
  }
  return "";
}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** A request body: the JSON's UTF-8 bytes. */
export function encodeJson(value: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(value));
}

/**
 * The answer's body as its schema says.
 *
 * @throws {ProtocolError} when it is something else
 */
export function decode<S extends v.GenericSchema>(schema: S, answer: Answer): v.InferOutput<S> {
  const parsed = v.safeParse(schema, decodeJson(answer.bytes));
  if (!parsed.success) {
    throw new ProtocolError(`The answer is not the contract's: ${explain(parsed.issues)}`);
  }
  return parsed.output;
}

/** The refusal that an answer states; without a problem document it says no more than the status. */
export function refusal(answer: Answer): ApiError {
  try {
    const parsed = v.safeParse(ProblemSchema, decodeJson(answer.bytes));
    return new ApiError(answer.status, parsed.success ? parsed.output : null);
  } catch (error) {
    if (error instanceof ProtocolError) return new ApiError(answer.status, null);
    throw error;
  }
}

/** What is wrong, by path; never the value, which may be someone's text. */
export function explain(issues: readonly v.BaseIssue<unknown>[]): string {
  const [issue] = issues;
  if (issue === undefined) return "unknown shape";
  const path = issue.path?.map((part) => String(part.key)).join("/") ?? "";
  return `expected ${issue.expected ?? issue.type} at '/${path}'`;
}

/** Rejects as soon as the signal aborts, even where the work itself does not listen. */
export function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** Lets go of a body that nobody reads. */
export async function discard(response: Response): Promise<void> {
  try {
    await response.body?.cancel();
  } catch {
    // The connection is gone already, which is what was wanted.
  }
}

function decodeJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new ProtocolError("The answer is not JSON", error);
  }
}

function join(url: string, path: string): string {
  return `${url.replace(/\/+$/, "")}${path}`;
}

/**
 * Whether the bytes stay on this machine, where coding them costs both sides and saves nothing. (Bun's fetch also
 * writes a line to stderr when a zstd stream breaks off, which is what a killed daemon's streams do.) Browsers
 * decide on codings themselves.
 */
function isLoopback(url: string): boolean {
  return /^https?:\/\/(localhost|127(\.\d+){3}|\[::1\])(:|\/|$)/i.test(url);
}

/** The path without its query. */
function pathOf(request: WireRequest): string {
  return request.path.split("?", 1)[0] ?? request.path;
}
