import { assert } from "../base/assert.ts";
import type { Turn } from "../wire/input.ts";
import type { Admission } from "../wire/operation.ts";
import { Problem } from "../wire/problem.ts";
import type { Creation } from "../wire/submission.ts";
import type { StoredImage } from "./images.ts";
import type { OperationTables, Operations, Rejection, Reply } from "./operations.ts";
import type { NewRow, PendingRecord, SessionRecord, StoredRow, TurnEnd } from "./rows.ts";
import type { Transcript } from "./transcript.ts";
import type { RunningTurn } from "./turns.ts";

/**
 * Owns the transactions on a conversation: creation with its receipt, consumption of pending inputs with their
 * transcript changes, the commits of a turn, interruption, removal and recovery (operations.md, Ownership and
 * atomicity). Each is one transaction; a failure leaves everything as it was.
 *
 * I1  Inputs are consumed from the head of the queue, in acceptance order.
 * I2  A committed input is a member of exactly one turn, and settles when that turn ends.
 * I3  An ended turn has no tool call without a result.
 */

export interface CreationRequest {
  readonly creation: Creation;
  readonly fingerprint: string;
  readonly decision:
    | { readonly sessionId: string; readonly workspace: string; readonly model: string }
    | { readonly rejection: Rejection };
}

/** A change of the session's writable part that belongs to a transaction. */
export interface SessionChange {
  readonly title?: string | null;
  readonly model?: string;
}

export interface ConsumedInput {
  readonly operationId: string;
  /** For each image the version that the model gets; `null` where that is the original. */
  readonly fittings: readonly (StoredImage | null)[];
}

export interface ConsumeRequest {
  readonly sessionId: string;
  readonly turnId: string;
  /** Whether the turn begins here; otherwise it must be running. */
  readonly startsTurn: boolean;
  /** The head of the queue, in acceptance order. Those that no longer wait are left out. */
  readonly inputs: readonly ConsumedInput[];
  /** Rows after those of the inputs, such as what a command had to say. */
  readonly rows?: readonly NewRow[];
  readonly session?: SessionChange;
  /** Ends the turn in the same transaction. */
  readonly end?: TurnEnd;
}

export interface Consumption {
  /** The inputs that were consumed, in acceptance order. */
  readonly consumed: readonly string[];
  /** One row for each of them, in that order, then those of the request, then those that ending the turn added. */
  readonly rows: readonly StoredRow[];
  /** The turn as it is now; `null` where inputs were given and none waits any more: then nothing was written. */
  readonly turn: Turn | null;
}

export interface CommitRequest {
  readonly sessionId: string;
  /** The running turn; `null` for rows outside of one. */
  readonly turnId: string | null;
  readonly rows: readonly NewRow[];
  readonly session?: SessionChange;
  /** Ends the turn and settles its members; calls without a result get one that says `interrupted`. */
  readonly end?: TurnEnd;
}

export interface Committed {
  readonly rows: readonly StoredRow[];
  /** The turn as it is now; `null` outside of one. */
  readonly turn: Turn | null;
}

/** What an interruption or a removal did to one session. */
export interface Cancelled {
  readonly sessionId: string;
  /** In acceptance order. */
  readonly cancelled: readonly string[];
}

export interface Recovery {
  /** Turns that a dead daemon left behind, interrupted now. */
  readonly interrupted: readonly { readonly sessionId: string; readonly turnId: string }[];
}

const INTERRUPTED_RESULT = "Interrupted before it finished.";
const DAEMON_DIED = {
  code: "daemon_died",
  message: "The daemon ended before the turn did",
} as const;

/** What one transaction gathers about a session before it writes it once. */
interface Draft {
  readonly session: SessionRecord;
  readonly now: number;
  lastRowId: number;
  compactionRowId: number | null;
  blockingReason: string | null;
  readonly rows: StoredRow[];
}

export class Conversation {
  readonly #tables: OperationTables;
  readonly #operations: Operations;
  readonly #transcript: Transcript;

  constructor(tables: OperationTables, operations: Operations, transcript: Transcript) {
    this.#tables = tables;
    this.#operations = operations;
    this.#transcript = transcript;
  }

  /**
   * Decides a creation, once.
   *
   * @throws {Problem} operation_conflict, operation_expired, operation_future, storage_unavailable
   */
  create(request: CreationRequest): Promise<Reply> {
    return this.#tables.database.write(() => this.#create(request));
  }

  /** @throws {Problem} session_not_found, storage_unavailable */
  consume(request: ConsumeRequest, effect?: (value: Consumption) => void): Promise<Consumption> {
    return this.#tables.database.write(() => this.#consume(request), effect);
  }

  /** @throws {Problem} session_not_found, storage_unavailable */
  commit(request: CommitRequest, effect?: (value: Committed) => void): Promise<Committed> {
    return this.#tables.database.write(() => this.#commit(request), effect);
  }

  /** Cancels every waiting input of the sessions. A running turn is ended by its session. */
  interrupt(
    sessionIds: readonly string[],
    effect?: (value: Cancelled[]) => void,
  ): Promise<Cancelled[]> {
    return this.#tables.database.write(
      () =>
        sessionIds.map((sessionId) => ({
          sessionId,
          cancelled: this.#operations.cancelIn(sessionId, null),
        })),
      effect,
    );
  }

  /**
   * Cancels what waits, settles what was consumed, removes the session and with `recursive` everything below it. The
   * value has each removed session, children before parents.
   *
   * @throws {Problem} session_not_found, session_has_children, storage_unavailable
   */
  remove(
    sessionId: string,
    options: { recursive: boolean },
    effect?: (value: Cancelled[]) => void,
  ): Promise<Cancelled[]> {
    return this.#tables.database.write(() => this.#remove(sessionId, options.recursive), effect);
  }

  /** Ends what a dead daemon left open. Synchronous, in one transaction; at the start, before anything else. */
  recover(): Recovery {
    return this.#tables.database.transaction(() => ({
      interrupted: this.#tables.turns.allRunning().map((turn) => {
        const draft = this.#draft(turn.sessionId);
        this.#end(draft, turn, { state: "interrupted", error: DAEMON_DIED });
        // The end of a turn that nobody saw end is no activity.
        this.#write(draft, "interrupted", draft.session.activityAt);
        this.#tables.database.points.reached("recover.after_turn");
        return { sessionId: turn.sessionId, turnId: turn.turnId };
      }),
    }));
  }

  /** The rows that the model reads: since the last compaction, that row included, in order. */
  transcript(sessionId: string): StoredRow[] {
    const from = this.#tables.sessions.get(sessionId)?.compactionRowId ?? 0;
    return this.#transcript.read(sessionId, {
      after: from - 1,
      before: Number.MAX_SAFE_INTEGER,
      order: "ascending",
      limit: -1,
    });
  }

  #create(request: CreationRequest): Reply {
    const { creation, fingerprint, decision } = request;
    const { operationId } = creation;
    const { clock, database, sessions } = this.#tables;
    const now = clock.now();
    const common = {
      operationId,
      fingerprint,
      kind: "session_create",
      submissionId: null,
    } as const;
    const rejection = "rejection" in decision ? decision.rejection : this.#orphan(creation);
    if (rejection !== null || "rejection" in decision) {
      const refused = rejection ?? { code: "parent_invalid" };
      return this.#operations.reject({ ...common, target: null }, refused, now);
    }
    const { sessionId, workspace, model } = decision;
    const admission: Admission = { operationId, sessionId, status: "accepted", acceptedAt: now };
    const { reply, decision: number } = this.#operations.record(
      {
        ...common,
        target: sessionId,
        admission: "accepted",
        httpStatus: 201,
        body: JSON.stringify(admission),
      },
      now,
    );
    if (number === null) return reply;
    const { title, parentId, settings } = creation;
    sessions.insert({ id: sessionId, parentId, title, workspace, model, settings }, now);
    database.points.reached("create.after_session");
    return reply;
  }

  #orphan({ parentId }: Creation): Rejection | null {
    if (parentId === null || this.#tables.sessions.has(parentId)) return null;
    return { code: "parent_invalid", detail: "There is no session with the id of the parent" };
  }

  #consume(request: ConsumeRequest): Consumption {
    const { sessionId, turnId } = request;
    const { database } = this.#tables;
    const draft = this.#draft(sessionId);
    const taken = this.#take(request);
    if (taken.length === 0 && request.inputs.length > 0)
      return { consumed: [], rows: [], turn: null };
    const turn = request.startsTurn
      ? this.#tables.turns.start(turnId, sessionId, draft.lastRowId, draft.now)
      : this.#running(sessionId, turnId);
    // The head of the queue has gone, so what held it up is over.
    draft.blockingReason = null;
    for (const { input, fittings } of taken) {
      this.#consumeOne(draft, turn, input, fittings);
      database.points.reached("consume.after_input");
    }
    this.#append(draft, turnId, request.rows ?? []);
    database.points.reached("consume.after_rows");
    this.#finish(draft, turn, request);
    return {
      consumed: taken.map(({ input }) => input.operationId),
      rows: draft.rows,
      turn: this.#tables.turns.get(turnId),
    };
  }

  /** The asked inputs that still wait; they are the head of the queue. */
  #take(request: ConsumeRequest): { input: PendingRecord; fittings: ConsumedInput["fittings"] }[] {
    if (request.inputs.length === 0) return [];
    const asked = new Map(request.inputs.map((input) => [input.operationId, input.fittings]));
    const queue = this.#tables.pending.list(request.sessionId);
    const head = queue.slice(0, queue.filter(({ operationId }) => asked.has(operationId)).length);
    return head.map((input) => {
      const fittings = asked.get(input.operationId);
      assert(fittings !== undefined, "Inputs are consumed from the head of the queue");
      return { input, fittings };
    });
  }

  #consumeOne(
    draft: Draft,
    turn: RunningTurn,
    input: PendingRecord,
    fittings: ConsumedInput["fittings"],
  ): void {
    const { turns, receipts, pending } = this.#tables;
    const rowId = this.#nextRowId(draft);
    const place = { sessionId: draft.session.id, rowId, turnId: turn.turnId, now: draft.now };
    draft.rows.push(this.#transcript.appendInput(place, input, fittings));
    turns.join(turn, input.operationId);
    receipts.markCommitted(input.operationId, draft.now);
    pending.remove(draft.session.id, input.decision);
  }

  #commit(request: CommitRequest): Committed {
    const { sessionId, turnId } = request;
    const draft = this.#draft(sessionId);
    const turn = turnId === null ? null : this.#running(sessionId, turnId);
    this.#append(draft, turnId, request.rows);
    this.#tables.database.points.reached("commit.after_rows");
    this.#finish(draft, turn, request);
    return {
      rows: draft.rows,
      turn: turnId === null ? null : this.#tables.turns.get(turnId),
    };
  }

  #remove(sessionId: string, recursive: boolean): Cancelled[] {
    const { sessions, turns, receipts, clock, database } = this.#tables;
    const family = sessions.family(sessionId);
    if (family.length === 0) throw new Problem("session_not_found");
    if (family.length > 1 && !recursive) throw new Problem("session_has_children");
    const now = clock.now();
    return family.toReversed().map((member) => {
      const cancelled = this.#operations.cancelIn(member, null);
      const running = turns.running(member);
      const members = running === null ? [] : turns.members(running.turn);
      for (const operationId of members) receipts.settle(operationId, now);
      database.points.reached("remove.after_cancel");
      sessions.remove(member);
      return { sessionId: member, cancelled };
    });
  }

  /** @throws {Problem} session_not_found */
  #draft(sessionId: string): Draft {
    const session = this.#tables.sessions.require(sessionId);
    const now = this.#tables.clock.now();
    const { lastRowId, blockingReason } = session;
    return { session, now, lastRowId, compactionRowId: null, blockingReason, rows: [] };
  }

  #running(sessionId: string, turnId: string): RunningTurn {
    const turn = this.#tables.turns.running(sessionId);
    assert(turn !== null && turn.turnId === turnId, "A commit belongs to the running turn");
    return turn;
  }

  #nextRowId(draft: Draft): number {
    draft.lastRowId += 1;
    return draft.lastRowId;
  }

  #append(draft: Draft, turnId: string | null, rows: readonly NewRow[]): void {
    for (const row of rows) {
      const rowId = this.#nextRowId(draft);
      const place = { sessionId: draft.session.id, rowId, turnId, now: draft.now };
      draft.rows.push(this.#transcript.append(place, row));
      if (row.role === "compaction") draft.compactionRowId = rowId;
    }
  }

  /** Ends the turn where that is asked for, and writes the session once. */
  #finish(draft: Draft, turn: RunningTurn | null, request: ConsumeRequest | CommitRequest): void {
    if (request.session !== undefined) this.#tables.sessions.change(draft.session, request.session);
    if (turn === null) {
      assert(request.end === undefined, "Only a turn can end");
      this.#write(draft, draft.session.phase, draft.session.activityAt);
      return;
    }
    if (request.end === undefined) {
      // Activity is when a turn begins, takes input or ends; a step in between is not worth an index entry.
      const { activityAt } = draft.session;
      this.#write(draft, "running", "inputs" in request ? draft.now : activityAt);
      return;
    }
    this.#end(draft, turn, request.end);
    this.#write(draft, request.end.state === "interrupted" ? "interrupted" : "idle", draft.now);
  }

  #end(draft: Draft, turn: RunningTurn, end: TurnEnd): void {
    const { turns, receipts } = this.#tables;
    const open = this.#transcript.openCalls(turn.sessionId, turn.rowFloor, turn.turnId);
    const status = "interrupted";
    const results = open.map((call) => ({
      ...call,
      role: "tool_result" as const,
      text: INTERRUPTED_RESULT,
      status: status as typeof status,
    }));
    this.#append(draft, turn.turnId, results);
    turns.end(turn, end, draft.now);
    for (const operationId of turns.members(turn.turn)) receipts.settle(operationId, draft.now);
  }

  #write(draft: Draft, phase: SessionRecord["phase"], activityAt: number): void {
    this.#tables.sessions.advance(draft.session.id, {
      lastRowId: draft.lastRowId,
      compactionRowId: draft.compactionRowId,
      phase,
      blockingReason: draft.blockingReason,
      activityAt,
    });
  }
}
