import { join } from "node:path";
import { spawnChild } from "./support/child.ts";
import { compiledDaemon } from "./support/executable.ts";
import { type Flavour, firstAnswer, freePort, makeHome, startDaemon } from "./support/daemon.ts";
import { temporaryDirectory } from "./support/paths.ts";
import { rssMb } from "./support/proc.ts";
import { Report } from "./support/report.ts";
import { median } from "./support/stats.ts";

/**
 * From the start of the process to its first HTTP answer, and the memory then, beside a bare `Bun.serve` with
 * `bun:sqlite` in the same run, in turns. The home is one that was used before; the files are in the page cache.
 */
const ROUNDS = 9;
/** Time for what a start leaves to be done afterwards. */
const SETTLE_MS = 500;

interface Start {
  readonly readyMs: number;
  readonly rssMb: number;
}

const FLAVOURS: readonly Flavour[] = ["compiled", "script"];
const WORDS: Record<Flavour, string> = {
  compiled: "the executable",
  script: "bun run daemon",
  source: "from source",
};

async function main(): Promise<void> {
  const report = new Report("start", "ready and resident memory");
  await compiledDaemon();
  const homes = new Map(FLAVOURS.map((flavour) => [flavour, makeHome(undefined)]));
  const starts = new Map<Flavour | "floor", Start[]>();
  for (let round = 0; round <= ROUNDS; round += 1) {
    const floor = await startFloor();
    const daemons: [Flavour, Start][] = [];
    for (const flavour of FLAVOURS) {
      daemons.push([flavour, await startOne(flavour, homes.get(flavour) ?? "")]);
    }
    // The first round warms the page cache, and the script compiles where it has to.
    if (round === 0) continue;
    for (const [name, start] of [["floor", floor] as const, ...daemons]) {
      starts.set(name, [...(starts.get(name) ?? []), start]);
    }
  }
  tell(report, starts);
  report.finish();
}

function tell(report: Report, starts: ReadonlyMap<Flavour | "floor", readonly Start[]>): void {
  const ready = (name: Flavour | "floor"): number =>
    median((starts.get(name) ?? []).map((start) => start.readyMs));
  const memory = (name: Flavour | "floor"): number =>
    median((starts.get(name) ?? []).map((start) => start.rssMb));
  report.figure("the floor: ready", ready("floor"), { unit: "ms", digits: 1 });
  report.figure("the floor: memory", memory("floor"), { unit: "MB", digits: 1 });
  for (const flavour of FLAVOURS) {
    report.figure(`${WORDS[flavour]}: ready, times the floor`, ready(flavour) / ready("floor"), {
      atMost: 3,
      basis: `${ready(flavour).toFixed(1)} ms to ${ready("floor").toFixed(1)} ms`,
    });
    report.figure(`${WORDS[flavour]}: memory at start`, memory(flavour), {
      unit: "MB",
      digits: 1,
      atMost: 70,
    });
  }
  report.figure("the executable: ready warm", ready("compiled"), {
    unit: "ms",
    digits: 1,
    atMost: 100,
  });
}

async function startOne(flavour: Flavour, home: string): Promise<Start> {
  const daemon = await startDaemon({ flavour, home });
  await Bun.sleep(SETTLE_MS);
  const start = { readyMs: daemon.readyMs, rssMb: rssMb(daemon.pid) };
  await daemon.stop();
  return start;
}

const floorHome = temporaryDirectory();

async function startFloor(): Promise<Start> {
  const port = await freePort();
  const script = join(import.meta.dir, "support", "floor_server.ts");
  const began = performance.now();
  const child = spawnChild([process.execPath, script, String(port), floorHome]);
  await firstAnswer(port, child);
  const readyMs = performance.now() - began;
  await Bun.sleep(SETTLE_MS);
  const start = { readyMs, rssMb: rssMb(child.pid) };
  child.signal("SIGTERM");
  await child.exited;
  return start;
}

await main();
