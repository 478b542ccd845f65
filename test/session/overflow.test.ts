import { afterEach, expect, test } from "bun:test";
import { existsSync, readdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { silentLog } from "../../src/base/log.ts";
import { Overflow } from "../../src/session/overflow.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { type TempDir, tempDir } from "../support/temp_dir.ts";

/** Goal: what tools leave is bounded in age and size. Method: real files with times that the test sets. */
const DAY_MS = 24 * 3_600_000;
const directories: TempDir[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) directory[Symbol.dispose]();
});

function bench(bytesMax?: number) {
  const directory = tempDir();
  directories.push(directory);
  const home = directory.path;
  const clock = new FakeClock();
  const overflow = new Overflow({
    home,
    clock,
    log: silentLog,
    ...(bytesMax === undefined ? {} : { bytesMax }),
  });
  const put = async (session: string, name: string, ageMs: number, bytes = 1): Promise<string> => {
    const path = join(await overflow.directory(session), name);
    writeFileSync(path, "x".repeat(bytes));
    const at = (clock.now() - ageMs) / 1000;
    utimesSync(path, at, at);
    return path;
  };
  return { home, clock, overflow, put };
}

test("Overflow gives each session a private folder, and removes it with the session", async () => {
  const { overflow, put } = bench();
  const path = await put("s", "a", 0);
  expect(statSync(join(path, "..")).mode & 0o777).toBe(0o700);
  await put("t", "b", 0);
  await overflow.remove("s");
  expect(existsSync(path)).toBe(false);
  expect(existsSync(join(path, "..", "..", "t", "b"))).toBe(true);
  await overflow.remove("never");
});

test("Overflow.sweep() removes what is older than 7 days, and folders that are empty then", async () => {
  const { home, overflow, put } = bench();
  await put("s", "old", 7 * DAY_MS + 1000);
  const young = await put("t", "young", 7 * DAY_MS - 1000);
  expect(await overflow.sweep()).toBe(1);
  expect(existsSync(young)).toBe(true);
  expect(readdirSync(join(home, "tool-output"))).toEqual(["t"]);
});

test("Overflow.sweep() removes the oldest when there is too much", async () => {
  const { overflow, put } = bench(100);
  const paths = [
    await put("s", "oldest", 3000, 60),
    await put("t", "older", 2000, 60),
    await put("s", "newest", 1000, 40),
  ];
  expect(await overflow.sweep()).toBe(1);
  expect(paths.map((path) => existsSync(path))).toEqual([false, true, true]);
});

test("Overflow.sweep() walks the folder at most once an hour, and does without one", async () => {
  const { clock, overflow, put } = bench();
  expect(await overflow.sweep()).toBe(0);
  await put("s", "old", 8 * DAY_MS);
  await clock.advance(3_599_999);
  expect(await overflow.sweep()).toBe(0);
  await clock.advance(1);
  expect(await overflow.sweep()).toBe(1);
});
