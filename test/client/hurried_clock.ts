import type { Clock } from "../../src/base/clock.ts";
import { RECONNECT_MS_MAX } from "../../src/base/limits.ts";

/**
 * A clock whose time passes `factor` times as fast as the machine's, for tests that need real sockets and must not
 * wait for real delays. Nothing may be concluded from how long something takes on it.
 */
export function hurriedClock(factor: number): Clock {
  const start = performance.now();
  const wall = Date.now();
  const elapsed = (): number => (performance.now() - start) * factor;
  return {
    now: () => wall + elapsed(),
    monotonic: elapsed,
    timer(delayMs, fire) {
      const handle = setTimeout(fire, delayMs / factor);
      return { cancel: () => clearTimeout(handle) };
    },
  };
}

/**
 * The machine's clock, but delays up to that of the longest reconnect pass in a thousandth. Limits on what others
 * take keep their length, so that a busy machine breaks none of them.
 */
export const impatientClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer(delayMs, fire) {
    const handle = setTimeout(fire, delayMs <= RECONNECT_MS_MAX ? delayMs / 1000 : delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
};
