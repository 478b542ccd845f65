import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import type { Answer } from "../support/api.ts";
import { ChildDaemon } from "../support/daemon.ts";
import { until } from "../support/until.ts";

/**
 * Goal: "SIGKILL at any instant loses nothing accepted" (contract.md, Files, process, safety), and nothing is done
 * twice: every answer that was given is given again to the byte, every text stands in its transcript once, and what
 * waited goes on by itself.
 * Method: a daemon in a process of its own takes submissions from several writers through both doors and is killed
 * after a random number of answers. The next one is asked for every id, answered or not. `SEED=` replays a run.
 *
 * A kill loses no page cache, so this says nothing of a loss of power.
 */
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const ROUNDS = 4;
const WRITERS = 8;
const SESSIONS = 4;
const ANSWERS_MAX = 120;

interface Sent {
  readonly sessionId: string;
  readonly operationId: string;
  readonly text: string;
  readonly door: "events" | "inputs";
  /** `null` while nobody has answered. */
  answer: Answer | null;
}

function createRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function submit(daemon: ChildDaemon, sent: Sent): Promise<Answer> {
  const { sessionId, operationId, text } = sent;
  return sent.door === "events"
    ? daemon.event(sessionId, { operationId, text })
    : daemon.put(sessionId, operationId, { kind: "message", text });
}

/** Sends until the daemon is gone. */
async function write(daemon: ChildDaemon, next: () => Sent, answered: () => void): Promise<void> {
  for (;;) {
    const sent = next();
    try {
      sent.answer = await submit(daemon, sent);
    } catch {
      return;
    }
    answered();
  }
}

async function killUnderLoad(
  daemon: ChildDaemon,
  sessions: readonly string[],
  random: (below: number) => number,
): Promise<Sent[]> {
  const all: Sent[] = [];
  const next = (): Sent => {
    const sent: Sent = {
      sessionId: sessions[random(sessions.length)] ?? "",
      operationId: daemon.ids.uuidv7(),
      text: `text ${all.length} of ${daemon.ids.uuidv7()}`,
      door: random(2) === 0 ? "events" : "inputs",
      answer: null,
    };
    all.push(sent);
    return sent;
  };
  const killAfter = 1 + random(ANSWERS_MAX);
  let answers = 0;
  const killed = Promise.withResolvers<void>();
  const writers = Array.from({ length: WRITERS }, () =>
    write(daemon, next, () => {
      answers += 1;
      if (answers === killAfter) killed.resolve(daemon.end("SIGKILL").then(() => {}));
    }),
  );
  await killed.promise;
  await Promise.all(writers);
  return all;
}

/** Texts of people in a transcript, whole. */
async function userTexts(daemon: ChildDaemon, sessionId: string): Promise<string[]> {
  const texts: string[] = [];
  let after: number | null = 0;
  while (after !== null) {
    const page: { items: { role: string; display_text?: string }[]; next: number | null } =
      await daemon.json("GET", `/sessions/${sessionId}/history?limit=200&after=${after}`);
    for (const row of page.items) if (row.role === "user") texts.push(row.display_text ?? "");
    after = page.next;
  }
  return texts;
}

function checkIntegrity(home: string): void {
  const database = new Database(join(home, "albedo.db"), { readonly: true });
  expect(database.query("PRAGMA integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
  expect(database.query("PRAGMA foreign_key_check").all()).toEqual([]);
  database.close();
}

test(`a killed daemon has lost nothing and doubles nothing (SEED=${SEED})`, async () => {
  const random = createRandom(SEED);
  const daemon = await ChildDaemon.start();
  await using _daemon = daemon;
  const sessions: string[] = [];
  for (let count = 0; count < SESSIONS; count += 1) {
    sessions.push(await daemon.created({ workspace: daemon.workspace, model: "demo/demo" }));
  }
  const accepted: Sent[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const all = await killUnderLoad(daemon, sessions, random);
    checkIntegrity(daemon.home);
    await daemon.start();
    for (const sent of all) {
      const again = await submit(daemon, sent);
      if (sent.answer !== null) {
        expect([again.status, again.text]).toEqual([sent.answer.status, sent.answer.text]);
        expect(again.headers.get("albedo-replayed")).toBe("true");
      }
      expect([202, 429]).toContain(again.status);
      if (again.status === 202) accepted.push(sent);
    }
  }
  // Nobody posts again: whatever waited runs by itself.
  for (const { sessionId, operationId } of accepted) {
    const input = await daemon.ended(sessionId, operationId);
    expect(["completed", "interrupted"]).toContain(input.turn?.state ?? "none");
  }
  for (const sessionId of sessions) {
    const wanted = accepted.filter((sent) => sent.sessionId === sessionId).map(({ text }) => text);
    const found = await userTexts(daemon, sessionId);
    expect(found.toSorted()).toEqual(wanted.toSorted());
  }
  expect(await daemon.end("SIGTERM")).toBe(0);
  checkIntegrity(daemon.home);
}, 240_000);

test("creations of a killed daemon are answered again with the same session", async () => {
  const random = createRandom(SEED);
  await using daemon = await ChildDaemon.start();
  for (let round = 0; round < 2; round += 1) {
    const sent: { readonly fields: Record<string, unknown>; answer: Answer | null }[] = [];
    const killAfter = 1 + random(40);
    let answers = 0;
    const writers = Array.from({ length: 4 }, async () => {
      for (;;) {
        const fields = { operationId: daemon.ids.uuidv7(), workspace: daemon.workspace };
        const entry: (typeof sent)[number] = { fields, answer: null };
        sent.push(entry);
        try {
          entry.answer = await daemon.create(fields);
        } catch {
          return;
        }
        answers += 1;
        if (answers === killAfter) void daemon.end("SIGKILL");
      }
    });
    await Promise.all(writers);
    await daemon.start();
    const ids = new Set<string>();
    for (const { fields, answer } of sent) {
      const again = await daemon.create(fields);
      if (answer !== null) expect([again.status, again.text]).toEqual([201, answer.text]);
      const { sessionId } = JSON.parse(again.text) as { sessionId: string };
      expect((await daemon.resource(sessionId, 0)).id).toBe(sessionId);
      ids.add(sessionId);
    }
    expect(ids.size).toBe(sent.length);
  }
}, 120_000);

test("a daemon that is killed in the middle of a turn is usable at once, and the turn is over", async () => {
  await using daemon = await ChildDaemon.start();
  const sessionId = await daemon.created({ workspace: daemon.workspace, model: "demo/demo" });
  const inputId = await daemon.say(sessionId, "!slow 20\n!repeat 2000 word ");
  const reader = await daemon.stream(sessionId);
  await reader.event("text_delta");
  const waiting = await daemon.put(sessionId, daemon.ids.uuidv7(), { kind: "continuation" });
  expect(waiting.status).toBe(202);
  await daemon.end("SIGKILL");
  await until("the stream to break", () => reader.ended || reader.failed !== null);
  await daemon.start();
  const input = await daemon.input(sessionId, inputId);
  expect(input.turn?.state).toBe("interrupted");
  expect(input.turn?.ended_at).toBeNumber();
  expect((await daemon.receipt(inputId)).settledAt).toBeNumber();
  const { history = [] } = await daemon.resource(sessionId);
  expect(history.filter(({ role }) => role === "user")).toHaveLength(1);
}, 60_000);
