import type { Frame, Subscription } from "../../src/session/sessions.ts";

/** A subscription that a test feeds by hand, and that counts what is done with it. */
export class FakeSubscription implements Subscription {
  readonly generation: string;
  #frames: Frame[] = [];
  #cursor = 0;
  #wake: (() => void)[] = [];
  #failure: Error | null = null;
  ended = false;
  closed = 0;
  taken = 0;
  waits = 0;

  constructor(generation = "g1") {
    this.generation = generation;
  }

  /** One frame more for the reader. */
  push(events: readonly unknown[], cursor: number = this.#cursor + events.length): Frame {
    this.#cursor = cursor;
    const frame = { generation: this.generation, cursor, data: this.#data(cursor, events) };
    this.feed(frame);
    return frame;
  }

  /** A frame that other readers may have too. */
  feed(frame: Frame): void {
    this.#cursor = frame.cursor;
    this.#frames.push(frame);
    this.wake();
  }

  end(): void {
    this.ended = true;
    this.wake();
  }

  /** The session does not answer any more. */
  fail(error: Error): void {
    this.#failure = error;
    this.wake();
  }

  /** Wakes whoever waits, also where there is nothing. */
  wake(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const resolve of waiting) resolve();
  }

  next(): Frame | null {
    if (this.#failure !== null) throw this.#failure;
    const frame = this.#frames.shift() ?? null;
    if (frame !== null) this.taken += 1;
    return frame;
  }

  wait(): Promise<void> {
    this.waits += 1;
    if (this.#frames.length > 0 || this.ended) return Promise.resolve();
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  keepalive(): Frame {
    const cursor = this.#cursor;
    return { generation: this.generation, cursor, data: this.#data(cursor, []) };
  }

  close(): void {
    this.closed += 1;
    this.wake();
  }

  #data(cursor: number, events: readonly unknown[]): string {
    return JSON.stringify({ generation: this.generation, cursor, events });
  }
}
