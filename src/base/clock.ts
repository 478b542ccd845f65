/**
 * Owns time. Every limit that speaks of time is measured through a `Clock`, so that a test can move it
 * (contract.md, Identity and time).
 *
 * Which one to read: `now()` for ids, receipts and anything stored (it may jump either way when someone sets
 * the machine's clock); `monotonic()` for durations (it never goes back).
 */

/** A timer that has been set; `cancel` is harmless once it fired. */
export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds since an arbitrary start; never goes back. */
  monotonic(): number;
  /** Calls `fire` once when `delayMs` of monotonic time have passed, never before. Does not keep the process alive. */
  timer(delayMs: number, fire: () => void): Timer;
}

/**
 * Resolves after `delayMs`, or rejects with the signal's reason as soon as it aborts.
 */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const onAbort = (): void => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.timer(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer: (delayMs, fire) => setTimer(delayMs, fire, letGo),
};

/**
 * The machine's clock for a program that waits on it, such as a client between two attempts: its timers keep the
 * process alive.
 */
export const waitingClock: Clock = {
  now: () => systemClock.now(),
  monotonic: () => systemClock.monotonic(),
  timer: (delayMs, fire) => setTimer(delayMs, fire, () => {}),
};

type Handle = ReturnType<typeof setTimeout>;

/**
 * Runtimes cut a delay to whole milliseconds and fire up to one early. Who compares the time when it fired would
 * find that the time has not come.
 */
function setTimer(delayMs: number, fire: () => void, started: (handle: Handle) => void): Timer {
  const dueAt = performance.now() + delayMs;
  let handle: Handle;
  const wait = (ms: number): void => {
    handle = setTimeout(() => {
      const leftMs = dueAt - performance.now();
      if (leftMs > 0) wait(leftMs);
      else fire();
    }, Math.ceil(ms));
    started(handle);
  };
  wait(delayMs);
  return { cancel: () => clearTimeout(handle) };
}

function letGo(handle: Handle): void {
  // Browsers give a number here, servers an object that would keep the process alive.
  if (typeof handle === "object") (handle as { unref?: () => void }).unref?.();
}
