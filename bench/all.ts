import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compiledDaemon } from "./support/executable.ts";
import { temporaryDirectory } from "./support/paths.ts";
import type { Figure } from "./support/report.ts";

/** Runs every bench, one after the other, and prints one table of their figures. */
const BENCHES = [
  "start",
  "prompt",
  "admission",
  "store_size",
  "replay",
  "kill",
  "wal",
  "delta",
  "connections",
  "fanout",
  "zstd",
  "readers",
] as const;

/** A bench is given up after so long. */
const BENCH_MS_MAX = 180_000;

async function main(): Promise<void> {
  const executable = await compiledDaemon();
  const file = join(temporaryDirectory(), "figures");
  writeFileSync(file, "");
  let failed = 0;
  for (const bench of BENCHES) {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, `${bench}.ts`)], {
      env: { ...process.env, BENCH_REPORT: file, BENCH_EXECUTABLE: executable },
      stdout: "inherit",
      stderr: "inherit",
      timeout: BENCH_MS_MAX,
      killSignal: "SIGTERM",
    });
    if ((await child.exited) !== 0) failed += 1;
  }
  table(
    readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Figure),
  );
  process.exit(failed > 0 ? 1 : 0);
}

function table(figures: readonly Figure[]): void {
  console.log("\n| bench | figure | value | target | |\n| --- | --- | ---: | --- | --- |");
  for (const { bench, name, value, target, ok, basis } of figures) {
    const verdict = target === "" ? "" : ok ? "ok" : "MISS";
    const shown = basis === "" ? value : `${value} (${basis})`;
    console.log(`| ${bench} | ${name} | ${shown} | ${target} | ${verdict} |`);
  }
}

await main();
