import type { Clock, Timer } from "../base/clock.ts";
import { KEEPALIVE_MS, WRITE_STALL_MS } from "../base/limits.ts";
import type { Frame, Subscription } from "../session/sessions.ts";

/**
 * Owns one reader's connection: frames of a subscription as server-sent events, pulled by the socket (contract.md,
 * The stream).
 *
 * I1. One frame is in flight: the next is asked of the subscription only when the socket took the one before.
 *     What a slow reader has not seen stays in the session's ring.
 * I2. The watch is taken away as soon as the socket goes, the session ends, or a frame found no taker for
 *     `WRITE_STALL_MS`.
 * I3. Whatever ends the session ends the stream with a clean end of its coding and of its body.
 */

/** Codes frames for one connection. */
export interface FrameCoder {
  /** The bytes that let the reader decode everything up to the end of this frame. */
  encode(frame: Uint8Array): Uint8Array | Promise<Uint8Array>;
  /** The bytes that end the coding. */
  end(): Uint8Array | Promise<Uint8Array>;
  /** Gives back what the coding holds; harmless when called twice. */
  close(): void;
}

const NOTHING = new Uint8Array();

/** Frames as they are. */
export const identityCoder: FrameCoder = {
  encode: (frame) => frame,
  end: () => NOTHING,
  close: () => {},
};

const encoder = new TextEncoder();
const encodedFrames = new WeakMap<Frame, Uint8Array>();

/** A frame as an event (WHATWG HTML §9.2.6). Readers at one position share the bytes as they share the frame. */
export function encodeFrame(frame: Frame): Uint8Array {
  let bytes = encodedFrames.get(frame);
  if (bytes === undefined) {
    const id = `${frame.generation}:${frame.cursor}`;
    bytes = encoder.encode(`id: ${id}\nevent: batch\ndata: ${frame.data}\n\n`);
    encodedFrames.set(frame, bytes);
  }
  return bytes;
}

export interface SseOptions {
  readonly subscription: Subscription;
  readonly coder: FrameCoder;
  readonly clock: Clock;
  /** Aborts when the connection is gone. */
  readonly signal: AbortSignal;
  /** Hears of a session that could not be read; the reader only sees the stream end. */
  readonly onFailure: (error: unknown) => void;
}

/** The body of a stream's response. */
export function createEventStream(options: SseOptions): ReadableStream<Uint8Array> {
  const writer = new SseWriter(options);
  return new ReadableStream<Uint8Array>(writer, { highWaterMark: 0 });
}

class SseWriter implements UnderlyingDefaultSource<Uint8Array> {
  readonly #options: SseOptions;
  #released = false;
  /** Ends the wait that goes on, if one does. */
  #resume: ((woken: boolean) => void) | null = null;
  /** Whether the subscription has been asked to wake this reader. */
  #watching = false;
  #stall: Timer | null = null;
  #failure: { readonly error: unknown } | null = null;

  constructor(options: SseOptions) {
    this.#options = options;
  }

  start(): void {
    const { signal } = this.#options;
    if (signal.aborted) this.#release();
    else signal.addEventListener("abort", () => this.#release(), { once: true });
  }

  /** Called when the socket took what it was given; its promise holds back the next call. */
  async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    this.#stall?.cancel();
    this.#stall = null;
    const frame = await this.#nextFrame();
    if (this.#released) return;
    if (frame === null) await this.#end(controller);
    else await this.#send(controller, frame);
  }

  cancel(): void {
    this.#release();
  }

  /** The next frame to send, or `null` at the session's end. */
  async #nextFrame(): Promise<Frame | null> {
    const { subscription, onFailure } = this.#options;
    try {
      for (;;) {
        const frame = subscription.next();
        if (frame !== null || subscription.ended) return frame;
        const woken = await this.#wait();
        if (this.#failure !== null) throw this.#failure.error;
        if (this.#released) return null;
        if (!woken) return subscription.keepalive();
      }
    } catch (error) {
      onFailure(error);
      return null;
    }
  }

  /** Resolves to whether the subscription woke this reader; to `false` when a keepalive is due. */
  #wait(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.timer(KEEPALIVE_MS, () => this.#resume?.(false));
      this.#resume = (woken) => {
        timer.cancel();
        this.#resume = null;
        resolve(woken);
      };
      this.#watch();
    });
  }

  /** One wait of the subscription serves any number of keepalives. */
  #watch(): void {
    if (this.#watching) return;
    this.#watching = true;
    const wake = (): void => {
      this.#watching = false;
      this.#resume?.(true);
    };
    this.#options.subscription.wait().then(wake, (error: unknown) => {
      this.#failure = { error };
      wake();
    });
  }

  async #send(
    controller: ReadableStreamDefaultController<Uint8Array>,
    frame: Frame,
  ): Promise<void> {
    const bytes = await this.#options.coder.encode(encodeFrame(frame));
    if (this.#released) return;
    controller.enqueue(bytes);
    this.#stall = this.#options.clock.timer(WRITE_STALL_MS, () => {
      this.#release();
      // Closing would wait for the reader that does not read.
      controller.error(new Error("The reader took nothing for too long"));
    });
  }

  async #end(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    const tail = await this.#options.coder.end();
    if (this.#released) return;
    if (tail.length > 0) controller.enqueue(tail);
    controller.close();
    this.#release();
  }

  #release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#stall?.cancel();
    this.#options.subscription.close();
    this.#options.coder.close();
    this.#resume?.(true);
  }
}
