import { join } from "node:path";
import { createIds, type Ids } from "../../src/base/ids.ts";
import { silentLog, type Log } from "../../src/base/log.ts";
import type { FaultPoints } from "../../src/store/database.ts";
import { submissionFingerprint } from "../../src/store/fingerprint.ts";
import type { NewImage } from "../../src/store/images.ts";
import type { AdmissionRequest, Rejection, Reply } from "../../src/store/operations.ts";
import type { TurnEnd } from "../../src/store/rows.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import type { SubmissionKind } from "../../src/wire/submission.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/** An open store over a directory of its own, with everything that a test of it needs. */
export interface Bench extends AsyncDisposable {
  readonly home: string;
  readonly clock: FakeClock;
  readonly ids: Ids;
  readonly logged: { message: string; fields: unknown }[];
  store: Store;
  /** Closes and opens again, as a stop and a start do. */
  restart(): Promise<void>;
}

export interface BenchOptions {
  readonly points?: FaultPoints;
  /** Leaves out the syncs, which most tests say nothing about. @default {true} */
  readonly fast?: boolean;
  readonly clock?: FakeClock;
}

export function openBench(options: BenchOptions = {}): Bench {
  const directory = tempDir();
  const clock = options.clock ?? new FakeClock();
  const ids = createIds(clock);
  const logged: Bench["logged"] = [];
  const log: Log = {
    ...silentLog,
    error: (message, fields) => void logged.push({ message, fields }),
  };
  const home = join(directory.path, "home");
  const { points } = options;
  const open = (): Store => {
    const store = openStore({ home, clock, ids, log, ...(points === undefined ? {} : { points }) });
    if (options.fast ?? true) store.database.execute("PRAGMA synchronous = OFF");
    return store;
  };
  const bench: Bench = {
    home,
    clock,
    ids,
    logged,
    store: open(),
    async restart() {
      await bench.store.close();
      bench.store = open();
    },
    async [Symbol.asyncDispose]() {
      await bench.store.close();
      directory[Symbol.dispose]();
    },
  };
  return bench;
}

/** A session that is there; the value is its id. */
export async function createSession(
  bench: Bench,
  options: { parentId?: string; title?: string } = {},
): Promise<string> {
  const sessionId = bench.ids.uuidv7();
  const reply = await bench.store.conversation.create({
    creation: {
      operationId: bench.ids.uuidv7(),
      workspace: null,
      title: options.title ?? null,
      model: null,
      parentId: options.parentId ?? null,
      settings: {},
    },
    fingerprint: "creation",
    decision: { sessionId, workspace: "/w", model: "demo/demo" },
  });
  if (reply.status !== 201) throw new Error(reply.body);
  return sessionId;
}

export interface Sent {
  readonly operationId: string;
  readonly sessionId: string;
  readonly kind?: SubmissionKind;
  readonly text?: string;
  readonly name?: string;
  readonly submissionId?: string | null;
  readonly clientId?: string | null;
  readonly images?: readonly NewImage[];
  readonly rejection?: Rejection | null;
}

/** What a submission looks like when it comes to the store; the fingerprint is the real one. */
export function admission(sent: Sent): AdmissionRequest {
  const kind = sent.kind ?? "message";
  const text = sent.text ?? "hello";
  const { operationId, sessionId } = sent;
  const submissionId = sent.submissionId ?? null;
  const clientId = sent.clientId ?? null;
  const name = sent.name ?? "rename";
  const action =
    kind === "message"
      ? ({ kind, text, images: [] } as const)
      : kind === "continue"
        ? ({ kind } as const)
        : ({ kind, name, arguments: text } as const);
  const named = kind === "skill" || kind === "command";
  return {
    submission: { operationId, sessionId, kind, submissionId, clientId },
    fingerprint: submissionFingerprint(
      { operationId, sessionId, action, clientId, submissionId },
      (sent.images ?? []).map((image) => Bun.hash(image.bytes).toString(16)),
    ),
    prepared: {
      displayText: named ? `/${name} ${text}` : text,
      modelText: kind === "continue" || kind === "command" ? null : text,
      images: sent.images ?? [],
      ...(named ? { name, arguments: text } : {}),
    },
    rejection: sent.rejection ?? null,
  };
}

/** Admits under a new id; the value is the id. */
export async function admit(
  bench: Bench,
  sessionId: string,
  sent: Partial<Sent> = {},
): Promise<string> {
  const operationId = sent.operationId ?? bench.ids.uuidv7();
  const reply = await bench.store.operations.admit(admission({ ...sent, operationId, sessionId }));
  if (reply.status !== 202) throw new Error(reply.body);
  return operationId;
}

/** Consumes everything that waits in a new turn, and may end it; the value is the turn's id. */
export async function runTurn(bench: Bench, sessionId: string, end?: TurnEnd): Promise<string> {
  const turnId = bench.ids.uuidv7();
  const inputs = bench.store.operations
    .pending(sessionId)
    .map(({ operationId, images }) => ({ operationId, fittings: images.map(() => null) }));
  await bench.store.conversation.consume({
    sessionId,
    turnId,
    startsTurn: true,
    inputs,
    ...(end === undefined ? {} : { end }),
  });
  return turnId;
}

/** A UUIDv7 with the given timestamp. */
export function idAt(timestamp: number, tail = 0): string {
  const time = timestamp.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${tail.toString(16).padStart(12, "0")}`;
}

export function code(reply: Reply): string {
  const document = JSON.parse(reply.body) as { code?: string; status?: string };
  return document.code ?? document.status ?? "";
}

/** Every row of every table that must agree with another one; throws where two do not. */
export function assertConsistent(store: Store): void {
  const { database } = store;
  const faults = [
    // A receipt says pending exactly as long as its input waits.
    `SELECT operation_id FROM operations WHERE delivery_status = 'pending'
       AND operation_id NOT IN (SELECT operation_id FROM pending_inputs)`,
    `SELECT p.operation_id FROM pending_inputs p LEFT JOIN operations o USING (operation_id)
       WHERE o.delivery_status IS NOT 'pending' OR o.decision <> p.decision OR o.target <> p.session_id`,
    // A committed input has its row or marker, and is a member of a turn, unless its session has gone.
    `SELECT operation_id FROM operations WHERE delivery_status = 'committed'
       AND target IN (SELECT session_id FROM sessions)
       AND (operation_id NOT IN (SELECT operation_id FROM turn_members)
         OR operation_id NOT IN (SELECT operation_id FROM input_display
           UNION ALL SELECT operation_id FROM continuation_markers))`,
    // Nothing waits or was cancelled that is in the transcript.
    `SELECT operation_id FROM operations WHERE delivery_status <> 'committed' AND operation_id IN (
       SELECT operation_id FROM input_display UNION ALL SELECT operation_id FROM continuation_markers)`,
    // Settled exactly when the turn has ended.
    `SELECT o.operation_id FROM operations o JOIN turn_members m USING (operation_id) JOIN turns t USING (turn)
       WHERE (o.settled_at IS NULL) <> (t.state = 'running')`,
    // The counter is never behind a row, and no number is used twice.
    `SELECT s.session_id FROM sessions s WHERE s.last_row_id <> (SELECT count(*) FROM (
       SELECT row_id FROM transcript_rows r WHERE r.session_id = s.session_id
       UNION SELECT row_id FROM continuation_markers m WHERE m.session_id = s.session_id))`,
    // Each image waits with its input or hangs on its row.
    `SELECT image_id FROM images WHERE (row_id IS NULL) <> (operation_id IN (SELECT operation_id FROM pending_inputs))`,
    `SELECT session_id FROM sessions WHERE (phase = 'running') <> (session_id IN (
       SELECT session_id FROM turns WHERE state = 'running'))`,
  ];
  for (const fault of faults) {
    const found = database.query(fault).all();
    if (found.length > 0) throw new Error(`Inconsistent: ${JSON.stringify(found)} by ${fault}`);
  }
  const broken = database.query("PRAGMA foreign_key_check").all();
  if (broken.length > 0) throw new Error(`Broken reference: ${JSON.stringify(broken)}`);
  const check = database.query<{ integrity_check: string }>("PRAGMA integrity_check").get();
  if (check?.integrity_check !== "ok") throw new Error(`Damaged: ${check?.integrity_check}`);
}
