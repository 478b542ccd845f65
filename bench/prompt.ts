import { spawnHelper } from "./support/child.ts";
import { type Daemon, type Flavour, startDaemon } from "./support/daemon.ts";
import { EventStream, preciseNow } from "./support/event_stream.ts";
import { Connection, encodeRequest } from "./support/http_client.ts";
import { stampsIn } from "./support/model_plan.ts";
import { temporaryDirectory } from "./support/paths.ts";
import { createSession, putMessage, sendMessage, turnEnded } from "./support/prompting.ts";
import { peakRssMb, rssMb } from "./support/proc.ts";
import { Report } from "./support/report.ts";
import { median, quantile } from "./support/stats.ts";

/**
 * What a person feels: the acknowledgement of a prompt, which is on disk then, and its first delta on an open
 * stream, with a local model that answers at once and the session loaded; and the memory after 100 sessions of one
 * turn each. Prompts come one right after the other. Then they come with a pause, which makes every program on the
 * way wake up: beside them stands what a bare server takes for one raw commit, and a bare relay for its first delta.
 */
const BLOCK = 25;
const WARM_UP_BLOCKS = 2;
const BLOCKS = 6;
const SESSIONS = 100;

const PAUSE_MS = 25;

interface Servers {
  readonly model: number;
  readonly raw: number;
  readonly relay: number;
}

interface Prompted {
  readonly acknowledgedMs: number[];
  readonly firstDeltaMs: number[];
}

interface Samples {
  readonly straight: Prompted;
  readonly paused: Prompted;
  readonly rawCommitMs: number[];
  readonly relayMs: number[];
}

const FLAVOURS: readonly (readonly [Flavour, string])[] = [
  ["compiled", "the executable"],
  ["script", "bun run daemon"],
];

async function main(): Promise<void> {
  const report = new Report("prompt", "acknowledgement, first delta, memory of 100 sessions");
  const model = (await spawnHelper("model_server.ts")).port;
  const raw = (await spawnHelper("raw_commit_server.ts", [temporaryDirectory()])).port;
  const relay = (await spawnHelper("relay_server.ts", [String(model)])).port;
  for (const [flavour, words] of FLAVOURS) {
    const daemon = await startDaemon({ flavour, modelPort: model });
    await memory(report, daemon, words);
    tell(report, words, await prompts(daemon, { model, raw, relay }));
    await daemon.stop();
  }
  report.finish();
}

function tell(report: Report, words: string, samples: Samples): void {
  const { straight, paused, rawCommitMs, relayMs } = samples;
  const within = (list: readonly number[]): string =>
    `9 of 10 within ${quantile(list, 0.9).toFixed(2)} ms`;
  report.figure(`${words}: acknowledgement on disk, median`, median(straight.acknowledgedMs), {
    unit: "ms",
    atMost: 2,
    basis: within(straight.acknowledgedMs),
  });
  report.figure(`${words}: prompt sent to first delta, median`, median(straight.firstDeltaMs), {
    unit: "ms",
    atMost: 8,
    basis: within(straight.firstDeltaMs),
  });
  report.figure(`${words}: acknowledgement after a pause`, median(paused.acknowledgedMs), {
    unit: "ms",
    basis: `${within(paused.acknowledgedMs)}; a raw commit ${median(rawCommitMs).toFixed(2)} ms`,
  });
  report.figure(`${words}: first delta after a pause`, median(paused.firstDeltaMs), {
    unit: "ms",
    basis: `${within(paused.firstDeltaMs)}; a relay ${median(relayMs).toFixed(2)} ms`,
  });
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

async function prompts(daemon: Daemon, servers: Servers): Promise<Samples> {
  const connection = await Connection.open(servers.raw);
  const samples: Samples = {
    straight: { acknowledgedMs: [], firstDeltaMs: [] },
    paused: { acknowledgedMs: [], firstDeltaMs: [] },
    rawCommitMs: [],
    relayMs: [],
  };
  for (let block = 0; block < BLOCKS; block += 1) {
    // A session of its own for each block: a longer transcript is another measurement.
    const prompter = await Prompter.open(daemon);
    for (const [prompted, pauseMs] of [
      [samples.straight, 0],
      [samples.paused, PAUSE_MS],
    ] as const) {
      for (let number = 0; number < BLOCK; number += 1) {
        await Bun.sleep(pauseMs);
        const { acknowledgedMs, firstDeltaMs } = await prompter.prompt();
        if (block < WARM_UP_BLOCKS) continue;
        prompted.acknowledgedMs.push(acknowledgedMs);
        prompted.firstDeltaMs.push(firstDeltaMs);
      }
    }
    prompter.close();
    for (let number = 0; number < BLOCK; number += 1) {
      samples.rawCommitMs.push(await rawCommit(servers.raw, connection));
    }
    for (let number = 0; number < BLOCK; number += 1) {
      samples.relayMs.push(await firstRelayed(servers.relay));
    }
  }
  connection.close();
  return samples;
}

/** Sends prompts to one session and watches its stream. */
class Prompter {
  readonly #daemon: Daemon;
  readonly #sessionId: string;
  readonly #connection: Connection;
  readonly #stream: EventStream;
  readonly #firstDelta: { at: number };

  private constructor(
    daemon: Daemon,
    sessionId: string,
    connection: Connection,
    stream: EventStream,
    firstDelta: { at: number },
  ) {
    this.#daemon = daemon;
    this.#sessionId = sessionId;
    this.#connection = connection;
    this.#stream = stream;
    this.#firstDelta = firstDelta;
  }

  static async open(daemon: Daemon): Promise<Prompter> {
    const sessionId = await createSession(daemon);
    const firstDelta = { at: 0 };
    const stream = await EventStream.open({
      port: daemon.port,
      token: daemon.token,
      sessionId,
      onBatch: ({ at, events }) => {
        if (firstDelta.at > 0) return;
        if (events.some((event) => event.kind === "text_delta")) firstDelta.at = at;
      },
    });
    return new Prompter(daemon, sessionId, await Connection.open(daemon.port), stream, firstDelta);
  }

  async prompt(): Promise<{ acknowledgedMs: number; firstDeltaMs: number }> {
    const request = putMessage(this.#daemon, this.#sessionId, "Say something short.");
    const finished = this.#stream.untilEvent("turn_finished");
    this.#firstDelta.at = 0;
    const sentAt = preciseNow();
    const { status, body } = await this.#connection.send(request);
    const acknowledgedMs = preciseNow() - sentAt;
    if (status !== 202) throw new Error(`Answered ${status}: ${body.toString()}`);
    await finished;
    return { acknowledgedMs, firstDeltaMs: this.#firstDelta.at - sentAt };
  }

  close(): void {
    this.#stream.close();
    this.#connection.close();
  }
}

async function rawCommit(port: number, connection: Connection): Promise<number> {
  await Bun.sleep(PAUSE_MS);
  const body = JSON.stringify({ operationId: Bun.randomUUIDv7(), text: "Say something short." });
  const request = encodeRequest({ method: "POST", path: "/", port, body });
  const before = performance.now();
  await connection.send(request);
  return performance.now() - before;
}

/** How long the first delta takes through a relay; the connection is opened before. */
async function firstRelayed(port: number): Promise<number> {
  const messages = [{ role: "user", content: "Say something short." }];
  const body = JSON.stringify({ model: "m", stream: true, messages });
  const arrived = Promise.withResolvers<number>();
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      data: (_socket, data) => {
        if (stampsIn(data.toString()).length > 0) arrived.resolve(performance.now());
      },
    },
  });
  await Bun.sleep(PAUSE_MS);
  const before = performance.now();
  socket.write(encodeRequest({ method: "POST", path: "/", port, body }));
  const ms = (await arrived.promise) - before;
  socket.terminate();
  return ms;
}

await main();
