import type { Clock, Timer } from "../base/clock.ts";

/**
 * Owns finding out that the home was removed or replaced under a running daemon. What it would accept from then on
 * goes into files that nobody finds again, and the next daemon would take the same home for free (contract.md, Files,
 * process, safety: one daemon a home).
 */
export interface HomeWatchOptions {
  readonly clock: Clock;
  readonly isInPlace: () => boolean;
  /** Called once. */
  readonly onLost: () => void;
}

const LOOK_MS = 500;

export class HomeWatch {
  readonly #options: HomeWatchOptions;
  #timer: Timer | null = null;
  #isMissing = false;

  constructor(options: HomeWatchOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = this.#options.clock.timer(LOOK_MS, () => this.#look());
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /** One look may fall between the two halves of a move there and back. */
  #look(): void {
    const { isInPlace, onLost } = this.#options;
    const wasMissing = this.#isMissing;
    this.#isMissing = !isInPlace();
    if (wasMissing && this.#isMissing) onLost();
    else this.start();
  }
}
