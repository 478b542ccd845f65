import { expect, test } from "bun:test";
import { Running } from "../../src/session/running.ts";

/** Goal: the rules of sessions.md, "Running observations", one by one. */
test("Running reads as idle without a record", () => {
  expect(new Running().has("s")).toBe(false);
});

test("Running keeps no record of an idle session", () => {
  const running = new Running();
  const owner = { closed: false };
  running.mark("s", owner);
  expect(running.has("s")).toBe(true);
  expect([...running.sessions()]).toEqual(["s"]);
  running.clear("s", owner);
  expect(running.has("s")).toBe(false);
  expect(running.size).toBe(0);
});

test("Running: delayed clean-up cannot remove a replacement's mark", () => {
  const running = new Running();
  const [old, replacement] = [{ closed: false }, { closed: false }];
  running.mark("s", old);
  running.mark("s", replacement);
  running.clear("s", old);
  expect(running.has("s")).toBe(true);
  running.clear("s", replacement);
  expect(running.has("s")).toBe(false);
});

test("Running: a dead owner reads as idle", () => {
  const running = new Running();
  const owner = { closed: false };
  running.mark("s", owner);
  owner.closed = true;
  expect(running.has("s")).toBe(false);
  expect([...running.sessions()]).toEqual([]);
});
