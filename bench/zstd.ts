import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { EventStream } from "./support/event_stream.ts";
import { promptFor } from "./support/model_plan.ts";
import { rssMb } from "./support/proc.ts";
import { createSession, sendMessage } from "./support/prompting.ts";
import { Report } from "./support/report.ts";

/**
 * What zstd saves on a stream as a reader sees it: a reset with the turns before, then an answer of prose and code
 * word by word; and the memory that one more reader takes, coded and plain.
 */
const TURNS = 3;
const DELTAS = 600;
const EVERY_MS = 8;
const READERS = 200;
const SETTLE_MS = 1500;

type Coding = "identity" | "zstd";

async function main(): Promise<void> {
  const report = new Report("zstd", "bytes and memory of a coded stream");
  const model = await spawnHelper("model_server.ts");
  const daemon = await startDaemon({ modelPort: model.port });
  const sessionId = await createSession(daemon);
  await transcript(report, daemon, sessionId);
  // The first readers also grow what every reader shares.
  await memoryOf(daemon, sessionId, "identity");
  await memoryOf(daemon, sessionId, "zstd");
  const plain = await memoryOf(daemon, sessionId, "identity");
  const coded = await memoryOf(daemon, sessionId, "zstd");
  report.figure("memory of a coded reader", coded, {
    unit: "MiB",
    digits: 3,
    atMost: 0.25,
    basis: `${plain.toFixed(3)} MiB for a plain one`,
  });
  report.finish();
}

async function transcript(report: Report, daemon: Daemon, sessionId: string): Promise<void> {
  let plain = 0;
  let coded = 0;
  for (let turn = 0; turn < TURNS; turn += 1) {
    const [identity, zstd] = await Promise.all([
      open(daemon, sessionId, "identity"),
      open(daemon, sessionId, "zstd"),
    ]);
    const finished = Promise.all([
      identity.untilEvent("turn_finished"),
      zstd.untilEvent("turn_finished"),
    ]);
    await sendMessage(
      daemon,
      sessionId,
      `Explain this module. ${promptFor({ deltas: DELTAS, everyMs: EVERY_MS, prose: true })}`,
    );
    await finished;
    plain += identity.bytes;
    coded += zstd.bytes;
    identity.close();
    zstd.close();
  }
  report.figure("times fewer bytes than identity", plain / coded, {
    atLeast: 4,
    basis: `${(plain / 1000).toFixed(0)} kB to ${(coded / 1000).toFixed(0)} kB in ${TURNS} turns`,
  });
}

function open(daemon: Daemon, sessionId: string, coding: Coding): Promise<EventStream> {
  const { port, token } = daemon;
  return EventStream.open({ port, token, sessionId, coding, onBatch: () => undefined });
}

/** What a reader takes after a turn was streamed to it, in MiB. */
async function memoryOf(daemon: Daemon, sessionId: string, coding: Coding): Promise<number> {
  await Bun.sleep(SETTLE_MS);
  const before = rssMb(daemon.pid);
  const streams = await Promise.all(
    Array.from({ length: READERS }, () => open(daemon, sessionId, coding)),
  );
  const finished = Promise.all(streams.map((stream) => stream.untilEvent("turn_finished")));
  await sendMessage(daemon, sessionId, promptFor({ deltas: 100, everyMs: EVERY_MS, prose: true }));
  await finished;
  await Bun.sleep(SETTLE_MS);
  const after = rssMb(daemon.pid);
  for (const stream of streams) stream.close();
  return ((after - before) * 1e6) / READERS / 2 ** 20;
}

await main();
