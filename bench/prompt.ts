import { spawnHelper } from "./support/child.ts";
import { type Daemon, type Flavour, startDaemon } from "./support/daemon.ts";
import { EventStream, preciseNow } from "./support/event_stream.ts";
import { Connection } from "./support/http_client.ts";
import { createSession, putMessage, sendMessage, turnEnded } from "./support/prompting.ts";
import { peakRssMb, rssMb } from "./support/proc.ts";
import { Report } from "./support/report.ts";
import { median, quantile } from "./support/stats.ts";

/**
 * What a person feels: the acknowledgement of a prompt, which is on disk then, and its first delta on an open
 * stream, with a local model that answers at once and the session loaded; and the memory after 100 sessions of one
 * turn each.
 */
const WARM_UP = 30;
const PROMPTS = 150;
const SESSIONS = 100;

interface Prompted {
  readonly acknowledgedMs: readonly number[];
  readonly firstDeltaMs: readonly number[];
}

const FLAVOURS: readonly (readonly [Flavour, string])[] = [
  ["compiled", "the executable"],
  ["script", "bun run daemon"],
];

async function main(): Promise<void> {
  const report = new Report("prompt", "acknowledgement, first delta, memory of 100 sessions");
  const model = await spawnHelper("model_server.ts");
  for (const [flavour, words] of FLAVOURS) {
    const daemon = await startDaemon({ flavour, modelPort: model.port });
    await memory(report, daemon, words);
    const { acknowledgedMs, firstDeltaMs } = await prompts(daemon);
    report.figure(`${words}: acknowledgement on disk, median`, median(acknowledgedMs), {
      unit: "ms",
      atMost: 2,
      basis: `9 of 10 within ${quantile(acknowledgedMs, 0.9).toFixed(2)} ms`,
    });
    report.figure(`${words}: prompt sent to first delta, median`, median(firstDeltaMs), {
      unit: "ms",
      atMost: 8,
      basis: `9 of 10 within ${quantile(firstDeltaMs, 0.9).toFixed(2)} ms`,
    });
    await daemon.stop();
  }
  report.finish();
}

async function memory(report: Report, daemon: Daemon, words: string): Promise<void> {
  for (let number = 0; number < SESSIONS; number += 1) {
    const sessionId = await createSession(daemon);
    const id = await sendMessage(daemon, sessionId, "Say something short.");
    const state = await turnEnded(daemon, sessionId, id);
    if (state !== "completed") throw new Error(`A turn ended ${state}`);
  }
  const after = rssMb(daemon.pid);
  await Bun.sleep(2000);
  report.figure(`${words}: memory after ${SESSIONS} sessions of one turn`, after, {
    unit: "MB",
    digits: 1,
    atMost: 130,
    basis: `${rssMb(daemon.pid).toFixed(1)} MB 2 s later, never over ${peakRssMb(daemon.pid).toFixed(1)} MB`,
  });
}

async function prompts(daemon: Daemon): Promise<Prompted> {
  const sessionId = await createSession(daemon);
  const { port, token } = daemon;
  let firstDeltaAt = 0;
  const stream = await EventStream.open({
    port,
    token,
    sessionId,
    onBatch: (batch) => {
      if (firstDeltaAt > 0) return;
      if (batch.events.some((event) => event.kind === "text_delta")) firstDeltaAt = batch.at;
    },
  });
  const connection = await Connection.open(port);
  const acknowledgedMs: number[] = [];
  const firstDeltaMs: number[] = [];
  for (let number = 0; number < WARM_UP + PROMPTS; number += 1) {
    const request = putMessage(daemon, sessionId, "Say something short.");
    const finished = stream.untilEvent("turn_finished");
    firstDeltaAt = 0;
    const sentAt = preciseNow();
    const answer = await connection.send(request);
    const acknowledgedAt = preciseNow();
    if (answer.status !== 202)
      throw new Error(`Answered ${answer.status}: ${answer.body.toString()}`);
    await finished;
    // The session is idle again, and the stream quiet for longer than a frame.
    await Bun.sleep(25);
    if (number < WARM_UP) continue;
    acknowledgedMs.push(acknowledgedAt - sentAt);
    firstDeltaMs.push(firstDeltaAt - sentAt);
  }
  stream.close();
  connection.close();
  return { acknowledgedMs, firstDeltaMs };
}

await main();
