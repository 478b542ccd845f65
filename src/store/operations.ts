import type { Clock } from "../base/clock.ts";
import { WAITING_INPUTS_MAX } from "../base/limits.ts";
import type { Input } from "../wire/input.ts";
import type { Admission, Receipt } from "../wire/operation.ts";
import { PROBLEM_STATUS, Problem, problemBody, type ProblemCode } from "../wire/problem.ts";
import type { SubmissionKind } from "../wire/submission.ts";
import type { Database } from "./database.ts";
import type { Images, NewImage } from "./images.ts";
import { fromJson } from "./json.ts";
import type { PendingInputs } from "./pending.ts";
import type { NewDecision, Receipts, StoredOperation } from "./receipts.ts";
import { inputKind } from "./render.ts";
import type { PendingRecord } from "./rows.ts";
import type { SessionTable } from "./sessions.ts";
import type { Turns } from "./turns.ts";

/**
 * Owns admission: receipts and pending inputs change here and in the transactions of `conversation.ts`, nowhere else
 * (operations.md, Ownership and atomicity).
 *
 * I1  An id is decided once: the insert of its receipt is the first write of the transaction that decides, and finds
 *     the one that is there.
 * I2  An accepted receipt and what it accepted are written together or not at all.
 * I3  The answer that goes out is the one that is stored.
 */

/** An answer to an admission, as it goes out. */
export interface Reply {
  readonly status: number;
  /** The exact body. */
  readonly body: string;
  readonly contentType: "application/json" | "application/problem+json";
  /** Of an accepted creation. */
  readonly location: string | null;
  readonly replayed: boolean;
}

/** A refusal that is recorded and replays. */
export interface Rejection {
  readonly code: ProblemCode;
  readonly detail?: string;
}

/** A submission with everything resolved that its first execution resolves. */
export interface PreparedInput {
  readonly displayText: string;
  /** What the model will read; `null` for a continuation or a command. */
  readonly modelText: string | null;
  readonly images: readonly NewImage[];
  /** Of a skill or a command. */
  readonly name?: string;
  readonly arguments?: string;
}

export interface AdmissionRequest {
  readonly submission: {
    readonly operationId: string;
    readonly sessionId: string;
    readonly kind: SubmissionKind;
    /** The explicit owner; `null` where the operation owns itself. */
    readonly submissionId: string | null;
    readonly clientId: string | null;
  };
  readonly fingerprint: string;
  /** `null` only together with a rejection. */
  readonly prepared: PreparedInput | null;
  readonly rejection: Rejection | null;
}

/** The tables that an operation touches. */
export interface OperationTables {
  readonly database: Database;
  readonly clock: Clock;
  readonly receipts: Receipts;
  readonly pending: PendingInputs;
  readonly sessions: SessionTable;
  readonly turns: Turns;
  readonly images: Images;
}

export class Operations {
  readonly #tables: OperationTables;

  constructor(tables: OperationTables) {
    this.#tables = tables;
  }

  find(operationId: string): StoredOperation | null {
    return this.#tables.receipts.find(operationId);
  }

  /** @throws {Problem} operation_expired, operation_future, operation_unknown */
  receipt(operationId: string): Receipt {
    const found = this.find(operationId);
    if (found !== null) return this.#render(found);
    this.assertAge(operationId, this.#tables.clock.now());
    throw new Problem("operation_unknown");
  }

  /** Refuses an id without a receipt by its age. @throws {Problem} operation_expired, operation_future */
  assertAge(operationId: string, now: number): void {
    const refusal = this.#tables.receipts.ageRefusal(operationId, now);
    if (refusal !== null) throw refusal;
  }

  /** The stored answer, `null` where nothing is decided; reads only. @throws {Problem} operation_conflict */
  replay(operationId: string, fingerprint: string): Reply | null {
    const found = this.find(operationId);
    if (found === null) return null;
    if (found.fingerprint !== fingerprint) throw new Problem("operation_conflict");
    return replyOf(found, true);
  }

  /**
   * Decides a submission, once: replays, rejects on record, or accepts and lets it wait.
   *
   * @param onAccepted runs right after the commit, only where this call accepted
   * @throws {Problem} operation_conflict, operation_expired, operation_future, storage_unavailable
   */
  async admit(
    request: AdmissionRequest,
    onAccepted?: (pending: PendingRecord) => void,
  ): Promise<Reply> {
    const { reply } = await this.#tables.database.write(
      () => this.#admit(request),
      ({ accepted }) => {
        if (accepted !== null) onAccepted?.(accepted);
      },
    );
    return reply;
  }

  /** In acceptance order. */
  pending(sessionId: string): PendingRecord[] {
    return this.#tables.pending.list(sessionId);
  }

  pendingCount(sessionId: string): number {
    return this.#tables.pending.count(sessionId);
  }

  sessionsWithPending(): string[] {
    return this.#tables.pending.sessions();
  }

  /** An accepted input; one of a deleted session has no turn any more. */
  input(sessionId: string, inputId: string): Input | null {
    const found = this.find(inputId);
    if (found === null || found.target !== sessionId) return null;
    if (found.kind === "session_create" || found.deliveryStatus === null) return null;
    const blockingReason = this.#blockingReason(found);
    const turn = this.#tables.turns.ofInput(inputId);
    return {
      id: inputId,
      session_id: sessionId,
      kind: inputKind(found.kind),
      state: found.deliveryStatus,
      ...(blockingReason === null ? {} : { blocking_reason: blockingReason }),
      accepted_at: found.createdAt,
      ...(found.committedAt === null ? {} : { committed_at: found.committedAt }),
      ...(turn === null ? {} : { turn }),
    };
  }

  /** The accepted inputs of the session that `id` names or owns, in acceptance order. */
  ownedBy(sessionId: string, id: string): string[] {
    return this.#tables.receipts.ownedBy(sessionId, id);
  }

  /** Cancels those that still wait; the value is their ids, in acceptance order. */
  cancelWaiting(
    sessionId: string,
    operationIds: readonly string[],
    effect?: (cancelled: string[]) => void,
  ): Promise<string[]> {
    const asked = new Set(operationIds);
    return this.#tables.database.write(() => this.cancelIn(sessionId, asked), effect);
  }

  /** Says why the session's waiting inputs wait; `null` where nothing holds them up, as in an empty queue. */
  setBlocking(sessionId: string, reason: string | null): Promise<void> {
    const { database, sessions } = this.#tables;
    return database.write(() =>
      sessions.block(sessionId, this.pendingCount(sessionId) === 0 ? null : reason),
    );
  }

  /** Removes one batch of expired receipts; the value is how many. Costs no write where none has expired. */
  async sweep(now: number): Promise<number> {
    const { database, receipts } = this.#tables;
    if (!receipts.anyExpired(now)) return 0;
    try {
      return await database.write(() => {
        const removed = receipts.removeExpired(now);
        database.points.reached("sweep.after_delete");
        return removed;
      });
    } finally {
      receipts.floorSettled();
    }
  }

  floor(): number {
    return this.#tables.receipts.floor();
  }

  /** Records a refusal, or replays. In a transaction. @throws as `record` */
  reject(
    decision: Omit<NewDecision, "admission" | "httpStatus" | "body">,
    rejection: Rejection,
    now: number,
  ): Reply {
    const body = JSON.stringify(problemBody(rejection.code, rejection.detail));
    const httpStatus = PROBLEM_STATUS[rejection.code];
    return this.record({ ...decision, admission: "rejected", httpStatus, body }, now).reply;
  }

  /**
   * Records a decision, or replays the one that was made before. In a transaction, before any other write of it.
   *
   * @returns the decision's number; `null` where it is not this one that stands
   * @throws {Problem} operation_conflict, operation_expired, operation_future
   */
  record(decision: NewDecision, now: number): { reply: Reply; decision: number | null } {
    const { operationId, fingerprint } = decision;
    const { receipts, database } = this.#tables;
    const refusal = receipts.ageRefusal(operationId, now);
    const number = refusal === null ? receipts.insert(decision, now) : null;
    if (number === null) {
      const known = this.replay(operationId, fingerprint);
      if (known !== null) return { reply: known, decision: null };
      throw refusal ?? new TypeError("A receipt that is there was not found");
    }
    database.points.reached("operations.after_receipt");
    return { reply: replyOf(decision, false), decision: number };
  }

  /** Cancels the waiting inputs of the session, or those asked for; the value is their ids. In a transaction. */
  cancelIn(sessionId: string, asked: ReadonlySet<string> | null): string[] {
    const { pending, receipts, images, sessions, database } = this.#tables;
    const now = this.#tables.clock.now();
    const waiting = pending.waiting(sessionId);
    const cancelled = waiting.filter(({ operationId }) => asked === null || asked.has(operationId));
    for (const { operationId, decision } of cancelled) {
      receipts.markCancelled(operationId, now);
      database.points.reached("cancel.after_receipt");
      pending.remove(sessionId, decision);
      images.remove(operationId);
    }
    // What held the queue up says nothing about an empty one.
    if (cancelled.length > 0 && cancelled.length === waiting.length)
      sessions.block(sessionId, null);
    return cancelled.map(({ operationId }) => operationId);
  }

  #admit(request: AdmissionRequest): { reply: Reply; accepted: PendingRecord | null } {
    const { submission, fingerprint } = request;
    const now = this.#tables.clock.now();
    const decision = {
      operationId: submission.operationId,
      fingerprint,
      kind: submission.kind,
      target: submission.sessionId,
      submissionId: submission.submissionId,
    };
    const rejection = this.#rejection(request);
    if (rejection !== null) {
      return { reply: this.reject(decision, rejection, now), accepted: null };
    }
    if (request.prepared === null) throw new TypeError("An admission needs a prepared input");
    return this.#accept(submission, decision, request.prepared, now);
  }

  #rejection({ submission, rejection }: AdmissionRequest): Rejection | null {
    const waiting = this.#tables.sessions.waiting(submission.sessionId);
    if (waiting === null) return { code: "session_not_found" };
    if (rejection !== null) return rejection;
    // A restored queue may hold more than the limit; it takes nothing until it is below.
    if (waiting < WAITING_INPUTS_MAX) return null;
    return { code: "queue_full", detail: `The session holds ${WAITING_INPUTS_MAX} waiting inputs` };
  }

  #accept(
    submission: AdmissionRequest["submission"],
    decision: Omit<NewDecision, "admission" | "httpStatus" | "body">,
    prepared: PreparedInput,
    now: number,
  ): { reply: Reply; accepted: PendingRecord | null } {
    const { operationId, sessionId, kind } = submission;
    const admission: Admission = { operationId, sessionId, status: "accepted", acceptedAt: now };
    const body = JSON.stringify(admission);
    const recorded = this.record(
      { ...decision, admission: "accepted", httpStatus: 202, body },
      now,
    );
    if (recorded.decision === null) return { reply: recorded.reply, accepted: null };
    const accepted: PendingRecord = {
      decision: recorded.decision,
      operationId,
      sessionId,
      kind,
      source: kind === "message" ? "user" : kind,
      submissionId: submission.submissionId ?? operationId,
      clientId: submission.clientId?.toWellFormed() ?? null,
      displayText: prepared.displayText.toWellFormed(),
      modelText: prepared.modelText?.toWellFormed() ?? null,
      name: prepared.name?.toWellFormed() ?? null,
      arguments: prepared.arguments?.toWellFormed() ?? null,
      images: this.#tables.images.add(sessionId, operationId, prepared.images),
      acceptedAt: now,
    };
    this.#tables.pending.insert(accepted);
    this.#tables.database.points.reached("admit.after_pending");
    return { reply: recorded.reply, accepted };
  }

  #blockingReason(operation: StoredOperation): string | null {
    if (operation.deliveryStatus !== "pending" || operation.target === null) return null;
    return this.#tables.sessions.get(operation.target)?.blockingReason ?? null;
  }

  #render(operation: StoredOperation): Receipt {
    const blockingReason = this.#blockingReason(operation);
    const document = fromJson(operation.body);
    return {
      operationId: operation.operationId,
      fingerprint: operation.fingerprint,
      kind: operation.kind,
      target: operation.target,
      createdAt: operation.createdAt,
      admission: operation.admission,
      httpStatus: operation.httpStatus,
      ...(operation.admission === "accepted"
        ? { result: document as Receipt["result"] }
        : { error: document as Receipt["error"] }),
      ...(operation.deliveryStatus === null ? {} : { deliveryStatus: operation.deliveryStatus }),
      ...(blockingReason === null ? {} : { blockingReason }),
      ...(operation.settledAt === null ? {} : { settledAt: operation.settledAt }),
      ...(operation.expiresAt === null ? {} : { expiresAt: operation.expiresAt }),
    };
  }
}

type Answer = Pick<StoredOperation, "kind" | "target" | "admission" | "httpStatus" | "body">;

function replyOf(answer: Answer, replayed: boolean): Reply {
  const accepted = answer.admission === "accepted";
  return {
    status: answer.httpStatus,
    body: answer.body,
    contentType: accepted ? "application/json" : "application/problem+json",
    location: accepted && answer.kind === "session_create" ? `/sessions/${answer.target}` : null,
    replayed,
  };
}
