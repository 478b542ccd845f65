import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** Owns where a bench puts things: nothing of it lies in the repository, and all but the caches goes at the end. */
export const ROOT = resolve(import.meta.dir, "..", "..");

/** What is dear to make and the same for every run of one commit. */
export function cacheDirectory(): string {
  const directory = join(tmpdir(), "albedo-bench-cache");
  mkdirSync(directory, { recursive: true });
  return directory;
}

const made: string[] = [];

/** A new directory that is removed when the process ends. It should lie on a disk: a sync to memory is free. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "albedo-bench-"));
  made.push(directory);
  return directory;
}

const endings: (() => void)[] = [];

/** Runs when the process ends, also by a signal; what was asked for last comes first. */
export function atEnd(run: () => void): void {
  endings.push(run);
}

process.on("exit", () => {
  for (const run of endings.toReversed()) run();
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(130));

atEnd(() => {
  for (const directory of made) rmSync(directory, { recursive: true, force: true });
});
