import { assert } from "../base/assert.ts";
import { uuidv7Timestamp } from "../base/ids.ts";
import {
  OPERATION_AGE_MS_MAX,
  OPERATION_FUTURE_MS_MAX,
  RECEIPT_RETENTION_MS,
  RECEIPT_SWEEP_BATCH_MAX,
} from "../base/limits.ts";
import type { DeliveryStatus, OperationKind } from "../wire/operation.ts";
import { Problem } from "../wire/problem.ts";
import type { Database } from "./database.ts";

/**
 * Owns the table of receipts and the retention floor (operations.md, Query and retention; contract.md, Identity and
 * time). Everything that writes here runs inside of a transaction of someone above.
 *
 * I1  A receipt is never changed once it has expired, and its decision never at all.
 * I2  A receipt that waits has no end; one that is settled ends 7 days later, but never before 7 days after its
 *     id's own timestamp.
 * I3  The floor never goes down, and no receipt above it was ever removed.
 */
export interface StoredOperation {
  /** The acceptance number. */
  readonly decision: number;
  readonly operationId: string;
  readonly fingerprint: string;
  readonly kind: OperationKind;
  readonly target: string | null;
  /** The explicit owner; `null` where the operation owns itself. */
  readonly submissionId: string | null;
  readonly createdAt: number;
  readonly admission: "accepted" | "rejected";
  readonly httpStatus: number;
  readonly body: string;
  readonly deliveryStatus: DeliveryStatus | null;
  readonly committedAt: number | null;
  readonly settledAt: number | null;
  readonly expiresAt: number | null;
}

export interface NewDecision {
  readonly operationId: string;
  readonly fingerprint: string;
  readonly kind: OperationKind;
  readonly target: string | null;
  readonly submissionId: string | null;
  readonly admission: "accepted" | "rejected";
  readonly httpStatus: number;
  readonly body: string;
}

const COLUMNS = `decision, operation_id AS operationId, fingerprint, kind, target, submission_id AS submissionId,
  created_at AS createdAt, admission, http_status AS httpStatus, body, delivery_status AS deliveryStatus,
  committed_at AS committedAt, settled_at AS settledAt, expires_at AS expiresAt`;

const FIND = `SELECT ${COLUMNS} FROM operations WHERE operation_id = ?1`;
const INSERT = `
  INSERT INTO operations (operation_id, fingerprint, kind, target, submission_id, created_at, admission, http_status,
    body, delivery_status, settled_at, expires_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
  ON CONFLICT (operation_id) DO NOTHING`;
const COMMIT = `
  UPDATE operations SET delivery_status = 'committed', committed_at = ?2
  WHERE operation_id = ?1 AND delivery_status = 'pending'`;
const CANCEL = `
  UPDATE operations SET delivery_status = 'cancelled', settled_at = ?2, expires_at = ?3
  WHERE operation_id = ?1 AND delivery_status = 'pending'`;
const SETTLE = `
  UPDATE operations SET settled_at = ?2, expires_at = ?3
  WHERE operation_id = ?1 AND delivery_status = 'committed' AND settled_at IS NULL`;
const OWNED = `
  SELECT operation_id AS operationId, decision FROM operations
  WHERE operation_id = ?2 AND target = ?1 AND delivery_status IS NOT NULL
  UNION
  SELECT operation_id AS operationId, decision FROM operations
  WHERE submission_id = ?2 AND target = ?1 AND delivery_status IS NOT NULL
  ORDER BY decision`;
const ANY_EXPIRED = "SELECT 1 AS found FROM operations WHERE expires_at < ?1 LIMIT 1";
const REMOVE_EXPIRED = `
  DELETE FROM operations WHERE decision IN (
    SELECT decision FROM operations WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2
  )`;
const FLOOR = "SELECT floor FROM retention WHERE singleton = 1";
/** Of an id that is young: only a clock that is set back brings such a one below the floor. */
const BELOW_FLOOR =
  "The operation id is not newer than the receipts that were removed while this machine's clock was ahead";
const RAISE_FLOOR = "UPDATE retention SET floor = max(floor, ?1) WHERE singleton = 1";

/** When a receipt that settled at `settledAt` may go (contract.md, Identity and time). */
export function expiryOf(operationId: string, settledAt: number): number {
  return Math.max(settledAt, uuidv7Timestamp(operationId)) + RECEIPT_RETENTION_MS;
}

export class Receipts {
  readonly #database: Database;
  #floor: number | null = null;
  #floorMoves = false;

  constructor(database: Database) {
    this.#database = database;
  }

  find(operationId: string): StoredOperation | null {
    return this.#database.query<StoredOperation>(FIND).get(operationId);
  }

  /**
   * Records a decision, unless there is one under this id; an accepted submission waits, all else is settled at once.
   *
   * @returns the decision's number; `null` where the id was decided before, and then nothing was written
   */
  insert(decision: NewDecision, now: number): number | null {
    const waits = decision.admission === "accepted" && decision.kind !== "session_create";
    const done = this.#database
      .query(INSERT)
      .run(
        decision.operationId,
        decision.fingerprint,
        decision.kind,
        decision.target,
        decision.submissionId,
        now,
        decision.admission,
        decision.httpStatus,
        decision.body,
        waits ? "pending" : null,
        waits ? null : now,
        waits ? null : expiryOf(decision.operationId, now),
      );
    return done.changes === 0 ? null : Number(done.lastInsertRowid);
  }

  /** The input is in the transcript; it settles with its turn. */
  markCommitted(operationId: string, now: number): void {
    const { changes } = this.#database.query(COMMIT).run(operationId, now);
    assert(changes === 1, "A committed input must have been waiting");
  }

  markCancelled(operationId: string, now: number): void {
    const { changes } = this.#database
      .query(CANCEL)
      .run(operationId, now, expiryOf(operationId, now));
    assert(changes === 1, "A cancelled input must have been waiting");
  }

  /** The turn of a committed input has ended. A receipt that has settled before keeps its time. */
  settle(operationId: string, now: number): void {
    this.#database.query(SETTLE).run(operationId, now, expiryOf(operationId, now));
  }

  /** The accepted inputs of the session that `id` names or owns, in acceptance order. */
  ownedBy(sessionId: string, id: string): string[] {
    return this.#database
      .query<{ operationId: string }>(OWNED)
      .all(sessionId, id)
      .map(({ operationId }) => operationId);
  }

  /** Why an unknown id is refused for its age; `null` where it is not. */
  ageRefusal(operationId: string, now: number): Problem | null {
    const timestamp = uuidv7Timestamp(operationId);
    if (now - timestamp > OPERATION_AGE_MS_MAX) {
      return new Problem("operation_expired", "The operation id is older than seven days");
    }
    if (timestamp <= this.floor()) return new Problem("operation_expired", BELOW_FLOOR);
    if (timestamp - now > OPERATION_FUTURE_MS_MAX) {
      return new Problem("operation_future", "The operation id lies more than five minutes ahead");
    }
    return null;
  }

  /** Kept in memory, as every admission asks for it; but not while a sweep may yet be rolled back. */
  floor(): number {
    if (this.#floor !== null) return this.#floor;
    const floor = this.#database.query<{ floor: number }>(FLOOR).get()?.floor ?? 0;
    if (!this.#floorMoves) this.#floor = floor;
    return floor;
  }

  /** The sweep that called `removeExpired` has settled, in whatever way. */
  floorSettled(): void {
    this.#floorMoves = false;
  }

  /** Whether a sweep at `now` would find anything; costs no write. */
  anyExpired(now: number): boolean {
    return this.#database.query(ANY_EXPIRED).get(now) !== null;
  }

  /**
   * Removes one batch and raises the floor over what was removed; `floorSettled` is to follow, after the transaction.
   *
   * @returns how many went
   */
  removeExpired(now: number): number {
    this.#floor = null;
    this.#floorMoves = true;
    const removed = this.#database.query(REMOVE_EXPIRED).run(now, RECEIPT_SWEEP_BATCH_MAX).changes;
    this.#database.query(RAISE_FLOOR).run(now - RECEIPT_RETENTION_MS - 1);
    assert(removed <= RECEIPT_SWEEP_BATCH_MAX, "A sweep went over its batch");
    return removed;
  }
}
