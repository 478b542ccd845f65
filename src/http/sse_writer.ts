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

type Controller = ReadableStreamDefaultController<Uint8Array>;

/**
 * One turn of it: the socket pulls, the subscription gives a frame at once or wakes the writer later, the frame is
 * enqueued, the pull ends. A frame that is there costs no promise, and no frame costs a timer: thousands of frames a
 * second pass here when many watch one session.
 */
class SseWriter implements UnderlyingDefaultSource<Uint8Array> {
  readonly #options: SseOptions;
  #controller: Controller | null = null;
  #released = false;
  /** Ends the pull that waits for the session; `null` while a frame waits for the socket. */
  #endPull: (() => void) | null = null;
  /** Whether the subscription has been asked to wake this writer. */
  #watching = false;
  #timer: Timer | null = null;
  /** When the last frame was handed over. */
  #sentAt = 0;

  constructor(options: SseOptions) {
    this.#options = options;
  }

  start(controller: Controller): void {
    this.#controller = controller;
    const { signal } = this.#options;
    if (signal.aborted) this.#release();
    else signal.addEventListener("abort", () => this.#release(), { once: true });
    this.#sentAt = this.#options.clock.monotonic();
    this.#schedule(KEEPALIVE_MS);
  }

  /** Called when the socket took what it was given; its promise holds back the next call. */
  pull(): Promise<void> | undefined {
    const sent = this.#sendNext();
    if (sent !== null) return sent;
    return new Promise((resolve) => {
      this.#endPull = resolve;
      this.#watch();
    });
  }

  cancel(): void {
    this.#release();
  }

  /** Sends what is there, or the end; `null` when the session has nothing to say yet. */
  #sendNext(): Promise<void> | undefined | null {
    const { subscription } = this.#options;
    let frame: Frame | null;
    try {
      frame = subscription.next();
      if (frame === null && !subscription.ended) return null;
    } catch (error) {
      return this.#fail(error);
    }
    return frame === null ? this.#end() : this.#send(frame);
  }

  /** One wait of the subscription serves any number of keepalives. */
  #watch(): void {
    if (this.#watching) return;
    this.#watching = true;
    this.#options.subscription.wait().then(
      () => this.#woken(),
      (error: unknown) => this.#finishPull(this.#fail(error)),
    );
  }

  #woken(): void {
    this.#watching = false;
    if (this.#released || this.#endPull === null) return;
    const sent = this.#sendNext();
    if (sent === null) this.#watch();
    else this.#finishPull(sent);
  }

  #finishPull(sent: Promise<void> | undefined): void {
    const endPull = this.#endPull;
    this.#endPull = null;
    if (sent === undefined) endPull?.();
    else void sent.then(endPull);
  }

  #sendKeepalive(): Promise<void> | undefined {
    try {
      return this.#send(this.#options.subscription.keepalive());
    } catch (error) {
      return this.#fail(error);
    }
  }

  #send(frame: Frame): Promise<void> | undefined {
    let bytes: Uint8Array | Promise<Uint8Array>;
    try {
      bytes = this.#options.coder.encode(encodeFrame(frame));
    } catch (error) {
      return this.#fail(error);
    }
    if (bytes instanceof Uint8Array) return this.#enqueue(bytes);
    return bytes.then(
      (coded) => this.#enqueue(coded),
      (error: unknown) => this.#fail(error),
    );
  }

  #enqueue(bytes: Uint8Array): undefined {
    if (this.#released) return;
    this.#controller?.enqueue(bytes);
    this.#sentAt = this.#options.clock.monotonic();
  }

  /** The session cannot be read any more; its reader only sees the stream end. */
  #fail(error: unknown): Promise<void> | undefined {
    if (this.#released) return undefined;
    this.#options.onFailure(error);
    return this.#end();
  }

  #end(): Promise<void> | undefined {
    const tail = this.#options.coder.end();
    if (tail instanceof Uint8Array) return this.#close(tail);
    return tail.then((bytes) => this.#close(bytes));
  }

  #close(tail: Uint8Array): undefined {
    if (this.#released) return;
    if (tail.length > 0) this.#controller?.enqueue(tail);
    this.#controller?.close();
    this.#release();
  }

  /**
   * Looks at what time has done: to a session that was silent, or to a frame that nobody takes. The timer is never
   * moved when a frame goes; it looks again when it would have been due.
   */
  #look(): void {
    const silentMs = this.#options.clock.monotonic() - this.#sentAt;
    const waits = this.#endPull !== null;
    const limitMs = waits ? KEEPALIVE_MS : WRITE_STALL_MS;
    if (silentMs < limitMs) {
      // A frame that waits for the socket may be taken any time, and then a keepalive is due sooner.
      this.#schedule(Math.min(limitMs - silentMs, KEEPALIVE_MS));
      return;
    }
    if (!waits) {
      this.#giveUp();
      return;
    }
    this.#finishPull(this.#sendKeepalive());
    this.#schedule(KEEPALIVE_MS);
  }

  #schedule(delayMs: number): void {
    if (!this.#released) this.#timer = this.#options.clock.timer(delayMs, () => this.#look());
  }

  #giveUp(): void {
    this.#release();
    // Closing would wait for the reader that does not read.
    this.#controller?.error(new Error("The reader took nothing for too long"));
  }

  #release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#timer?.cancel();
    this.#options.subscription.close();
    this.#options.coder.close();
    this.#endPull?.();
    this.#endPull = null;
  }
}
