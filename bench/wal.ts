import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { spawnHelper } from "./support/child.ts";
import { compiledDaemon } from "./support/executable.ts";
import { type Daemon, makeHome, startDaemon } from "./support/daemon.ts";
import { drive } from "./support/http_client.ts";
import { fillWithWal, WAL_BYTES } from "./support/large_store.ts";
import { creationBody } from "./support/prompting.ts";
import { Report } from "./support/report.ts";
import { median } from "./support/stats.ts";

/**
 * The start over a write-ahead log of 500 MB that a kill left behind, and the admissions of the first seconds after
 * it, while the log is brought in. The files are in the page cache.
 */
const ROUNDS = 3;
const ADMITTING_MS = 4000;

async function main(): Promise<void> {
  const report = new Report("wal", `a log of ${WAL_BYTES / 1e6} MB left by a kill`);
  const model = await spawnHelper("model_server.ts");
  await compiledDaemon();
  const ready: number[] = [];
  const slowest: number[] = [];
  const medians: number[] = [];
  let left = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const home = makeHome(model.port);
    fillWithWal(home);
    const daemon = await startDaemon({ home });
    ready.push(daemon.readyMs);
    const latencies = await admit(daemon);
    slowest.push(Math.max(...latencies));
    medians.push(median(latencies));
    await daemon.stop();
    left = Math.max(
      left,
      statSync(join(home, "albedo.db-wal"), { throwIfNoEntry: false })?.size ?? 0,
    );
    rmSync(home, { recursive: true });
  }
  report.figure("start to first answer", median(ready), {
    unit: "ms",
    digits: 0,
    atMost: 1000,
    basis: `at worst ${Math.max(...ready).toFixed(0)} ms`,
  });
  report.figure("admissions of the first seconds: median", median(medians), { unit: "ms" });
  report.figure("admissions of the first seconds: slowest", median(slowest), {
    unit: "ms",
    digits: 0,
    basis: `at worst ${Math.max(...slowest).toFixed(0)} ms`,
  });
  report.figure("log left after the stop", left / 1e6, { unit: "MB", digits: 1 });
  report.finish();
}

async function admit(daemon: Daemon): Promise<number[]> {
  const until = performance.now() + ADMITTING_MS;
  const latencies: number[] = [];
  while (performance.now() < until) {
    const requests = Array.from({ length: 50 }, () =>
      daemon.encode({ method: "POST", path: "/sessions", body: creationBody(daemon.workspace) }),
    );
    const load = await drive({ port: daemon.port, connections: 1, requests, status: 201 });
    latencies.push(...load.latenciesMs);
    await Bun.sleep(20);
  }
  return latencies;
}

await main();
