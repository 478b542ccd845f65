import { batchFrame } from "./ring.ts";
import type { Frame, StreamPosition, Subscription } from "./subscription.ts";

/**
 * Owns one reader's position in a session's stream. It holds no payload and no socket: a wake sets a flag, and the
 * reader pulls (sessions.md, Stream failures and recovery).
 */
export interface ReaderSource {
  readonly generation: string;
  /** The number of the newest event. */
  readonly cursor: number;
  /** The session is over: no event comes any more. */
  readonly closed: boolean;
  /** What came after `seq`, or `null` outside of the replay window. */
  after(seq: number): Frame | null;
  /** A reset with the snapshot of now. */
  reset(): Frame;
  release(reader: Reader): void;
}

export class Reader implements Subscription {
  readonly #source: ReaderSource;
  readonly #position: StreamPosition | null;
  #cursor: number | null = null;
  #wake: (() => void) | null = null;
  #closed = false;

  constructor(source: ReaderSource, position: StreamPosition | null) {
    this.#source = source;
    this.#position = position;
  }

  get ended(): boolean {
    return this.#closed || this.#source.closed;
  }

  next(): Frame | null {
    if (this.#closed) return null;
    const frame = this.#cursor === null ? this.#first() : this.#following(this.#cursor);
    if (frame !== null) this.#cursor = frame.cursor;
    return frame;
  }

  wait(): Promise<void> {
    if (this.ended || this.#cursor !== this.#source.cursor) return Promise.resolve();
    return new Promise((resolve) => {
      const earlier = this.#wake;
      this.#wake = () => {
        earlier?.();
        resolve();
      };
    });
  }

  keepalive(): Frame {
    const { generation, cursor } = this.#source;
    return batchFrame(generation, this.#cursor ?? cursor, "");
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#source.release(this);
    this.wake();
  }

  /** Something was published, or the session is over. Any number of wakes before the next pull are one. */
  wake(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }

  #first(): Frame | null {
    const position = this.#position;
    if (position !== null && position.generation === this.#source.generation) {
      const replay = this.#source.after(position.seq);
      if (replay !== null) return replay;
    }
    return this.#source.closed ? null : this.#source.reset();
  }

  #following(cursor: number): Frame | null {
    if (cursor === this.#source.cursor) return null;
    const frame = this.#source.after(cursor);
    if (frame !== null) return frame;
    // Behind the window. A session that is over has no snapshot to give; the client learns from the end.
    return this.#source.closed ? null : this.#source.reset();
  }
}
