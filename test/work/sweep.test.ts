import { expect, test } from "bun:test";
import { SWEEP_INTERVAL_MS } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { Sweep } from "../../src/work/sweep.ts";
import { FakeClock } from "../support/fake_clock.ts";

/** Goal: sweeps come once a minute, one at a time, whatever becomes of one. Method: a clock that a test moves. */
test("Sweep runs once an interval and goes on after a failure", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const sweep = new Sweep({
    clock,
    log: silentLog,
    sweep: async () => {
      runs += 1;
      if (runs === 1) throw new Error("once");
    },
  });
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
  const clock = new FakeClock();
  let runs = 0;
  const slow = Promise.withResolvers<void>();
  const sweep = new Sweep({
    clock,
    log: silentLog,
    sweep: () => {
      runs += 1;
      return slow.promise;
    },
  });
  sweep.start();
  await clock.advance(10 * SWEEP_INTERVAL_MS);
  expect(runs).toBe(1);
  let stopped = false;
  const stop = sweep.stop().then(() => (stopped = true));
  await clock.advance(1);
  expect(stopped).toBe(false);
  slow.resolve();
  await stop;
  await clock.advance(10 * SWEEP_INTERVAL_MS);
  expect(runs).toBe(1);
  expect(clock.waiting).toBe(0);
});
