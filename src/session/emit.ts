import type { Clock } from "../base/clock.ts";
import type { EventBody, EventKind } from "../wire/event.ts";
import { DeltaFrame, type Delta } from "./frame.ts";
import { Ring } from "./ring.ts";
import type { Frame } from "./subscription.ts";

/**
 * Owns the numbers of a session's events and their way into the ring (sessions.md, Stream failures and recovery).
 *
 * I1 Every event has the number after the one before it; numbers start at 1, a session without events is at 0.
 * I2 Only an `EventBody` takes a number. Internal signals (a checkpoint, the provider's start) are no events and
 *    cannot be given to it.
 * I3 Deltas that are held go out before any other event, so that the stream keeps its order.
 * I4 `onDelta` sees each delta when it has its number, so that a snapshot taken at a cursor holds just what was
 *    published up to it.
 */
export interface EmitOptions {
  readonly generation: string;
  readonly clock: Clock;
  /** Called for each published delta, before readers are woken. */
  readonly onDelta: (delta: Delta) => void;
  /** Called after each publication. */
  readonly onPublished: () => void;
}

/** With these a message is over, or all that was provisional is: half a surrogate pair waits no longer. */
const MESSAGE_ENDS: ReadonlySet<EventKind> = new Set<EventKind>([
  "assistant",
  "thinking",
  "committed",
  "retry",
  "turn_finished",
]);

export class Emitter {
  readonly #ring: Ring;
  readonly #frame: DeltaFrame;
  readonly #onDelta: (delta: Delta) => void;
  readonly #onPublished: () => void;

  constructor(options: EmitOptions) {
    this.#ring = new Ring(options.generation);
    this.#onDelta = options.onDelta;
    this.#onPublished = options.onPublished;
    this.#frame = new DeltaFrame(options.clock, (delta) => this.#publishDelta(delta));
  }

  get generation(): string {
    return this.#ring.generation;
  }

  /** The number of the newest event. */
  get cursor(): number {
    return this.#ring.head;
  }

  /** Publishes an event, and before it the deltas that are held. */
  emit(body: EventBody): void {
    if (MESSAGE_ENDS.has(body.kind)) this.#frame.finish();
    else this.#frame.flush();
    this.#append(body);
    this.#onPublished();
  }

  /** Publishes a delta within a frame. */
  delta(delta: Delta): void {
    this.#frame.push(delta);
  }

  /** A block has ended: nothing more will complete its text. It is published with the frame. */
  endBlock(liveId: string): void {
    this.#frame.endBlock(liveId);
  }

  /** What came after `seq`, or `null` outside of the window. */
  after(seq: number): Frame | null {
    return this.#ring.after(seq);
  }

  /** Forgets the replay window; only readers that have seen everything can resume then. */
  forget(): void {
    this.#ring.clear();
  }

  close(): void {
    this.#frame.close();
  }

  #publishDelta(delta: Delta): void {
    this.#append({
      kind: delta.kind === "text" ? "text_delta" : "thinking_delta",
      message_id: delta.messageId,
      live_id: delta.liveId,
      text: delta.text,
    });
    this.#onDelta(delta);
    this.#onPublished();
  }

  #append(body: EventBody): void {
    this.#ring.append(JSON.stringify({ seq: this.#ring.head + 1, ...body }));
  }
}
