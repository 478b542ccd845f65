import { spawnHelper } from "./support/child.ts";
import { type Daemon, makeHome, startDaemon } from "./support/daemon.ts";
import { Connection, drive } from "./support/http_client.ts";
import { createEmpty, fillLarge, RECEIPTS, SESSIONS } from "./support/large_store.ts";
import { temporaryDirectory } from "./support/paths.ts";
import { creationBody } from "./support/prompting.ts";
import { Report } from "./support/report.ts";
import { median } from "./support/stats.ts";

/**
 * What a million receipts and ten thousand sessions cost: the start, admission and the list of sessions, beside an
 * empty store in the same run, in turns.
 */
const STARTS = 7;
const ROUNDS = 5;
const CREATIONS = 3000;
const CREATIONS_ALONE = 400;
const LISTS = 200;

interface Homes {
  readonly empty: string;
  readonly large: string;
}

const workspace = temporaryDirectory();

async function main(): Promise<void> {
  const report = new Report("store_size", `${RECEIPTS} receipts and ${SESSIONS} sessions`);
  const model = await spawnHelper("model_server.ts");
  const homes: Homes = { empty: makeHome(model.port), large: makeHome(model.port) };
  createEmpty(homes.empty);
  fillLarge(homes.large);
  await starts(report, homes);
  const empty = await startDaemon({ home: homes.empty });
  const large = await startDaemon({ home: homes.large });
  await admissions(report, empty, large);
  await lists(report, empty, large);
  report.finish();
}

async function starts(report: Report, homes: Homes): Promise<void> {
  const ratios: number[] = [];
  const times: Record<keyof Homes, number[]> = { empty: [], large: [] };
  for (let number = 0; number <= STARTS; number += 1) {
    const round: Record<keyof Homes, number> = { empty: 0, large: 0 };
    for (const name of number % 2 === 0
      ? (["empty", "large"] as const)
      : (["large", "empty"] as const)) {
      const daemon = await startDaemon({ home: homes[name] });
      round[name] = daemon.readyMs;
      await daemon.stop();
    }
    // The first start of each warms the page cache.
    if (number === 0) continue;
    times.empty.push(round.empty);
    times.large.push(round.large);
    ratios.push(round.large / round.empty);
  }
  report.figure("start to first answer, times an empty store", median(ratios), {
    atMost: 1.5,
    basis: `${median(times.large).toFixed(1)} ms to ${median(times.empty).toFixed(1)} ms`,
  });
}

async function admissions(report: Report, empty: Daemon, large: Daemon): Promise<void> {
  for (const [connections, count] of [
    [64, CREATIONS],
    [1, CREATIONS_ALONE],
  ] as const) {
    const rates: { empty: number; large: number }[] = [];
    for (let number = 0; number <= ROUNDS; number += 1) {
      const order = number % 2 === 0 ? [empty, large] : [large, empty];
      const round = { empty: 0, large: 0 };
      for (const daemon of order) {
        const requests = Array.from({ length: count }, () =>
          daemon.encode({ method: "POST", path: "/sessions", body: creationBody(workspace) }),
        );
        const load = await drive({ port: daemon.port, connections, requests, status: 201 });
        round[daemon === empty ? "empty" : "large"] = load.perSecond;
      }
      if (number > 0) rates.push(round);
    }
    report.figure(
      `admission at ${connections}, times the time of an empty store`,
      median(rates.map((rate) => rate.empty / rate.large)),
      {
        atMost: 1.25,
        basis: `${median(rates.map((rate) => rate.large)).toFixed(0)}/s to ${median(
          rates.map((rate) => rate.empty),
        ).toFixed(0)}/s`,
      },
    );
  }
}

async function lists(report: Report, empty: Daemon, large: Daemon): Promise<void> {
  const paths = { "the default page": "/sessions", "a page of 200": "/sessions?limit=200" };
  for (const [name, path] of Object.entries(paths)) {
    const small = await listMs(empty, path);
    report.figure(`list of sessions, ${name}: median`, await listMs(large, path), {
      unit: "ms",
      ...(path === "/sessions" ? { atMost: 10 } : {}),
      basis: `${small.toFixed(2)} ms with the other store`,
    });
  }
}

async function listMs(daemon: Daemon, path: string): Promise<number> {
  const connection = await Connection.open(daemon.port);
  const request = daemon.encode({ method: "GET", path });
  const times: number[] = [];
  for (let number = 0; number < LISTS; number += 1) {
    const before = performance.now();
    const answer = await connection.send(request);
    times.push(performance.now() - before);
    if (answer.status !== 200) throw new Error(`The list answered ${answer.status}`);
  }
  connection.close();
  return median(times);
}

await main();
