import { type Clock, sleep } from "../base/clock.ts";

/** Waits until the promise has settled, at most `ms`. */
export async function settledWithin(
  promise: Promise<unknown>,
  ms: number,
  clock: Clock,
): Promise<void> {
  const over = new AbortController();
  const timer = sleep(clock, ms, over.signal).catch(() => {});
  await Promise.race([promise, timer]);
  over.abort();
}
