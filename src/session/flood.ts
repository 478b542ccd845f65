import { MIB } from "../base/limits.ts";

/**
 * Owns what a flood of output leaves behind. The runtime lets garbage grow old with the heap, some ten bytes for each
 * byte that is streamed. Models write far less in an hour than a flood does in a second, so whoever streams at a
 * model's pace never sees a collection from here.
 */
const COLLECT_CHARS = 1 * MIB;

export class Flood {
  readonly #collect: () => void;
  #chars = 0;

  /** @param collect gives back what nothing holds any more; stops everything for some milliseconds */
  constructor(collect: () => void) {
    this.#collect = collect;
  }

  /** So much was streamed, by any turn. */
  passed(chars: number): void {
    this.#chars += chars;
    if (this.#chars < COLLECT_CHARS) return;
    this.#chars = 0;
    this.#collect();
  }
}
