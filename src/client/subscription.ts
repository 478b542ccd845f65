import * as v from "valibot";
import { sleep } from "../base/clock.ts";
import { RECONNECT_MS_MAX, RECONNECT_MS_MIN, SILENCE_MS_MAX } from "../base/limits.ts";
import type { ResetEvent } from "../wire/event.ts";
import { parseBatch } from "./batch.ts";
import type { CheckedBatch, LiveEvent, Position } from "./batch.ts";
import {
  ApiError,
  isTransientStatus,
  ProtocolError,
  StreamFailure,
  TransportError,
} from "./errors.ts";
import { hydrate, SnapshotExpired } from "./hydration.ts";
import { eventsPath, get, query } from "./paths.ts";
import { Silence } from "./silence.ts";
import { SseReader } from "./sse_reader.ts";
import { abortable, discard, refusal } from "./transport.ts";
import type { Transport } from "./transport.ts";

/**
 * Owns an attachment to a session's stream from its first connection to its end (sessions.md, Stream failures and
 * recovery):
 *
 * I1. A batch is validated whole before any of it is consumed, and the pair is saved only after every callback of
 *     it succeeded. So what a consumer saw twice it saw because it failed.
 * I2. Transport failures, EOF, silence, 408/429, server errors and `daemon_unavailable`/`daemon_stopping` reconnect
 *     with the saved pair, after 500 ms doubling to 5 s; a consumed batch starts the delays anew.
 * I3. One protocol failure an attachment is answered with a durable transcript reset: the pair is cleared and the
 *     stream has to begin with a reset. The second one ends the attachment.
 * I4. Other refusals, explicit stream failures and failed callbacks end it with a notice. An abort ends it without.
 * I5. Callbacks run one at a time, in order, and none after the end.
 */

export type { LiveEvent, Position } from "./batch.ts";

export type SubscriptionState =
  | { readonly kind: "connecting" }
  /** A batch of this connection was consumed. */
  | { readonly kind: "live" }
  /** The connection is gone; the next one follows after the delay. */
  | { readonly kind: "waiting"; readonly delayMs: number; readonly cause: Error }
  /** The stream broke the contract. What is shown may be wrong; live progress is to be cleared, a reset follows. */
  | { readonly kind: "recovering"; readonly cause: ProtocolError }
  /** The terminal notice: nothing follows. */
  | { readonly kind: "ended"; readonly reason: FailureReason; readonly error: Error };

/**
 * - `refused`: the daemon refused the stream, for instance since the session is gone.
 * - `failed`: the stream said that it failed.
 * - `protocol`: a second batch or answer broke the contract.
 * - `callback`: a callback threw.
 */
export type FailureReason = "refused" | "failed" | "protocol" | "callback";

export type SubscriptionEnd =
  { readonly reason: "aborted" } | { readonly reason: FailureReason; readonly error: Error };

type Awaitable = void | Promise<void>;

export interface SubscribeOptions {
  /** The transcript as it is now, in place of all that came before. Spilled output is already in it. */
  readonly onReset: (reset: ResetEvent) => Awaitable;
  readonly onEvent: (event: LiveEvent) => Awaitable;
  /** After the other callbacks of a batch, keepalives included. */
  readonly onBatch?: (batch: CheckedBatch) => Awaitable;
  readonly onState?: (state: SubscriptionState) => void;
  readonly signal?: AbortSignal;
  /** Where an earlier attachment stopped. Without it the stream begins with a reset. */
  readonly position?: Position | null;
  /**
   * Milliseconds without a byte after which the connection is given up; `Infinity` for never.
   *
   * @default two keepalive intervals, as the daemon states them
   */
  readonly silenceMs?: number;
}

export interface Subscription {
  /** What has been consumed; `null` before the first batch, and after an abort. */
  readonly position: Position | null;
  /** Resolves when it is over; never rejects. */
  readonly ended: Promise<SubscriptionEnd>;
  /** Ends it as an abort does. */
  close(): void;
}

/** What a subscription needs of a client. */
export interface StreamSource {
  readonly transport: Transport;
  /** The keepalive interval that the daemon states, in milliseconds. */
  keepaliveMs(): Promise<number>;
}

/** Attaches to a session's stream. */
export function subscribe(
  source: StreamSource,
  sessionId: string,
  options: SubscribeOptions,
): Subscription {
  return new Attachment(source, sessionId, options);
}

/** A callback threw; kept apart from what the network does. */
class CallbackFailure extends Error {
  override readonly name = "CallbackFailure";
  readonly error: Error;

  constructor(cause: unknown) {
    super("A callback failed", { cause });
    this.error = cause instanceof Error ? cause : new Error(String(cause), { cause });
  }
}

class Attachment implements Subscription {
  readonly ended: Promise<SubscriptionEnd>;
  readonly #source: StreamSource;
  readonly #sessionId: string;
  readonly #options: SubscribeOptions;
  readonly #controller = new AbortController();
  #position: Position | null;
  #delayMs = RECONNECT_MS_MIN;
  #recovered = false;
  #live = false;
  #silenceMs: number | null;

  constructor(source: StreamSource, sessionId: string, options: SubscribeOptions) {
    this.#source = source;
    this.#sessionId = sessionId;
    this.#options = options;
    this.#position = options.position ?? null;
    this.#silenceMs = options.silenceMs ?? null;
    this.ended = this.#run();
  }

  get position(): Position | null {
    return this.#position;
  }

  close(): void {
    this.#controller.abort();
  }

  async #run(): Promise<SubscriptionEnd> {
    const { signal } = this.#options;
    const onAbort = (): void => this.close();
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) this.close();
    try {
      // Whoever attaches has the subscription in hand before its first callback.
      await Promise.resolve();
      return await this.#attach();
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #attach(): Promise<SubscriptionEnd> {
    for (;;) {
      let failure: unknown;
      try {
        this.#throwIfAborted();
        await this.#connect();
        failure = new TransportError("connection", "The stream ended");
      } catch (error) {
        failure = error;
      }
      const end = await this.#continueAfter(failure);
      if (end !== null) return end;
    }
  }

  /** Decides what follows a connection's end: `null` for another connection. */
  async #continueAfter(failure: unknown): Promise<SubscriptionEnd | null> {
    if (this.#aborted) return this.#quit();
    const verdict = judge(failure, this.#recovered);
    try {
      switch (verdict.kind) {
        case "end":
          return this.#end(verdict.reason, verdict.error);
        case "recover":
          this.#recovered = true;
          this.#position = null;
          this.#notify({ kind: "recovering", cause: verdict.error });
          return null;
        case "snapshot":
          this.#position = null;
          await this.#wait(verdict.error);
          return null;
        case "reconnect":
          await this.#wait(verdict.error);
          return null;
      }
    } catch (error) {
      if (this.#aborted) return this.#quit();
      return this.#end("callback", error instanceof CallbackFailure ? error.error : asError(error));
    }
  }

  async #wait(cause: Error): Promise<void> {
    const delayMs = this.#delayMs;
    this.#delayMs = Math.min(2 * delayMs, RECONNECT_MS_MAX);
    this.#notify({ kind: "waiting", delayMs, cause });
    await sleep(this.#source.transport.clock, delayMs, this.#controller.signal);
  }

  /** One connection; returns at its clean end. */
  async #connect(): Promise<void> {
    this.#live = false;
    this.#notify({ kind: "connecting" });
    const { clock } = this.#source.transport;
    const silence = new Silence(
      clock,
      () => this.#silenceMs ?? SILENCE_MS_MAX,
      this.#controller.signal,
    );
    try {
      const reader = await this.#open(silence.signal);
      try {
        await this.#consume(reader, silence);
      } finally {
        reader.close();
      }
    } finally {
      silence.close();
    }
  }

  async #open(signal: AbortSignal): Promise<SseReader> {
    const position = this.#position;
    const at =
      position === null ? {} : { after_generation: position.generation, after_seq: position.seq };
    const request = get(`${eventsPath(this.#sessionId)}${query(at)}`);
    const { transport } = this.#source;
    const response = await transport.open(
      { ...request, accept: "text/event-stream, application/problem+json;q=0.5" },
      signal,
    );
    if (response.status !== 200 || response.body === null) await refuse(response, signal);
    const contentType = response.headers.get("content-type") ?? "";
    if (response.body === null || !/^text\/event-stream\s*(;|$)/i.test(contentType)) {
      await discard(response);
      throw new ProtocolError("The answer is not an event stream");
    }
    return new SseReader(response.body, signal);
  }

  async #consume(reader: SseReader, silence: Silence): Promise<void> {
    for (;;) {
      const messages = await reader.next();
      if (messages === null) return;
      silence.pause();
      for (const message of messages) {
        if (message.event === "error") throw streamFailure(message.data);
        if (message.event === "batch") await this.#take(message.data, silence.signal);
      }
      silence.resume();
    }
  }

  async #take(data: string, signal: AbortSignal): Promise<void> {
    const checked = parseBatch(data, this.#position);
    const { transport } = this.#source;
    const reset =
      checked.reset === null
        ? null
        : await hydrate(transport, this.#sessionId, checked.reset, signal);
    const batch: CheckedBatch = { ...checked, reset };
    const { onReset, onEvent, onBatch } = this.#options;
    if (reset !== null) await this.#call(() => onReset(reset));
    for (const event of batch.events) await this.#call(() => onEvent(event));
    if (onBatch !== undefined) await this.#call(() => onBatch(batch));
    this.#position = { generation: batch.generation, seq: batch.cursor };
    this.#delayMs = RECONNECT_MS_MIN;
    if (!this.#live) this.#enterLive();
  }

  #enterLive(): void {
    this.#live = true;
    this.#notify({ kind: "live" });
    if (this.#silenceMs === null) void this.#learnSilence();
  }

  /** Until the daemon has stated its interval, or where it does not, the contract's own holds. */
  async #learnSilence(): Promise<void> {
    this.#silenceMs = 2 * (await this.#source.keepaliveMs());
  }

  async #call(callback: () => Awaitable): Promise<void> {
    this.#throwIfAborted();
    try {
      await callback();
    } catch (error) {
      throw new CallbackFailure(error);
    }
    this.#throwIfAborted();
  }

  #notify(state: SubscriptionState): void {
    this.#throwIfAborted();
    try {
      this.#options.onState?.(state);
    } catch (error) {
      throw new CallbackFailure(error);
    }
  }

  #end(reason: FailureReason, error: Error): SubscriptionEnd {
    try {
      this.#options.onState?.({ kind: "ended", reason, error });
    } catch (thrown) {
      return {
        reason: "callback",
        error: new AggregateError([error, thrown], "The notice failed"),
      };
    }
    return { reason, error };
  }

  #quit(): SubscriptionEnd {
    this.#position = null;
    return { reason: "aborted" };
  }

  get #aborted(): boolean {
    return this.#controller.signal.aborted;
  }

  #throwIfAborted(): void {
    this.#controller.signal.throwIfAborted();
  }
}

type Verdict =
  | { readonly kind: "end"; readonly reason: FailureReason; readonly error: Error }
  | { readonly kind: "recover"; readonly error: ProtocolError }
  | { readonly kind: "snapshot"; readonly error: Error }
  | { readonly kind: "reconnect"; readonly error: Error };

/** What a failure means for the attachment. */
function judge(failure: unknown, recovered: boolean): Verdict {
  if (failure instanceof CallbackFailure) {
    return { kind: "end", reason: "callback", error: failure.error };
  }
  if (failure instanceof ProtocolError) {
    return recovered
      ? { kind: "end", reason: "protocol", error: failure }
      : { kind: "recover", error: failure };
  }
  if (failure instanceof SnapshotExpired) return { kind: "snapshot", error: failure };
  if (failure instanceof TransportError) return { kind: "reconnect", error: failure };
  if (failure instanceof ApiError) {
    return isTransientStatus(failure.status)
      ? { kind: "reconnect", error: failure }
      : { kind: "end", reason: "refused", error: failure };
  }
  if (failure instanceof StreamFailure) {
    return RESTART_CODES.has(failure.code)
      ? { kind: "reconnect", error: failure }
      : { kind: "end", reason: "failed", error: failure };
  }
  return { kind: "end", reason: "failed", error: asError(failure) };
}

/** What older daemons send while they shut down. */
const RESTART_CODES: ReadonlySet<string> = new Set(["daemon_unavailable", "daemon_stopping"]);

/** Turns an answer that is no stream into its error. */
async function refuse(response: Response, signal: AbortSignal): Promise<never> {
  if (response.status >= 200 && response.status < 300) {
    await discard(response);
    throw new ProtocolError(`The stream was answered with status ${response.status}`);
  }
  const { status, headers } = response;
  const bytes = await readRefusal(response, signal);
  throw refusal({ status, headers, bytes });
}

/** The status alone decides what follows, so a body that breaks off only loses its words. */
async function readRefusal(
  response: Response,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await abortable(response.arrayBuffer(), signal));
  } catch (error) {
    if (signal.aborted) throw error;
    return new Uint8Array();
  }
}

const StreamFailureSchema = v.object({ code: v.string(), message: v.optional(v.string()) });

function streamFailure(data: string): StreamFailure {
  const parsed = v.safeParse(StreamFailureSchema, tryJson(data));
  return parsed.success
    ? new StreamFailure(parsed.output.code, parsed.output.message ?? "The stream failed")
    : new StreamFailure("unknown", "The stream failed without a reason");
}

function tryJson(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}

function asError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value), { cause: value });
}
