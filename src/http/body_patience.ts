import type { Clock, Timer } from "../base/clock.ts";
import { Problem } from "../wire/problem.ts";

/** A body that is not there by then is not coming; until then it holds a part of what all may hold. */
export const BODY_MS_MAX = 60_000;
/** A sender that is silent for so long has stalled, and others may be waiting for what it holds. */
export const BODY_SILENCE_MS_MAX = 5_000;

/**
 * Owns how long one large body is waited for: so long without a byte, and so long in all. Only time spent reading
 * counts, not the wait for a turn to read on.
 */
export class BodyPatience {
  readonly #clock: Clock;
  readonly #giveUp: () => void;
  #leftMs = BODY_MS_MAX;
  #timer: Timer | null = null;

  /** @param giveUp makes a read that is under way resolve */
  constructor(clock: Clock, giveUp: () => void) {
    this.#clock = clock;
    this.#giveUp = giveUp;
  }

  /** @throws {Problem} request_timeout */
  async during<T>(read: Promise<T>): Promise<T> {
    const startedAt = this.#clock.monotonic();
    let late = false;
    this.#timer = this.#clock.timer(Math.min(BODY_SILENCE_MS_MAX, this.#leftMs), () => {
      late = true;
      this.#giveUp();
    });
    const result = await read;
    this.end();
    if (late) throw new Problem("request_timeout");
    this.#leftMs -= this.#clock.monotonic() - startedAt;
    return result;
  }

  /** Leaves no timer behind, whatever became of the read. */
  end(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }
}
