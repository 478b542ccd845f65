import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { EventStream } from "./support/event_stream.ts";
import { promptFor } from "./support/model_plan.ts";
import { descriptors, rssMb } from "./support/proc.ts";
import { createSession, sendMessage, turnEnded } from "./support/prompting.ts";
import { Report } from "./support/report.ts";
import { median } from "./support/stats.ts";

/** Many readers of one session, and readers that take nothing while much is streamed. */
const READERS = 1000;
const DELTAS = 100;
const STALLED = 40;
const ROUNDS = 3;
const LARGE_DELTAS = 2048;
const LARGE_DELTA_BYTES = 4096;

async function main(): Promise<void> {
  const report = new Report("readers", `${READERS} readers, and ${STALLED} stalled ones`);
  const model = await spawnHelper("model_server.ts");
  await stalled(report, model.port);
  await many(report, await startDaemon({ modelPort: model.port }));
  report.finish();
}

async function many(report: Report, daemon: Daemon): Promise<void> {
  const sessionId = await createSession(daemon);
  // The first turn opens the connection to the model, which stays.
  const first = await sendMessage(daemon, sessionId, "Say something short.");
  await turnEnded(daemon, sessionId, first);
  const before = { rss: rssMb(daemon.pid), descriptors: descriptors(daemon.pid) };
  const readers = Array.from({ length: READERS }, () => ({ text: 0, resets: 0 }));
  const streams: EventStream[] = [];
  const began = performance.now();
  for (const [number, reader] of readers.entries()) {
    streams.push(
      await EventStream.open({
        port: daemon.port,
        token: daemon.token,
        sessionId,
        coding: number % 2 === 0 ? "identity" : "zstd",
        onBatch: (batch) => {
          for (const event of batch.events) {
            if (event.kind === "reset") reader.resets += 1;
            if (event.kind === "text_delta") reader.text += event.text?.length ?? 0;
          }
        },
      }),
    );
  }
  const openedMs = performance.now() - began;
  const finished = Promise.all(streams.map((stream) => stream.untilEvent("turn_finished")));
  await sendMessage(daemon, sessionId, promptFor({ deltas: DELTAS, everyMs: 20, bytes: 24 }));
  const turnBegan = performance.now();
  await Promise.race([finished, Bun.sleep(30_000)]);
  const turnMs = performance.now() - turnBegan;
  const incomplete = readers.filter(
    (reader) => reader.text !== DELTAS * 24 || reader.resets !== 1,
  ).length;
  const during = rssMb(daemon.pid);
  for (const stream of streams) stream.close();
  report.figure(`of ${READERS} readers those without the whole answer`, incomplete, {
    atMost: 0,
    digits: 0,
    basis:
      `opened in ${openedMs.toFixed(0)} ms; a turn of ${DELTAS * 20} ms took ${turnMs.toFixed(0)} ms; ` +
      `${(during - before.rss).toFixed(0)} MB more`,
  });
  const until = performance.now() + 5000;
  while (performance.now() < until && descriptors(daemon.pid) > before.descriptors) {
    await Bun.sleep(50);
  }
  report.figure(
    "descriptors they leave behind",
    Math.max(0, descriptors(daemon.pid) - before.descriptors),
    { atMost: 0, digits: 0 },
  );
}

/** With stalled readers and without, each time in a daemon of its own: what a stream leaves to be collected stays. */
async function stalled(report: Report, modelPort: number): Promise<void> {
  const costs: Record<"with" | "without", Cost[]> = { with: [], without: [] };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const kind of ["with", "without"] as const) {
      const daemon = await startDaemon({ modelPort });
      const sessionId = await createSession(daemon);
      // What any session's first turn loads does not count against the stalled readers.
      const first = await sendMessage(daemon, sessionId, "Say something short.");
      await turnEnded(daemon, sessionId, first);
      costs[kind].push(await streamLarge(daemon, sessionId, kind === "with" ? STALLED : 0));
      await daemon.stop();
    }
  }
  const more = (kind: "with" | "without"): number =>
    median(costs[kind].map((cost) => cost.moreMib));
  const received = Math.min(...costs.with.map((cost) => cost.received)) / 2 ** 20;
  const seconds = median(costs.with.map((cost) => cost.ms)) / 1000;
  report.figure(`${STALLED} stalled readers while 8 MiB are streamed: memory`, more("with"), {
    unit: "MiB",
    digits: 1,
    atMost: 100,
    basis:
      `${more("without").toFixed(1)} MiB without them; a reader that keeps up had ` +
      `${received.toFixed(1)} MiB in ${seconds.toFixed(1)} s`,
  });
}

interface Cost {
  /** The most that the memory grew. */
  readonly moreMib: number;
  readonly received: number;
  readonly ms: number;
}

async function streamLarge(daemon: Daemon, sessionId: string, count: number): Promise<Cost> {
  const options = { port: daemon.port, token: daemon.token, sessionId };
  const before = rssMb(daemon.pid);
  const sleepers = await Promise.all(
    Array.from({ length: count }, (_, number) =>
      EventStream.open({
        ...options,
        coding: number % 2 === 0 ? "identity" : "zstd",
        stalled: true,
      }),
    ),
  );
  let received = 0;
  const reader = await EventStream.open({
    ...options,
    onBatch: (batch) => {
      for (const event of batch.events) {
        if (event.kind === "text_delta") received += event.text?.length ?? 0;
      }
    },
  });
  let most = before;
  const watch = setInterval(() => {
    most = Math.max(most, rssMb(daemon.pid));
  }, 20);
  const began = performance.now();
  const id = await sendMessage(
    daemon,
    sessionId,
    promptFor({ deltas: LARGE_DELTAS, bytes: LARGE_DELTA_BYTES }),
  );
  await turnEnded(daemon, sessionId, id);
  const ms = performance.now() - began;
  await Bun.sleep(500);
  clearInterval(watch);
  for (const sleeper of sleepers) sleeper.close();
  reader.close();
  return { moreMib: ((most - before) * 1e6) / 2 ** 20, received, ms };
}

await main();
