/**
 * Owns what a stream reader sees of a session: a position and a flag, never a queue (sessions.md, Stream failures
 * and recovery; contract.md, The stream). Payloads stay in the session's ring; a reader pulls.
 */

/**
 * One frame's data. Readers at the same position are given the same object, so that whatever is derived from it
 * (its bytes, for one) can be kept beside it in a `WeakMap`.
 */
export interface Frame {
  readonly generation: string;
  /** The position a client has reached once it has taken the frame. */
  readonly cursor: number;
  /** The JSON of the batch, `{"generation","cursor","events"}`: one line, less than `RESPONSE_BYTES_MAX` bytes. */
  readonly data: string;
}

/** Where a reader left off: both parts of a frame's id. */
export interface StreamPosition {
  readonly generation: string;
  readonly seq: number;
}

/**
 * A reader of one session's stream. The way to use it:
 *
 *     for (;;) {
 *       const frame = subscription.next();
 *       if (frame !== null) await write(frame);
 *       else if (subscription.ended) break;
 *       else await subscription.wait();
 *     }
 */
export interface Subscription {
  /**
   * What the reader has not seen, as one frame, and moves the reader behind it; `null` when there is nothing new.
   * The first call always gives a frame: a reset, a replay, or an empty batch.
   */
  next(): Frame | null;
  /** Resolves when `next` has something or the session has ended; at once where that is so already. */
  wait(): Promise<void>;
  /** The session was closed or deleted: what `next` still gives is the last, then comes a clean end. */
  readonly ended: boolean;
  /** An empty batch at the reader's position. */
  keepalive(): Frame;
  /** Takes the watch away, at once. */
  close(): void;
}
