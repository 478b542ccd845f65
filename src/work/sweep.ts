import type { Clock, Timer } from "../base/clock.ts";
import { SWEEP_INTERVAL_MS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

/**
 * Owns when the daemon cleans up: once a minute, one sweep at a time (sessions.md, Loaded sessions and unloading;
 * operations.md, Query and retention). What a sweep does is the sessions' business.
 */
export interface SweepDependencies {
  readonly clock: Clock;
  readonly log: Log;
  readonly sweep: () => Promise<void>;
}

export class Sweep {
  readonly #deps: SweepDependencies;
  #timer: Timer | null = null;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(dependencies: SweepDependencies) {
    this.#deps = dependencies;
  }

  start(): void {
    this.#schedule();
  }

  /** Starts no further sweep; resolves when the one that runs has ended. */
  stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    return this.#running;
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#timer = this.#deps.clock.timer(SWEEP_INTERVAL_MS, () => {
      this.#running = this.#run();
    });
  }

  /** A sweep that fails leaves its work to the next one. */
  async #run(): Promise<void> {
    try {
      await this.#deps.sweep();
    } catch (error) {
      this.#deps.log.error("A sweep failed", {
        error: error instanceof Error ? error.name : typeof error,
      });
    }
    this.#schedule();
  }
}
