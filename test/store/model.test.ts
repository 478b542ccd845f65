import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { createIds } from "../../src/base/ids.ts";
import {
  OPERATION_AGE_MS_MAX,
  OPERATION_FUTURE_MS_MAX,
  RECEIPT_RETENTION_MS,
  WAITING_INPUTS_MAX,
} from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { creationFingerprint, submissionFingerprint } from "../../src/store/fingerprint.ts";
import type { Reply } from "../../src/store/operations.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { Problem } from "../../src/wire/problem.ts";
import {
  fromCreation,
  fromEvents,
  fromInputs,
  type Submission,
} from "../../src/wire/submission.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";
import { assertConsistent, idAt } from "./support.ts";

/*
 * Goal: in any order of submissions, retries through both doors, conflicts, consumptions, cancels, interrupts,
 * deletions, clock changes, sweeps, restarts and crashes, an action happens once and its first answer is the only one
 * (operations.md, Requests and duplicate detection; contract.md, Identity and time).
 * Method: fast-check drives the store and a model beside it: a map of what each id was answered and a list of who
 * waits where. `SEED=n bun test …` takes another walk; a failure prints its seed, its path and its commands.
 */
const RUNS = Number(process.env["RUNS"] ?? 120);
const SESSIONS = 3;
const DAY_MS = OPERATION_AGE_MS_MAX / 7;

type Kind = "message" | "continue" | "skill";
/** What a client wants of one of the sessions. */
interface Wish {
  readonly kind: Kind;
  readonly session: number;
  readonly text: string;
  readonly owned: boolean;
}

/** The same with the session that was there when it was first sent; it may have gone since. */
interface Action extends Wish {
  readonly sessionId: string;
}

interface Known {
  readonly action: Action | null;
  readonly answer: { readonly status: number; readonly body: string };
  readonly decidedAt: number;
  delivery: "pending" | "committed" | "cancelled" | null;
  settledAt: number | null;
}

interface Model {
  floor: number;
  /** What each id was answered, in the order of decision. */
  readonly known: Map<string, Known>;
  /** Ids that were tried, each with what was wanted first; retries take them from here. */
  readonly tried: { readonly id: string; readonly action: Action }[];
  readonly creations: { readonly id: string; readonly title: string }[];
  /** Who waits and who runs, by session; `null` for one that is not there. */
  readonly sessions: ({ waiting: string[]; running: string[] | null } | null)[];
  /** What was ever consumed, by session: nothing may come twice. */
  readonly consumed: string[];
}

interface Real {
  store: Store;
  readonly clock: FakeClock;
  readonly sessionIds: string[];
  readonly turns: (string | null)[];
  reopen(crashed: boolean): Promise<void>;
  newId(offsetMs: number): string;
}

type Walk = fc.AsyncCommand<Model, Real>;

/** What a caller learns: an answer, or the code of a refusal that is not recorded. */
async function outcome(run: () => Promise<Reply>): Promise<Reply | string> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
}

function expiryOf(id: string, settledAt: number): number {
  return (
    Math.max(settledAt, Number.parseInt(id.replace("-", "").slice(0, 12), 16)) +
    RECEIPT_RETENTION_MS
  );
}

/** The refusal that an id without a receipt gets for its age alone. */
function refusalByAge(model: Model, real: Real, id: string): string | null {
  const timestamp = Number.parseInt(id.replace("-", "").slice(0, 12), 16);
  const age = real.clock.now() - timestamp;
  if (timestamp <= model.floor || age > OPERATION_AGE_MS_MAX) return "operation_expired";
  return -age > OPERATION_FUTURE_MS_MAX ? "operation_future" : null;
}

/** The same action through one of the doors, with what must not matter written differently. */
function through(door: "events" | "inputs", id: string, action: Action): Submission {
  const { kind, text, sessionId } = action;
  const owner = idAt(1, action.session);
  if (door === "events") {
    const common = {
      operationId: id,
      clientId: "door 1",
      ...(action.owned ? { submissionId: owner } : {}),
    };
    if (kind === "continue") return fromEvents(sessionId, { ...common, type: "continue" });
    if (kind === "skill")
      return fromEvents(sessionId, { ...common, type: "skill", name: "s", arguments: text });
    return fromEvents(sessionId, { ...common, text });
  }
  const common = action.owned ? { submission_id: owner } : {};
  if (kind === "continue") return fromInputs(sessionId, id, { ...common, kind: "continuation" });
  if (kind === "skill")
    return fromInputs(sessionId, id, { ...common, kind: "skill", name: "s", arguments: text });
  return fromInputs(sessionId, id, { ...common, kind: "message", text, images: [] });
}

function send(real: Real, submission: Submission): Promise<Reply> {
  const { operationId, sessionId, action, submissionId, clientId } = submission;
  const text = "text" in action ? action.text : "";
  return real.store.operations.admit({
    submission: { operationId, sessionId, kind: action.kind, submissionId, clientId },
    fingerprint: submissionFingerprint(submission, []),
    prepared: { displayText: text, modelText: text, images: [] },
    rejection: null,
  });
}

/** What the model says that a submission must be answered; it learns a new decision from the answer itself. */
function judge(model: Model, real: Real, id: string, action: Action, got: Reply | string): void {
  const known = model.known.get(id);
  if (known !== undefined) {
    const same = JSON.stringify(known.action) === JSON.stringify(action);
    if (!same) expect(got).toBe("operation_conflict");
    else expect(got).toMatchObject({ ...known.answer, replayed: true });
    return;
  }
  const refusal = refusalByAge(model, real, id);
  if (refusal !== null) {
    expect(got).toBe(refusal);
    return;
  }
  if (typeof got === "string") throw new Error(`Refused with ${got}`);
  const there = real.sessionIds[action.session] === action.sessionId;
  const session = there ? model.sessions[action.session] : null;
  const full =
    session !== null && session !== undefined && session.waiting.length >= WAITING_INPUTS_MAX;
  const status = session === null ? 404 : full ? 429 : 202;
  expect([got.status, got.replayed]).toEqual([status, false]);
  const now = real.clock.now();
  const accepted = status === 202;
  model.known.set(id, {
    action,
    answer: { status, body: got.body },
    decidedAt: now,
    delivery: accepted ? "pending" : null,
    settledAt: accepted ? null : now,
  });
  if (accepted) session?.waiting.push(id);
}

class Submit implements Walk {
  readonly offsetMs: number;
  readonly wish: Wish;
  readonly copies: number;

  constructor(offsetMs: number, wish: Wish, copies: number) {
    this.offsetMs = offsetMs;
    this.wish = wish;
    this.copies = copies;
  }

  check(): boolean {
    return true;
  }

  async run(model: Model, real: Real): Promise<void> {
    const action = { ...this.wish, sessionId: real.sessionIds[this.wish.session] ?? "" };
    const id = real.newId(this.offsetMs);
    model.tried.push({ id, action });
    // Copies of one send come together and share a transaction.
    const sends = Array.from({ length: this.copies }, (_, n) =>
      outcome(() => send(real, through(n % 2 === 0 ? "events" : "inputs", id, action))),
    );
    for (const got of await Promise.all(sends)) judge(model, real, id, action, got);
  }

  toString(): string {
    const { kind, session, text } = this.wish;
    return `submit(${kind} "${text}" to ${session}, ${this.offsetMs} ms ahead, ${this.copies} times)`;
  }
}

class Fill implements Walk {
  readonly session: number;
  readonly count: number;

  constructor(session: number, count: number) {
    this.session = session;
    this.count = count;
  }

  check(): boolean {
    return true;
  }

  async run(model: Model, real: Real): Promise<void> {
    const { session } = this;
    const sessionId = real.sessionIds[session] ?? "";
    const action: Action = { kind: "message", session, sessionId, text: "fill", owned: false };
    const ids = Array.from({ length: this.count }, () => real.newId(0));
    const sends = ids.map((id) => outcome(() => send(real, through("inputs", id, action))));
    (await Promise.all(sends)).forEach((got, n) => judge(model, real, ids[n] ?? "", action, got));
  }

  toString(): string {
    return `fill(${this.session}, ${this.count})`;
  }
}

class Retry implements Walk {
  readonly pick: number;
  readonly door: "events" | "inputs";
  /** What is different of the request; `null` for an honest retry. */
  readonly change: Partial<Action> | null;

  constructor(pick: number, door: "events" | "inputs", change: Partial<Action> | null) {
    this.pick = pick;
    this.door = door;
    this.change = change;
  }

  check(model: Readonly<Model>): boolean {
    return model.tried.length > 0;
  }

  async run(model: Model, real: Real): Promise<void> {
    const { id, action } = model.tried[this.pick % model.tried.length]!;
    const sent = { ...action, ...this.change };
    const got = await outcome(() => send(real, through(this.door, id, sent)));
    // A continuation has no text, so that a change of it is none.
    judge(model, real, id, sent.kind === "continue" ? { ...sent, text: action.text } : sent, got);
  }

  toString(): string {
    return `retry(${this.pick}, ${this.door}, ${JSON.stringify(this.change)})`;
  }
}

class Create implements Walk {
  readonly session: number;
  /** Which earlier creation to send again; `null` for a new one. */
  readonly again: number | null;

  constructor(session: number, again: number | null) {
    this.session = session;
    this.again = again;
  }

  check(model: Readonly<Model>): boolean {
    return this.again === null ? model.sessions[this.session] === null : model.creations.length > 0;
  }

  async run(model: Model, real: Real): Promise<void> {
    const before =
      this.again === null ? null : (model.creations[this.again % model.creations.length] ?? null);
    const { id, title } = before ?? { id: real.newId(0), title: `session ${this.session}` };
    const sessionId = real.newId(0);
    const creation = fromCreation({ operationId: id, title });
    const got = await outcome(() =>
      real.store.conversation.create({
        creation,
        fingerprint: creationFingerprint(creation),
        decision: { sessionId, workspace: "/w", model: "m/m" },
      }),
    );
    const known = model.known.get(id);
    if (known !== undefined) {
      expect(got).toMatchObject({ ...known.answer, replayed: true });
      return;
    }
    const refusal = refusalByAge(model, real, id);
    if (refusal !== null) {
      expect(got).toBe(refusal);
      return;
    }
    // Only a new creation gets here: a swept one is refused by its age, whatever the clock says.
    expect(this.again).toBeNull();
    if (typeof got === "string") throw new Error(`Refused with ${got}`);
    expect([got.status, got.location]).toEqual([201, `/sessions/${sessionId}`]);
    const now = real.clock.now();
    const answer = { status: 201, body: got.body };
    model.known.set(id, { action: null, answer, decidedAt: now, delivery: null, settledAt: now });
    model.creations.push({ id, title });
    model.sessions[this.session] = { waiting: [], running: null };
    real.sessionIds[this.session] = sessionId;
    real.turns[this.session] = null;
  }

  toString(): string {
    return this.again === null ? `create(${this.session})` : `create again(${this.again})`;
  }
}

/** A command on one session that is there. */
abstract class OnSession implements Walk {
  readonly session: number;

  constructor(session: number) {
    this.session = session;
  }

  check(model: Readonly<Model>): boolean {
    return model.sessions[this.session] !== null;
  }

  protected at(model: Model): { waiting: string[]; running: string[] | null } {
    const session = model.sessions[this.session];
    if (session === null || session === undefined) throw new Error("Not there");
    return session;
  }

  protected id(real: Real): string {
    return real.sessionIds[this.session] ?? "";
  }

  protected settle(model: Model, real: Real, ids: readonly string[]): void {
    for (const id of ids) {
      const known = model.known.get(id);
      if (known !== undefined) known.settledAt ??= real.clock.now();
    }
  }

  protected cancel(model: Model, real: Real, ids: readonly string[]): void {
    for (const id of ids) model.known.get(id)!.delivery = "cancelled";
    this.settle(model, real, ids);
    const session = this.at(model);
    session.waiting = session.waiting.filter((id) => !ids.includes(id));
  }

  abstract run(model: Model, real: Real): Promise<void>;

  toString(): string {
    return `${this.constructor.name}(${this.session})`;
  }
}

class Consume extends OnSession {
  async run(model: Model, real: Real): Promise<void> {
    const session = this.at(model);
    const startsTurn = session.running === null;
    const turnId = real.turns[this.session] ?? real.newId(0);
    const inputs = session.waiting.map((operationId) => ({ operationId, fittings: [] }));
    if (inputs.length === 0) return;
    const done = await real.store.conversation.consume({
      sessionId: this.id(real),
      turnId,
      startsTurn,
      inputs,
    });
    expect(done.consumed).toEqual(session.waiting);
    for (const id of session.waiting) model.known.get(id)!.delivery = "committed";
    model.consumed.push(...session.waiting);
    session.running = [...(session.running ?? []), ...session.waiting];
    session.waiting = [];
    real.turns[this.session] = turnId;
    expect(done.turn?.members).toEqual(session.running);
  }
}

class EndTurn extends OnSession {
  override check(model: Readonly<Model>): boolean {
    return (model.sessions[this.session]?.running ?? null) !== null;
  }

  async run(model: Model, real: Real): Promise<void> {
    await real.store.conversation.commit({
      sessionId: this.id(real),
      turnId: real.turns[this.session] ?? null,
      rows: [{ role: "assistant", text: "done", messageId: "m", liveId: null }],
      end: { state: "completed" },
    });
    this.settle(model, real, this.at(model).running ?? []);
    this.at(model).running = null;
    real.turns[this.session] = null;
  }
}

class Cancel extends OnSession {
  readonly pick: number;

  constructor(session: number, pick: number) {
    super(session);
    this.pick = pick;
  }

  async run(model: Model, real: Real): Promise<void> {
    const ids = [...model.known.keys()];
    const id = ids[this.pick % Math.max(1, ids.length)] ?? real.newId(0);
    const waits = this.at(model).waiting.includes(id);
    const done = await real.store.operations.cancelWaiting(this.id(real), [id]);
    expect(done).toEqual(waits ? [id] : []);
    this.cancel(model, real, done);
  }
}

class Interrupt extends OnSession {
  async run(model: Model, real: Real): Promise<void> {
    const [done] = await real.store.conversation.interrupt([this.id(real)]);
    expect(done?.cancelled).toEqual(this.at(model).waiting);
    this.cancel(model, real, this.at(model).waiting);
  }
}

class Remove extends OnSession {
  async run(model: Model, real: Real): Promise<void> {
    const [done] = await real.store.conversation.remove(this.id(real), { recursive: false });
    expect(done?.cancelled).toEqual(this.at(model).waiting);
    this.settle(model, real, this.at(model).running ?? []);
    this.cancel(model, real, this.at(model).waiting);
    model.sessions[this.session] = null;
  }
}

class MoveClock implements Walk {
  readonly ms: number;

  constructor(ms: number) {
    this.ms = ms;
  }

  check(): boolean {
    return true;
  }

  async run(_model: Model, real: Real): Promise<void> {
    real.clock.setWall(Math.max(DAY_MS, real.clock.now() + this.ms));
  }

  toString(): string {
    return `clock(${this.ms})`;
  }
}

class Sweep implements Walk {
  check(): boolean {
    return true;
  }

  async run(model: Model, real: Real): Promise<void> {
    const now = real.clock.now();
    const expired = [...model.known].filter(
      ([id, { settledAt }]) => settledAt !== null && expiryOf(id, settledAt) < now,
    );
    let removed = 0;
    for (;;) {
      const batch = await real.store.operations.sweep(now);
      expect(batch).toBe(Math.min(128, expired.length - removed));
      if (batch === 0) break;
      removed += batch;
    }
    for (const [id] of expired) model.known.delete(id);
    if (removed > 0) model.floor = Math.max(model.floor, now - RECEIPT_RETENTION_MS - 1);
    expect(real.store.operations.floor()).toBe(model.floor);
  }

  toString(): string {
    return "sweep()";
  }
}

class Restart implements Walk {
  readonly crashed: boolean;

  constructor(crashed: boolean) {
    this.crashed = crashed;
  }

  check(): boolean {
    return true;
  }

  async run(model: Model, real: Real): Promise<void> {
    await real.reopen(this.crashed);
    const { interrupted } = real.store.conversation.recover();
    const running = model.sessions.filter((session) => session?.running != null);
    expect(interrupted).toHaveLength(running.length);
    for (const session of running) {
      for (const id of session?.running ?? []) {
        const known = model.known.get(id);
        if (known !== undefined) known.settledAt ??= real.clock.now();
      }
      if (session != null) session.running = null;
    }
    real.turns.fill(null);
  }

  toString(): string {
    return this.crashed ? "crash()" : "restart()";
  }
}

/** After each command the receipts, the queues and the transcripts say what the model says. */
function compare(model: Model, real: Real): void {
  const { operations, conversation } = real.store;
  const receipts = [...model.known.keys()].map((id) => {
    const { httpStatus, deliveryStatus, settledAt, expiresAt, createdAt } = operations.receipt(id);
    return [
      id,
      httpStatus,
      deliveryStatus ?? null,
      settledAt ?? null,
      expiresAt ?? null,
      createdAt,
    ];
  });
  const wanted = [...model.known].map(([id, { answer, delivery, settledAt, decidedAt }]) => {
    const expiresAt = settledAt === null ? null : expiryOf(id, settledAt);
    return [id, answer.status, delivery, settledAt, expiresAt, decidedAt];
  });
  // As text: one comparison of hundreds of receipts after each command shall stay quick.
  expect(JSON.stringify(receipts)).toBe(JSON.stringify(wanted));
  model.sessions.forEach((session, n) => {
    const sessionId = real.sessionIds[n] ?? "";
    const waiting = operations.pending(sessionId).map(({ operationId }) => operationId);
    expect(waiting).toEqual(session?.waiting ?? []);
    if (session === null) return;
    const rows = conversation
      .transcript(sessionId)
      .map((row) => row.operationId ?? row.display?.operationId);
    const inputs = rows.filter((id) => id !== undefined && id !== null);
    expect(new Set(inputs).size).toBe(inputs.length);
  });
  expect(new Set(model.consumed).size).toBe(model.consumed.length);
}

class Compared implements Walk {
  readonly command: Walk;

  constructor(command: Walk) {
    this.command = command;
  }

  check(model: Readonly<Model>): boolean {
    return this.command.check(model);
  }

  async run(model: Model, real: Real): Promise<void> {
    await this.command.run(model, real);
    compare(model, real);
  }

  toString(): string {
    return this.command.toString();
  }
}

function commands(): fc.Arbitrary<Walk>[] {
  const session = fc.nat(SESSIONS - 1);
  const action = fc.record({
    kind: fc.constantFrom<Kind>("message", "continue", "skill"),
    session,
    text: fc.constantFrom("a", "b", ""),
    owned: fc.boolean(),
  });
  const offset = fc.constantFrom(
    0,
    0,
    0,
    1,
    OPERATION_FUTURE_MS_MAX,
    OPERATION_FUTURE_MS_MAX + 1,
    -OPERATION_AGE_MS_MAX,
    -OPERATION_AGE_MS_MAX - 1,
  );
  const door = fc.constantFrom<"events" | "inputs">("events", "inputs");
  const change = fc.constantFrom<Partial<Action>>(
    { text: "z" },
    { owned: true },
    { kind: "continue" },
  );
  const move = fc.constantFrom(1, OPERATION_FUTURE_MS_MAX, DAY_MS, 7 * DAY_MS, 7 * DAY_MS + 1);
  const back = fc.constantFrom(1, OPERATION_FUTURE_MS_MAX, DAY_MS, 8 * DAY_MS);
  const all: fc.Arbitrary<Walk>[] = [
    fc.tuple(offset, action, fc.constantFrom(1, 1, 2, 5)).map((made) => new Submit(...made)),
    fc.tuple(offset, action, fc.constant(1)).map((made) => new Submit(...made)),
    fc.tuple(session, fc.constantFrom(3, 31, 33)).map((made) => new Fill(...made)),
    fc.tuple(fc.nat(50), door).map(([pick, by]) => new Retry(pick, by, null)),
    fc.tuple(fc.nat(50), door).map(([pick, by]) => new Retry(pick, by, null)),
    fc.tuple(fc.nat(50), door, change).map((made) => new Retry(...made)),
    session.map((n) => new Create(n, null)),
    session.map((n) => new Create(n, null)),
    fc.nat(10).map((again) => new Create(0, again)),
    session.map((n) => new Consume(n)),
    session.map((n) => new Consume(n)),
    session.map((n) => new EndTurn(n)),
    fc.tuple(session, fc.nat(50)).map((made) => new Cancel(...made)),
    session.map((n) => new Interrupt(n)),
    session.map((n) => new Remove(n)),
    move.map((ms) => new MoveClock(ms)),
    back.map((ms) => new MoveClock(-ms)),
    fc.constant(new Sweep()),
    fc.boolean().map((crashed) => new Restart(crashed)),
  ];
  return all.map((arbitrary) => arbitrary.map((command) => new Compared(command)));
}

describe("admission", () => {
  test("answers each action once, whatever is retried, cancelled, deleted, swept and restarted in between", async () => {
    using directory = tempDir();
    const template = join(directory.path, "template");
    const random = createIds(new FakeClock());
    await openStore({
      home: template,
      clock: new FakeClock(),
      ids: random,
      log: silentLog,
    }).close();
    let homes = 0;
    const newHome = (from: string): string => {
      const home = join(directory.path, `home ${(homes += 1)}`);
      mkdirSync(home, { mode: 0o700 });
      for (const file of ["albedo.db", "albedo.db-wal"]) {
        if (Bun.file(join(from, file)).size > 0) copyFileSync(join(from, file), join(home, file));
      }
      return home;
    };
    const replayPath = process.env["REPLAY"];
    await fc.assert(
      fc.asyncProperty(
        fc.commands(commands(), {
          maxCommands: 60,
          size: "+1",
          ...(replayPath === undefined ? {} : { replayPath }),
        }),
        async (walk) => {
          const clock = new FakeClock();
          let made = 0;
          let home = newHome(template);
          const open = (): Store => {
            const store = openStore({ home, clock, ids: createIds(clock), log: silentLog });
            store.database.execute("PRAGMA synchronous = OFF");
            return store;
          };
          const real: Real = {
            store: open(),
            clock,
            sessionIds: Array.from({ length: SESSIONS }, (_, n) => idAt(5, n)),
            turns: Array.from({ length: SESSIONS }, () => null),
            async reopen(crashed) {
              // What a dead process leaves is the files as they are, without a last checkpoint.
              if (crashed) home = newHome(home);
              await real.store.close();
              real.store = open();
            },
            newId: (offsetMs) => idAt(Math.max(1, clock.now() + offsetMs), (made += 1)),
          };
          const model: Model = {
            floor: 0,
            known: new Map(),
            tried: [],
            creations: [],
            sessions: Array.from({ length: SESSIONS }, () => null),
            consumed: [],
          };
          try {
            await fc.asyncModelRun(() => ({ model, real }), walk);
            assertConsistent(real.store);
          } finally {
            await real.store.close();
          }
        },
      ),
      {
        numRuns: RUNS,
        ...(process.env["SEED"] === undefined ? {} : { seed: Number(process.env["SEED"]) }),
        ...(process.env["FC_PATH"] === undefined ? {} : { path: process.env["FC_PATH"] }),
      },
    );
  }, 60_000);
});
