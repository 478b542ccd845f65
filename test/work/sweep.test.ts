import { expect, test } from "bun:test";
import { SWEEP_INTERVAL_MS } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { Sweep } from "../../src/work/sweep.ts";
import { FakeClock } from "../support/fake_clock.ts";

/**
 * Goal: sweeps come once an interval, one at a time, whatever becomes of one; memory is given back after a busy time.
 * Method: a clock that a test moves, and sessions that only count.
 */
function bench(unloadSeconds = 3600) {
  const clock = new FakeClock();
  const swept = { unloaded: 0, receipts: 0 };
  const sessions = { busy: false, activity: 0, sweep: () => Promise.resolve(swept) };
  let collected = 0;
  const sweep = new Sweep({
    sessions,
    clock,
    log: silentLog,
    unloadSeconds,
    collect: () => (collected += 1),
  });
  return { clock, sessions, sweep, swept, collected: () => collected };
}

test("Sweep runs once an interval and goes on after a failure", async () => {
  const { clock, sessions, sweep, swept } = bench();
  let runs = 0;
  sessions.sweep = async () => {
    runs += 1;
    if (runs === 1) throw new Error("once");
    return swept;
  };
  sweep.start();
  await clock.advance(SWEEP_INTERVAL_MS - 1);
  expect(runs).toBe(0);
  await clock.advance(1);
  expect(runs).toBe(1);
  await clock.advance(3 * SWEEP_INTERVAL_MS);
  expect(runs).toBe(4);
  await sweep.stop();
});

test("Sweep never runs two at once, and its stop waits for the one that runs", async () => {
  const { clock, sessions, sweep, swept } = bench();
  let runs = 0;
  const slow = Promise.withResolvers<typeof swept>();
  sessions.sweep = () => {
    runs += 1;
    return slow.promise;
  };
  sweep.start();
  await clock.advance(10 * SWEEP_INTERVAL_MS);
  expect(runs).toBe(1);
  let stopped = false;
  const stop = sweep.stop().then(() => (stopped = true));
  await clock.advance(1);
  expect(stopped).toBe(false);
  slow.resolve(swept);
  await stop;
  await clock.advance(10 * SWEEP_INTERVAL_MS);
  expect(runs).toBe(1);
  expect(clock.waiting).toBe(0);
});

test("Sweep comes more often where sessions are to be unloaded soon, but never more than once a second", async () => {
  for (const [unloadSeconds, intervalMs] of [
    [10, 5000],
    [1, 1000],
    [0, 1000],
  ] as const) {
    const { clock, sessions, sweep, swept } = bench(unloadSeconds);
    let runs = 0;
    sessions.sweep = async () => {
      runs += 1;
      return swept;
    };
    sweep.start();
    await clock.advance(intervalMs - 1);
    expect(runs).toBe(0);
    await clock.advance(1);
    expect(runs).toBe(1);
    await sweep.stop();
  }
});

test("Sweep collects once after each busy time, and never while a turn is active", async () => {
  const { clock, sessions, sweep, collected } = bench();
  sweep.start();
  await clock.advance(SWEEP_INTERVAL_MS);
  expect(collected()).toBe(0);
  sessions.activity = 5;
  sessions.busy = true;
  await clock.advance(SWEEP_INTERVAL_MS);
  expect(collected()).toBe(0);
  sessions.busy = false;
  await clock.advance(3 * SWEEP_INTERVAL_MS);
  expect(collected()).toBe(1);
  sessions.activity = 6;
  await clock.advance(SWEEP_INTERVAL_MS);
  expect(collected()).toBe(2);
  await sweep.stop();
});
