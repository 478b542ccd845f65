import type { Clock, Timer } from "../../src/base/clock.ts";

interface Sleeper {
  dueAt: number;
  order: number;
  fire: () => void;
}

/** The instant fake clocks start at: 2026-01-01T00:00:00Z. */
export const FAKE_EPOCH_MS = 1_767_225_600_000;

/**
 * A clock that stands still until it is told to move. Timers fire in due order, each with the clock at its due
 * time, and what a timer started runs before the next one fires.
 */
export class FakeClock implements Clock {
  #wall: number;
  #monotonic = 0;
  #order = 0;
  readonly #sleepers = new Set<Sleeper>();

  constructor(wall: number = FAKE_EPOCH_MS) {
    this.#wall = wall;
  }

  now(): number {
    return this.#wall;
  }

  monotonic(): number {
    return this.#monotonic;
  }

  timer(delayMs: number, fire: () => void): Timer {
    const sleeper = {
      dueAt: this.#monotonic + Math.max(0, delayMs),
      order: this.#order++,
      fire,
    };
    this.#sleepers.add(sleeper);
    return { cancel: () => void this.#sleepers.delete(sleeper) };
  }

  /** How many timers wait; a test can hold that none was left behind. */
  get waiting(): number {
    return this.#sleepers.size;
  }

  /** Moves only the wall clock, as a person does who sets the machine's time. */
  setWall(wall: number): void {
    this.#wall = wall;
  }

  /** Moves both clocks forward and fires what falls due on the way. */
  async advance(ms: number): Promise<void> {
    const end = this.#monotonic + ms;
    for (;;) {
      const next = this.#nextDue(end);
      if (next === undefined) break;
      this.#moveTo(next.dueAt);
      this.#sleepers.delete(next);
      next.fire();
      await settle();
    }
    this.#moveTo(end);
    await settle();
  }

  #nextDue(end: number): Sleeper | undefined {
    let next: Sleeper | undefined;
    for (const sleeper of this.#sleepers) {
      if (sleeper.dueAt > end) continue;
      if (
        next === undefined ||
        sleeper.dueAt < next.dueAt ||
        (sleeper.dueAt === next.dueAt && sleeper.order < next.order)
      ) {
        next = sleeper;
      }
    }
    return next;
  }

  #moveTo(monotonic: number): void {
    const step = Math.max(0, monotonic - this.#monotonic);
    this.#monotonic += step;
    this.#wall += step;
  }
}

/** Lets promise callbacks and immediates that are ready run; a commit takes two rounds, and a sweep several. */
export async function settle(rounds = 8): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
}
