import type { Clock, Timer } from "../base/clock.ts";
import { SWEEP_INTERVAL_MS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

/**
 * Owns when maintenance happens: sessions that are idle are unloaded, expired receipts and output removed, and memory
 * that a busy time left behind is given back (sessions.md, Loaded sessions and unloading; operations.md, Query and
 * retention).
 *
 * I1 One sweep at a time; the next is due an interval after the last one has ended.
 * I2 A sweep that fails is told in the log, and the next one comes all the same.
 * I3 Garbage is collected only when no turn is active, and once after each busy time: it stops the world.
 */
export interface Sweepable {
  /** Whether any turn is active. */
  readonly busy: boolean;
  /** Grows with everything that may have left garbage. */
  readonly activity: number;
  sweep(): Promise<{ readonly unloaded: number; readonly receipts: number }>;
}

export interface SweepOptions {
  readonly sessions: Sweepable;
  readonly clock: Clock;
  readonly log: Log;
  /** When sessions may be unloaded; a short time makes for frequent sweeps. */
  readonly unloadSeconds: number;
  /** Collects garbage and gives memory back to the system. */
  readonly collect: () => void;
}

const INTERVAL_MS_MIN = 1000;

export class Sweep {
  readonly #options: SweepOptions;
  readonly #intervalMs: number;
  #timer: Timer | null = null;
  #running: Promise<void> | null = null;
  #collectedAt = 0;
  #stopped = false;

  constructor(options: SweepOptions) {
    this.#options = options;
    this.#intervalMs = Math.min(
      SWEEP_INTERVAL_MS,
      Math.max(INTERVAL_MS_MIN, options.unloadSeconds * 500),
    );
  }

  /** The first sweep is due an interval from now, so that a start is not slowed down. */
  start(): void {
    this.#schedule();
  }

  /** Resolves when no sweep runs and none will. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#timer = this.#options.clock.timer(this.#intervalMs, () => {
      this.#running = this.#run();
    });
  }

  async #run(): Promise<void> {
    const { sessions, log } = this.#options;
    try {
      const { unloaded, receipts } = await sessions.sweep();
      if (unloaded > 0 || receipts > 0) log.debug("Swept", { unloaded, receipts });
      this.#collect();
    } catch (error) {
      log.error("A sweep failed", { error });
    }
    this.#running = null;
    this.#schedule();
  }

  #collect(): void {
    const { sessions, collect } = this.#options;
    if (sessions.busy || sessions.activity === this.#collectedAt) return;
    this.#collectedAt = sessions.activity;
    collect();
  }
}
