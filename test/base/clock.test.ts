import { describe, expect, test } from "bun:test";
import { sleep, systemClock } from "../../src/base/clock.ts";
import { FAKE_EPOCH_MS, FakeClock, settle } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";

// Goal: the one source of time and its double behave alike, so that what is tested with the double holds.

describe("sleep()", () => {
  test("resolves when the time has come and leaves nothing behind", async () => {
    const clock = new FakeClock();
    const abort = new AbortController();
    let woke = false;
    const slept = sleep(clock, 100, abort.signal).then(() => (woke = true));
    await clock.advance(99);
    expect(woke).toBe(false);
    await clock.advance(1);
    await slept;
    expect(clock.waiting).toBe(0);
    abort.abort("late");
    await settle();
  });

  test("rejects with the signal's reason at once, before and while it sleeps", async () => {
    const clock = new FakeClock();
    const abort = new AbortController();
    const slept = sleep(clock, 100, abort.signal);
    abort.abort("stop");
    expect(await slept.catch((reason: unknown) => reason)).toBe("stop");
    expect(clock.waiting).toBe(0);
    expect(await sleep(clock, 100, abort.signal).catch((reason: unknown) => reason)).toBe("stop");
  });
});

describe("FakeClock", () => {
  test("fires in due order with the clock at each due time, also what a timer sets on its way", async () => {
    const clock = new FakeClock();
    const fired: [string, number][] = [];
    const note = (name: string): void => void fired.push([name, clock.now() - FAKE_EPOCH_MS]);
    clock.timer(30, () => note("c"));
    clock.timer(10, () => {
      note("a");
      clock.timer(10, () => note("b"));
    });
    clock.timer(10, () => note("a2"));
    clock.timer(20, () => note("never")).cancel();
    await clock.advance(30);
    expect(fired).toEqual([
      ["a", 10],
      ["a2", 10],
      ["b", 20],
      ["c", 30],
    ]);
    expect(clock.monotonic()).toBe(30);
  });

  test("setWall() moves what people read and not what time has passed", async () => {
    const clock = new FakeClock();
    let fired = false;
    clock.timer(10, () => (fired = true));
    clock.setWall(0);
    await clock.advance(9);
    expect(clock.now()).toBe(9);
    expect(fired).toBe(false);
    await clock.advance(1);
    expect(fired).toBe(true);
  });
});

describe("systemClock", () => {
  test("fires once, may be cancelled, and never goes back", async () => {
    const before = systemClock.monotonic();
    let count = 0;
    systemClock.timer(0, () => (count += 1));
    systemClock.timer(0, () => (count += 100)).cancel();
    await until("the timer", () => count > 0);
    await settle();
    expect(count).toBe(1);
    expect(systemClock.monotonic()).toBeGreaterThanOrEqual(before);
    expect(Math.abs(systemClock.now() - Date.now())).toBeLessThan(60_000);
  });

  test("never fires before its time, as the runtime's own timers do", async () => {
    const early: number[] = [];
    const rings = Array.from({ length: 200 }, (_, index) => {
      const delayMs = (index * 0.157) % 20;
      const dueAt = systemClock.monotonic() + delayMs;
      return sleep(systemClock, delayMs).then(() => {
        const leftMs = dueAt - systemClock.monotonic();
        if (leftMs > 0) early.push(leftMs);
      });
    });
    await Promise.all(rings);
    expect(early).toEqual([]);
  });

  test("may be cancelled after it was put off", async () => {
    let count = 0;
    const timers = Array.from({ length: 50 }, (_, index) =>
      systemClock.timer(1 + index * 0.1, () => (count += 1)),
    );
    await sleep(systemClock, 1);
    for (const timer of timers) timer.cancel();
    const fired = count;
    await sleep(systemClock, 20);
    expect(count).toBe(fired);
  });

  test("does not keep a process alive", async () => {
    const module = new URL("../../src/base/clock.ts", import.meta.url).pathname;
    const child = Bun.spawn(
      [
        process.execPath,
        "-e",
        `import { systemClock } from ${JSON.stringify(module)}; systemClock.timer(600_000, () => {});`,
      ],
      { stdout: "ignore", stderr: "ignore" },
    );
    expect(await child.exited).toBe(0);
  });
});
