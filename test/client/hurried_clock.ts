import type { Clock } from "../../src/base/clock.ts";

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
