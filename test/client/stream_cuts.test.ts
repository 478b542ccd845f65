import { describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { createClient, Transcript } from "../../src/client/client.ts";
import type { Client } from "../../src/client/client.ts";
import { impatientClock } from "./hurried_clock.ts";
import { StreamServer } from "./stream_server.ts";
import type { ConnectionPlan, StreamServerOptions } from "./stream_server.ts";
import { ModelSession } from "./model_session.ts";
import type { Command } from "./model_session.ts";
import { SESSION } from "./stream_script.ts";

/**
 * Goal: "whatever the cuts, history plus resumed events equals the transcript, no gap, no repeat" (issue "The
 * stream"). Method: a model session knows the truth after each event; raw sockets cut its stream at any byte, in
 * identity and inside zstd frames, and after every batch the client's transcript is held against the truth.
 */

// Real sockets on a machine that may be busy.
setDefaultTimeout(60_000);

/** Attaches, compares after every batch, and ends when all that happened was seen. */
async function watch(client: Client, server: StreamServer, session: ModelSession): Promise<void> {
  const transcript = new Transcript();
  let lastIndex = -1;
  const subscription = client.subscribe(SESSION, {
    onReset: (reset) => {
      transcript.apply(reset);
      lastIndex = -1;
    },
    onEvent: (event) => transcript.apply(event),
    onBatch: ({ generation, cursor }) => {
      const index = server.indexOf(generation, cursor);
      if (index === null) throw new Error("A batch of a generation that is over");
      expect(index).toBeGreaterThanOrEqual(lastIndex);
      lastIndex = index;
      expectTruth(transcript, session, index);
      if (index === session.events.length) subscription.close();
    },
  });
  expect(await subscription.ended).toEqual({ reason: "aborted" });
  await completeHistory(client, transcript);
  expect(transcript.rows).toEqual(session.truths.at(-1)?.rows ?? []);
}

function expectTruth(transcript: Transcript, session: ModelSession, index: number): void {
  const truth = session.truths[index];
  if (truth === undefined) throw new Error(`No truth at ${index}`);
  const first = transcript.rows[0]?.id ?? Infinity;
  const { rows, live, inputs, progress, phase, turn } = transcript;
  expect<unknown>({
    rows,
    live: live.map(({ unavailable: _unavailable, ...chunk }) => chunk),
    waiting: inputs.filter(({ state }) => state === "waiting").map((input) => input.operationId),
    others: inputs.filter(({ state }) => state !== "waiting"),
    progress,
    phase,
    turn,
  }).toEqual({
    rows: transcript.hasOlder ? truth.rows.filter(({ id }) => id >= first) : truth.rows,
    live: truth.live,
    waiting: truth.pending.map(({ id }) => id),
    others: [],
    progress: truth.progress,
    phase: truth.phase,
    turn: truth.turn,
  });
}

/** Pages back until nothing is older. */
async function completeHistory(client: Client, transcript: Transcript): Promise<void> {
  while (transcript.hasOlder) {
    const before = transcript.rows[0]?.id;
    const page = await client.history(SESSION, before === undefined ? {} : { before });
    transcript.prepend(page.items, page.next);
  }
}

function clientOf(server: StreamServer): Client {
  return createClient({ url: server.url, token: "t", clock: impatientClock });
}

const SHORT: Command[] = [
  { kind: "submit", text: "gruß 🙂" },
  { kind: "delta", thinking: false, text: "né 漢" },
  { kind: "delta", thinking: false, text: "字" },
  { kind: "commit" },
];

/** The bytes of an uncut stream of the short session. */
async function streamBytes(options: StreamServerOptions): Promise<number> {
  await using server = await StreamServer.start(new ModelSession(SHORT), options);
  server.plan.push({ cutAt: 1e9 });
  const response = await fetch(`${server.url}/sessions/${SESSION}/events`, { decompress: false });
  let bytes = 0;
  for await (const chunk of response.body ?? []) bytes += chunk.length;
  return bytes;
}

describe("a stream that is cut at every byte", () => {
  for (const coding of ["identity", "zstd"] as const) {
    for (const abruptly of [false, true]) {
      test(`in ${coding}, ${abruptly ? "by a reset" : "by an end"}`, async () => {
        const options = { coding, window: 256, tail: 50, spillOver: 1000 };
        const session = new ModelSession(SHORT);
        const bytes = await streamBytes(options);
        expect(bytes).toBeGreaterThan(200);
        // A cut just behind the last byte is one too.
        const cuts = Array.from({ length: bytes + 1 }, (_, cutAt) => cutAt);
        const worker = async (): Promise<void> => {
          await using server = await StreamServer.start(session, options);
          for (let cutAt = cuts.pop(); cutAt !== undefined; cutAt = cuts.pop()) {
            server.rewind();
            server.plan.push({ cutAt, abruptly, happen: 6 });
            await watch(clientOf(server), server, session);
          }
        };
        await Promise.all(Array.from({ length: 8 }, worker));
      });
    }
  }
});

const text = fc.string({ unit: "grapheme", maxLength: 12 });
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("submit" as const), text }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "cancel" }) },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant("delta" as const), thinking: fc.boolean(), text }),
  },
  { weight: 2, arbitrary: fc.constant<Command>({ kind: "commit" }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "retry" }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("tool" as const), preview: text }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("tool_done" as const), text }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "steer" }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("note" as const), text }) },
  { weight: 1, arbitrary: fc.constant<Command>({ kind: "finish" }) },
);

const connection: fc.Arbitrary<ConnectionPlan> = fc.record(
  {
    cutAt: fc.integer({ min: 0, max: 3000 }),
    abruptly: fc.boolean(),
    regenerate: fc.boolean(),
    happen: fc.integer({ min: 0, max: 12 }),
    batch: fc.integer({ min: 1, max: 5 }),
    pieceBytes: fc.integer({ min: 7, max: 700 }),
    expire: fc.boolean(),
  },
  { requiredKeys: ["cutAt"] },
);

const replay = process.env["SEED"] === undefined ? {} : { seed: Number(process.env["SEED"]) };

test("whatever the cuts, history and resumed events are the transcript", async () => {
  const scenario = fc.record({
    commands: fc.array(command, { maxLength: 40, size: "max" }),
    connections: fc.array(connection, { maxLength: 8, size: "max" }),
    coding: fc.constantFrom("identity" as const, "zstd" as const),
    window: fc.integer({ min: 0, max: 20 }),
    tail: fc.integer({ min: 1, max: 5 }),
    spillOver: fc.integer({ min: 0, max: 20 }),
  });
  await fc.assert(
    fc.asyncProperty(scenario, async ({ commands, connections, ...options }) => {
      const session = new ModelSession(commands);
      await using server = await StreamServer.start(session, options);
      server.plan.push(...connections);
      await watch(clientOf(server), server, session);
    }),
    { numRuns: 150, ...replay },
  );
}, 120_000);
