import { assert } from "../base/assert.ts";
import type { Database } from "./database.ts";
import type { Images } from "./images.ts";
import type { PendingRecord } from "./rows.ts";

/**
 * Owns the table of inputs that wait. An input is here exactly as long as its receipt says `pending`; `operations.ts`
 * and `conversation.ts` change both in one transaction.
 */
type PendingRow = Omit<PendingRecord, "images">;

const INSERT = `
  INSERT INTO pending_inputs (session_id, decision, operation_id, kind, source, display_text, model_text, name,
    arguments, client_id, submission_id, accepted_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`;
const LIST = `
  SELECT decision, operation_id AS operationId, session_id AS sessionId, kind, source, submission_id AS submissionId,
    client_id AS clientId, display_text AS displayText, model_text AS modelText, name, arguments,
    accepted_at AS acceptedAt
  FROM pending_inputs WHERE session_id = ?1 ORDER BY decision`;
const WAITING =
  "SELECT operation_id AS operationId, decision FROM pending_inputs WHERE session_id = ?1 ORDER BY decision";
const COUNT = "SELECT count(*) AS waiting FROM pending_inputs WHERE session_id = ?1";
const SESSIONS = "SELECT DISTINCT session_id AS sessionId FROM pending_inputs ORDER BY session_id";
const REMOVE = "DELETE FROM pending_inputs WHERE session_id = ?1 AND decision = ?2";

export interface WaitingInput {
  readonly operationId: string;
  readonly decision: number;
}

export class PendingInputs {
  readonly #database: Database;
  readonly #images: Images;

  constructor(database: Database, images: Images) {
    this.#database = database;
    this.#images = images;
  }

  /** In a transaction, after the receipt, whose number it takes. */
  insert(record: PendingRecord): void {
    this.#database
      .query(INSERT)
      .run(
        record.sessionId,
        record.decision,
        record.operationId,
        record.kind,
        record.source,
        record.displayText,
        record.modelText,
        record.name,
        record.arguments,
        record.clientId,
        record.submissionId,
        record.acceptedAt,
      );
  }

  /** In acceptance order. */
  list(sessionId: string): PendingRecord[] {
    return this.#database
      .query<PendingRow>(LIST)
      .all(sessionId)
      .map((row) => ({ ...row, images: this.#images.ofInput(row.operationId) }));
  }

  /** Who waits, in acceptance order, without what they hold. */
  waiting(sessionId: string): WaitingInput[] {
    return this.#database.query<WaitingInput>(WAITING).all(sessionId);
  }

  count(sessionId: string): number {
    return this.#database.query<{ waiting: number }>(COUNT).get(sessionId)?.waiting ?? 0;
  }

  sessions(): string[] {
    return this.#database
      .query<{ sessionId: string }>(SESSIONS)
      .all()
      .map(({ sessionId }) => sessionId);
  }

  /** In a transaction. */
  remove(sessionId: string, decision: number): void {
    const { changes } = this.#database.query(REMOVE).run(sessionId, decision);
    assert(changes === 1, "An input that stops waiting must have been waiting");
  }
}
