import type { Clock, Timer } from "../base/clock.ts";

/**
 * Owns the time a call may take: a caller's signal and a number of milliseconds, as one signal. A part of a
 * deadline ends with it, or earlier.
 */
export interface CallOptions {
  /** Ends the call; it then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds for the whole call, recovery included; `Infinity` for no limit. @default CALL_MS_DEFAULT */
  readonly timeoutMs?: number | undefined;
}

/** What timers can count; they take more for nothing. Nearly 25 days: more is no limit. */
export const TIMER_MS_MAX = 2 ** 31 - 1;

export class Deadline {
  readonly #clock: Clock;
  readonly #controller = new AbortController();
  readonly #endsAt: number;
  readonly #outer: AbortSignal | undefined;
  readonly #timer: Timer | null;
  readonly #whole: Deadline | null;
  #reason: "aborted" | "timeout" | null = null;

  constructor(clock: Clock, timeoutMs: number, outer?: AbortSignal, whole: Deadline | null = null) {
    this.#clock = clock;
    this.#whole = whole;
    this.#endsAt = clock.monotonic() + timeoutMs;
    this.#outer = outer;
    this.#timer =
      timeoutMs > TIMER_MS_MAX ? null : clock.timer(timeoutMs, () => this.#end("timeout"));
    if (outer?.aborted) this.#end("aborted");
    else outer?.addEventListener("abort", this.#onOuter, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the time is over; `null` while it is not. A part that ended with its whole gives the whole's reason. */
  get ended(): "aborted" | "timeout" | null {
    return this.#whole?.ended ?? this.#reason;
  }

  get remainingMs(): number {
    return Math.max(0, this.#endsAt - this.#clock.monotonic());
  }

  /** A part of what is left. */
  part(timeoutMs: number): Deadline {
    return new Deadline(this.#clock, timeoutMs, this.signal, this);
  }

  /** Lets go of the timer and the caller's signal. */
  close(): void {
    this.#timer?.cancel();
    this.#outer?.removeEventListener("abort", this.#onOuter);
  }

  readonly #onOuter = (): void => this.#end("aborted");

  #end(reason: "aborted" | "timeout"): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.close();
    this.#controller.abort(
      reason === "aborted" ? this.#outer?.reason : new DOMException("Timed out", "TimeoutError"),
    );
  }
}
