import { RING_BYTES_MAX, RING_EVENTS_MAX } from "../base/limits.ts";
import type { Frame } from "./subscription.ts";

/**
 * Owns the replay window of one session's lifetime: the newest events, already encoded (sessions.md, Stream
 * failures and recovery).
 *
 * I1 At most `RING_EVENTS_MAX` events and `RING_BYTES_MAX` bytes, so any replay fits one response.
 * I2 Sequence numbers in it have no gap; the newest is `head`.
 * I3 Readers at the same position are given the same `Frame`, so that many readers cost one string.
 */
interface Entry {
  readonly json: string;
  readonly bytes: number;
}

/** Readers lag at few distinct positions at a time; each remembered frame may take a response's bytes. */
const SHARED_FRAMES_MAX = 4;

export class Ring {
  readonly generation: string;
  readonly #entries: (Entry | undefined)[] = [];
  readonly #frames = new Map<number, Frame>();
  #head = 0;
  #count = 0;
  #bytes = 0;

  constructor(generation: string) {
    this.generation = generation;
  }

  /** The newest sequence number; 0 before the first event. */
  get head(): number {
    return this.#head;
  }

  /** Events in the window. */
  get size(): number {
    return this.#count;
  }

  /** Encoded bytes of the window, a separator an event included. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the event numbered `head + 1`. */
  append(json: string): void {
    const entry = { json, bytes: Buffer.byteLength(json) + 1 };
    this.#head += 1;
    this.#frames.clear();
    if (this.#count === RING_EVENTS_MAX) this.#dropOldest();
    while (this.#count > 0 && this.#bytes + entry.bytes > RING_BYTES_MAX) this.#dropOldest();
    // An event that does not fit alone leaves an empty window behind it: readers are reset.
    if (entry.bytes > RING_BYTES_MAX) return;
    this.#entries[this.#head % RING_EVENTS_MAX] = entry;
    this.#count += 1;
    this.#bytes += entry.bytes;
  }

  /** All events after `seq` as one frame, or `null` when that is outside of the window. */
  after(seq: number): Frame | null {
    if (!Number.isInteger(seq) || seq > this.#head || seq < this.#head - this.#count) return null;
    const shared = this.#frames.get(seq);
    if (shared !== undefined) return shared;
    const events: string[] = [];
    for (let number = seq + 1; number <= this.#head; number += 1) {
      events.push(this.#entries[number % RING_EVENTS_MAX]?.json ?? "");
    }
    const frame = batchFrame(this.generation, this.#head, events.join(","));
    if (this.#frames.size < SHARED_FRAMES_MAX) this.#frames.set(seq, frame);
    return frame;
  }

  /** Forgets the window. A reader that has seen everything goes on, any other is reset. */
  clear(): void {
    this.#entries.length = 0;
    this.#frames.clear();
    this.#count = 0;
    this.#bytes = 0;
  }

  #dropOldest(): void {
    const slot = (this.#head - this.#count) % RING_EVENTS_MAX;
    this.#bytes -= this.#entries[slot]?.bytes ?? 0;
    this.#entries[slot] = undefined;
    this.#count -= 1;
  }
}

/** A frame from events that are already JSON, separated by commas. */
export function batchFrame(generation: string, cursor: number, events: string): Frame {
  return {
    generation,
    cursor,
    data: `{"generation":${JSON.stringify(generation)},"cursor":${cursor},"events":[${events}]}`,
  };
}
