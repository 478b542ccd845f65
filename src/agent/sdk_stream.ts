import { assert } from "../base/assert.ts";
import type { Clock, Timer } from "../base/clock.ts";
import { KIB } from "../base/limits.ts";
import { type Fetch, requestOptions } from "./fetch.ts";
import type { Provider } from "./model_providers.ts";
import type { ModelPart, ModelRequest } from "./provider.ts";
import { ProviderError } from "./provider.ts";
import { toProviderError } from "./provider_failure.ts";
import { SdkTranslator } from "./sdk_translator.ts";
import type { SdkStream } from "./sdk_prompt.ts";
import { settledWithin } from "./waiting.ts";

/**
 * Owns one streamed answer through an SDK: it ends with `finished`, with the signal's reason or with a
 * `ProviderError`, and leaves no connection behind. Retries are the turn's own.
 */
export interface SdkSource {
  readonly provider: Provider;
  readonly clock: Clock;
  readonly fetch: Fetch;
  readonly sdkFetch: SdkFetch;
  /** Sends the request through `sdkFetch` under this signal; resolves when the answer has begun. */
  open(request: ModelRequest, signal: AbortSignal): Promise<SdkStream>;
}

/** A stream that brings no byte for this long is broken: services send something every few seconds. */
const IDLE_MS_MAX = 5 * 60_000;
/** A model on a slow machine may read its prompt for a while before the first byte. */
const FIRST_BYTE_MS_MAX = 15 * 60_000;
/** How long the end of the body is waited for behind the answer, so that the connection can be used again. */
const CLOSE_MS_MAX = 100;
/** What is read of a refusal. */
const ERROR_BYTES_MAX = 64 * KIB;

export async function* streamSdkAnswer(
  source: SdkSource,
  request: ModelRequest,
): AsyncGenerator<ModelPart> {
  request.signal.throwIfAborted();
  const connection = new Connection(source.clock, source.fetch, request.signal);
  source.sdkFetch.connect(connection.signal, connection.fetch);
  try {
    const stream = await source.open(request, connection.signal);
    yield { type: "started" };
    const reader = stream.getReader();
    const translator = new SdkTranslator(source.provider.name);
    while (!translator.hasFinished) {
      const { done, value } = await reader.read();
      if (done) break;
      yield* translator.translate(value);
    }
    connection.signal.throwIfAborted();
    if (!translator.hasFinished) throw new Error("The answer ended before it was complete");
    await settledWithin(
      reader.read().catch(() => {}),
      CLOSE_MS_MAX,
      source.clock,
    );
  } catch (error) {
    request.signal.throwIfAborted();
    throw connection.failure ?? toProviderError(error, contextOf(source));
  } finally {
    connection.close();
  }
}

function contextOf({ provider, clock }: SdkSource): Parameters<typeof toProviderError>[1] {
  return { provider: provider.name, secret: provider.key?.value ?? null, now: clock.now() };
}

/**
 * What an SDK's model calls in place of the global `fetch`. A model is kept for many answers, and hands on no more of
 * a call than its signal; so the answer's connection is found by that.
 */
export class SdkFetch {
  readonly #connections = new WeakMap<AbortSignal, Fetch>();

  readonly send: Fetch = (input, init) => {
    const send =
      init?.signal instanceof AbortSignal ? this.#connections.get(init.signal) : undefined;
    assert(send !== undefined, "A request of no answer");
    return send(input, init);
  };

  connect(signal: AbortSignal, send: Fetch): void {
    this.#connections.set(signal, send);
  }
}

/** The one request of an answer, watched for silence. */
class Connection {
  readonly signal: AbortSignal;
  /** Why it was given up, where that was our doing. */
  failure: ProviderError | null = null;
  readonly #abort = new AbortController();
  readonly #clock: Clock;
  readonly #outer: AbortSignal;
  readonly #send: Fetch;
  readonly #onOuterAbort: () => void;
  #timer: Timer;
  #heardAt: number;

  constructor(clock: Clock, send: Fetch, outer: AbortSignal) {
    this.#clock = clock;
    this.#send = send;
    this.#outer = outer;
    this.signal = this.#abort.signal;
    this.#onOuterAbort = () => this.#abort.abort(outer.reason);
    outer.addEventListener("abort", this.#onOuterAbort, { once: true });
    this.#heardAt = clock.monotonic();
    this.#timer = this.#watch(FIRST_BYTE_MS_MAX);
  }

  readonly fetch: Fetch = async (input, init) => {
    const url = input instanceof Request ? input.url : input.toString();
    const response = await this.#send(input, {
      ...init,
      ...requestOptions(url),
      signal: this.signal,
    });
    this.#hear();
    if (!response.ok) return boundedRefusal(response);
    if (response.body === null) return response;
    const { status, headers } = response;
    return new Response(this.#listen(response.body), { status, headers });
  };

  /** Lets go of whatever is still open. */
  close(): void {
    this.#timer.cancel();
    this.#outer.removeEventListener("abort", this.#onOuterAbort);
    this.#abort.abort();
  }

  #hear(): void {
    this.#heardAt = this.#clock.monotonic();
  }

  /** One timer for many bytes: when it fires it looks when the last one came. */
  #watch(delayMs: number): Timer {
    return this.#clock.timer(delayMs, () => {
      const quietMs = this.#clock.monotonic() - this.#heardAt;
      if (quietMs < IDLE_MS_MAX) {
        this.#timer = this.#watch(IDLE_MS_MAX - quietMs);
        return;
      }
      this.failure = new ProviderError("stream_broken", "The provider has gone silent", {
        retryable: true,
      });
      this.#abort.abort(this.failure);
    });
  }

  #listen(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
    this.#timer.cancel();
    this.#timer = this.#watch(IDLE_MS_MAX);
    const reader = body.getReader();
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        const { done, value } = await reader.read();
        this.#hear();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }
}

/** The SDK reads a refusal whole, however long it is. */
async function boundedRefusal(response: Response): Promise<Response> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    parts.push(part.subarray(0, ERROR_BYTES_MAX - bytes));
    bytes += part.length;
    if (bytes >= ERROR_BYTES_MAX) break;
  }
  const { status, statusText, headers } = response;
  return new Response(Buffer.concat(parts), { status, statusText, headers });
}
