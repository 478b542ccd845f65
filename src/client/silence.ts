import type { Clock, Timer } from "../base/clock.ts";
import { TIMER_MS_MAX } from "./deadline.ts";
import { TransportError } from "./errors.ts";

/**
 * Owns the notice that a connection has gone quiet: a socket that died without a FIN says nothing at all
 * (contract.md, What others' users ran into). Its signal aborts after the allowed silence, or with the outer one.
 * Time in which nobody listens, since a consumer works, is no silence.
 */
export class Silence {
  readonly #clock: Clock;
  readonly #allowedMs: () => number;
  readonly #outer: AbortSignal;
  readonly #controller = new AbortController();
  #heardAt: number;
  #paused = false;
  #timer: Timer;

  constructor(clock: Clock, allowedMs: () => number, outer: AbortSignal) {
    this.#clock = clock;
    this.#allowedMs = allowedMs;
    this.#outer = outer;
    this.#heardAt = clock.monotonic();
    this.#timer = this.#timerFor(allowedMs());
    if (outer.aborted) this.#onOuter();
    else outer.addEventListener("abort", this.#onOuter, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something was heard, and nobody listens until `resume`. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#heardAt = this.#clock.monotonic();
  }

  /** The connection is over: its signal aborts, so that whatever still hangs on it lets go. */
  close(): void {
    this.#end(new TransportError("connection", "The connection was closed"));
  }

  #end(reason: unknown): void {
    this.#timer.cancel();
    this.#outer.removeEventListener("abort", this.#onOuter);
    this.#controller.abort(reason);
  }

  #timerFor(delayMs: number): Timer {
    return this.#clock.timer(Math.min(delayMs, TIMER_MS_MAX), this.#onTimer);
  }

  readonly #onOuter = (): void => this.#end(this.#outer.reason);

  /** One timer for many frames: it looks back instead of being set anew with each. */
  readonly #onTimer = (): void => {
    const allowedMs = this.#allowedMs();
    const quietMs = this.#paused ? 0 : this.#clock.monotonic() - this.#heardAt;
    if (quietMs < allowedMs) {
      this.#timer = this.#timerFor(allowedMs - quietMs);
      return;
    }
    this.#end(new TransportError("timeout", `Nothing was heard for ${quietMs} ms`));
  };
}
