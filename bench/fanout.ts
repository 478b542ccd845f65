import { type Child, spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { ChunkedBody, EventStream, preciseNow } from "./support/event_stream.ts";
import { encodeRequest } from "./support/http_client.ts";
import { promptFor, stampsIn } from "./support/model_plan.ts";
import { cpuSeconds } from "./support/proc.ts";
import { createSession, sendMessage } from "./support/prompting.ts";
import { Report } from "./support/report.ts";
import { median, quantile } from "./support/stats.ts";

/**
 * 200 readers of one session at 100 deltas a second: that none falls behind, and what a delivered frame costs beside
 * writing frames of the same sizes at the same times to as many readers from a bare `Bun.serve`.
 */
const READERS = 200;
const DELTAS = 500;
const EVERY_MS = 10;
const ROUNDS = 2;
/** A frame, and what a busy machine may add to it. */
const BEHIND_MS = 250;
/** Decoding for every reader would keep this process busier than the daemon; so many of them do. */
const DECODING = 20;

interface Delivered {
  readonly cpuPerFrameUs: number;
  readonly frames: number;
}

interface DaemonRun extends Delivered {
  /** When and how large the frames were, as one reader saw them. */
  readonly schedule: readonly (readonly [number, number])[];
  readonly behind: number;
  readonly delaysMs: readonly number[];
}

async function main(): Promise<void> {
  const report = new Report("fanout", `${READERS} readers, ${1000 / EVERY_MS} deltas a second`);
  const model = await spawnHelper("model_server.ts");
  const daemon = await startDaemon({ modelPort: model.port });
  const bare = await spawnHelper("fanout_server.ts");
  const sessionId = await createSession(daemon);
  for (const coding of ["identity", "zstd"] as const) {
    const ratios: number[] = [];
    const runs: DaemonRun[] = [];
    const floors: Delivered[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const ours = await throughDaemon(daemon, sessionId, coding);
      const floor = await throughBare(bare.port, bare.child, ours.schedule);
      ratios.push(ours.cpuPerFrameUs / floor.cpuPerFrameUs);
      runs.push(ours);
      floors.push(floor);
    }
    const cpu = (list: readonly Delivered[]): string =>
      `${median(list.map((run) => run.cpuPerFrameUs)).toFixed(1)} us`;
    const delays = runs.flatMap((run) => run.delaysMs);
    report.figure(`${coding}: CPU a delivered frame, times a bare server`, median(ratios), {
      ...(coding === "identity" ? { atMost: 3 } : {}),
      basis: `${cpu(runs)} to ${cpu(floors)}, ${runs[0]?.frames ?? 0} frames`,
    });
    report.figure(
      `${coding}: readers that fell behind`,
      Math.max(...runs.map((run) => run.behind)),
      {
        atMost: 0,
        digits: 0,
        basis:
          `a delta took ${median(delays).toFixed(1)} ms at the median, ` +
          `99 of 100 within ${quantile(delays, 0.99).toFixed(1)} ms`,
      },
    );
  }
  report.finish();
}

async function throughDaemon(
  daemon: Daemon,
  sessionId: string,
  coding: "identity" | "zstd",
): Promise<DaemonRun> {
  const schedule: [number, number][] = [];
  const delaysMs: number[] = [];
  const readers = Array.from({ length: READERS }, () => ({ deltas: 0, resets: 0, worstMs: 0 }));
  let startedAt = 0;
  const streams = await Promise.all(
    readers.map((reader, number) =>
      EventStream.open({
        port: daemon.port,
        token: daemon.token,
        sessionId,
        coding,
        onBatch: (batch) => {
          if (number === 0 && startedAt > 0) {
            const size = JSON.stringify(batch).length;
            schedule.push([batch.at - startedAt, size + 60]);
          }
          for (const event of batch.events) {
            if (event.kind === "reset") reader.resets += 1;
            if (event.kind !== "text_delta") continue;
            for (const stamp of stampsIn(event.text ?? "")) {
              reader.deltas += 1;
              const delayMs = batch.at - stamp;
              if (number % 20 === 0) delaysMs.push(delayMs);
              reader.worstMs = Math.max(reader.worstMs, delayMs);
            }
          }
        },
      }),
    ),
  );
  await Bun.sleep(500);
  const framesBefore = sum(streams.map((stream) => stream.frames));
  const cpuBefore = cpuSeconds(daemon.pid);
  startedAt = preciseNow();
  const decoding = coding === "zstd" ? streams.slice(0, DECODING) : streams;
  const finished = Promise.all(decoding.map((stream) => stream.untilEvent("turn_finished")));
  await sendMessage(daemon, sessionId, promptFor({ deltas: DELTAS, everyMs: EVERY_MS, bytes: 24 }));
  await finished;
  const cpu = cpuSeconds(daemon.pid) - cpuBefore;
  const frames = sum(streams.map((stream) => stream.frames)) - framesBefore;
  for (const stream of streams) stream.close();
  const behind = readers
    .slice(0, decoding.length)
    .filter(
      (reader) => reader.deltas !== DELTAS || reader.resets !== 1 || reader.worstMs > BEHIND_MS,
    ).length;
  return { cpuPerFrameUs: (cpu / frames) * 1e6, frames, schedule, behind, delaysMs };
}

async function throughBare(
  port: number,
  child: Child,
  schedule: readonly (readonly [number, number])[],
): Promise<Delivered> {
  const ends: Promise<void>[] = [];
  const opened: Promise<void>[] = [];
  let frames = 0;
  for (let number = 0; number < READERS; number += 1) {
    const open = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    opened.push(open.promise);
    ends.push(end.promise);
    const chunked = new ChunkedBody();
    let headless = false;
    await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open: (socket) => {
          socket.write(encodeRequest({ method: "GET", path: "/", port }));
        },
        data: (socket, data) => {
          let bytes = data;
          if (!headless) {
            const head = data.indexOf("\r\n\r\n");
            if (head === -1) return;
            headless = true;
            open.resolve();
            bytes = data.subarray(head + 4);
          }
          chunked.feed(bytes, (part) => {
            if (part.at(-1) === 10) frames += 1;
          });
          if (!chunked.ended) return;
          end.resolve();
          socket.terminate();
        },
      },
    });
  }
  await Promise.all(opened);
  await Bun.sleep(300);
  frames = 0;
  const before = cpuSeconds(child.pid);
  await fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: JSON.stringify(schedule) });
  await Promise.all(ends);
  const cpu = cpuSeconds(child.pid) - before;
  return { cpuPerFrameUs: (cpu / frames) * 1e6, frames };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

await main();
