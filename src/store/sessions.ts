import { assert } from "../base/assert.ts";
import { Problem } from "../wire/problem.ts";
import type { SessionPatch, Settings } from "../wire/submission.ts";
import type { Database } from "./database.ts";
import { sha256Hex } from "./fingerprint.ts";
import { fromJson, toJson } from "./json.ts";
import type { SessionListRecord, SessionRecord, StoredPhase } from "./rows.ts";

/**
 * Owns the table of sessions: their writable part, their place in the family and in the list. Creation and removal
 * are transactions of `conversation.ts`, which calls the methods that say so.
 */
interface SessionColumns {
  readonly id: string;
  readonly parentId: string | null;
  readonly title: string | null;
  readonly workspace: string;
  readonly model: string;
  readonly settings: string;
  readonly phase: StoredPhase;
  readonly blockingReason: string | null;
  readonly lastRowId: number;
  readonly compactionRowId: number | null;
  readonly createdAt: number;
  readonly activityAt: number;
}

/** Where a page of the list goes on: behind this entry. */
export interface SessionCursor {
  readonly activityAt: number;
  readonly sessionId: string;
}

export interface NewSession {
  readonly id: string;
  readonly parentId: string | null;
  readonly title: string | null;
  readonly workspace: string;
  readonly model: string;
  readonly settings: Settings;
}

/** What a transaction on the transcript changes of its session. */
export interface SessionAdvance {
  readonly lastRowId: number;
  /** `null` leaves it where it is. */
  readonly compactionRowId: number | null;
  readonly phase: StoredPhase;
  readonly blockingReason: string | null;
  readonly activityAt: number;
}

const COLUMNS = `session_id AS id, parent_id AS parentId, title, workspace, model, settings, phase,
  blocking_reason AS blockingReason, last_row_id AS lastRowId, compaction_row_id AS compactionRowId,
  created_at AS createdAt, activity_at AS activityAt`;
const GET = `SELECT ${COLUMNS} FROM sessions WHERE session_id = ?1`;
const HAS = "SELECT 1 AS found FROM sessions WHERE session_id = ?1";
const WAITING = `
  SELECT (SELECT count(*) FROM pending_inputs WHERE pending_inputs.session_id = sessions.session_id) AS waiting
  FROM sessions WHERE session_id = ?1`;
const LIST_COLUMNS = `${COLUMNS},
  (SELECT count(*) FROM pending_inputs WHERE pending_inputs.session_id = sessions.session_id) AS pendingCount`;
const LIST_FIRST = `
  SELECT ${LIST_COLUMNS} FROM sessions ORDER BY activity_at DESC, session_id DESC LIMIT ?1`;
const LIST_AFTER = `
  SELECT ${LIST_COLUMNS} FROM sessions WHERE (activity_at, session_id) < (?2, ?3)
  ORDER BY activity_at DESC, session_id DESC LIMIT ?1`;
const CHILDREN = `
  SELECT session_id AS id FROM sessions WHERE parent_id = ?1 ORDER BY created_at, session_id`;
const INSERT = `
  INSERT INTO sessions (session_id, parent_id, title, workspace, model, settings, phase, created_at, activity_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'idle', ?7, ?7)`;
const ADVANCE = `
  UPDATE sessions SET last_row_id = ?2, compaction_row_id = coalesce(?3, compaction_row_id), phase = ?4,
    blocking_reason = ?5, activity_at = ?6
  WHERE session_id = ?1`;
const WRITE = "UPDATE sessions SET title = ?2, model = ?3, settings = ?4 WHERE session_id = ?1";
const BLOCK = "UPDATE sessions SET blocking_reason = ?2 WHERE session_id = ?1";
const REMOVE = "DELETE FROM sessions WHERE session_id = ?1";

/** An entity tag over the writable part: title, model and settings. */
export function sessionEtag(record: SessionRecord): string {
  const settings = Object.entries(record.settings).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const writable = toJson([record.title, record.model, settings]);
  return `"${sha256Hex(writable).slice(0, 32)}"`;
}

/** Whether an `If-Match` header admits the tag (RFC 9110 §13.1.1); a weak tag never matches. */
function matches(ifMatch: string, etag: string): boolean {
  return ifMatch.split(",").some((part) => part.trim() === "*" || part.trim() === etag);
}

export class SessionTable {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get(sessionId: string): SessionRecord | null {
    const columns = this.#database.query<SessionColumns>(GET).get(sessionId);
    return columns === null ? null : fromColumns(columns);
  }

  /** Cheaper than `get`. */
  has(sessionId: string): boolean {
    return this.#database.query(HAS).get(sessionId) !== null;
  }

  /** How many inputs wait; `null` where there is no such session. */
  waiting(sessionId: string): number | null {
    return this.#database.query<{ waiting: number }>(WAITING).get(sessionId)?.waiting ?? null;
  }

  /** @throws {Problem} session_not_found */
  require(sessionId: string): SessionRecord {
    const record = this.get(sessionId);
    if (record === null) throw new Problem("session_not_found");
    return record;
  }

  /** Newest activity first. */
  list(options: { before: SessionCursor | null; limit: number }): SessionListRecord[] {
    const { before, limit } = options;
    type Columns = SessionColumns & { readonly pendingCount: number };
    const found =
      before === null
        ? this.#database.query<Columns>(LIST_FIRST).all(limit)
        : this.#database.query<Columns>(LIST_AFTER).all(limit, before.activityAt, before.sessionId);
    return found.map((columns) => ({
      ...fromColumns(columns),
      pendingCount: columns.pendingCount,
    }));
  }

  /** Direct children, oldest first. */
  children(sessionId: string): string[] {
    return this.#database
      .query<{ id: string }>(CHILDREN)
      .all(sessionId)
      .map(({ id }) => id);
  }

  /** The session and everything below it, parents before children; empty where there is no such session. */
  family(sessionId: string): string[] {
    if (this.get(sessionId) === null) return [];
    const found = [sessionId];
    // The list grows while it is walked; a session has one parent, so nothing comes twice.
    for (const member of found) found.push(...this.children(member));
    return found;
  }

  etag(record: SessionRecord): string {
    return sessionEtag(record);
  }

  /**
   * Changes the writable part. Settings are replaced as a whole, so that one can be taken back by leaving it out.
   *
   * @param expectedEtag the value of `If-Match`; `null` means any
   * @throws {Problem} session_not_found, precondition_failed, storage_unavailable
   */
  patch(
    sessionId: string,
    patch: SessionPatch,
    expectedEtag: string | null,
    effect?: (record: SessionRecord) => void,
  ): Promise<SessionRecord> {
    return this.#database.write(() => {
      const before = this.require(sessionId);
      if (expectedEtag !== null && !matches(expectedEtag, sessionEtag(before))) {
        throw new Problem("precondition_failed");
      }
      this.change(before, patch);
      return this.require(sessionId);
    }, effect);
  }

  /** In a transaction. */
  change(before: SessionRecord, patch: SessionPatch): void {
    const title = patch.title === undefined ? before.title : patch.title;
    const model = patch.model ?? before.model;
    const settings = patch.settings ?? before.settings;
    this.#database
      .query(WRITE)
      .run(before.id, title?.toWellFormed() ?? null, model.toWellFormed(), toJson(settings));
  }

  /** In the transaction of a creation. */
  insert(session: NewSession, now: number): void {
    this.#database
      .query(INSERT)
      .run(
        session.id,
        session.parentId,
        session.title?.toWellFormed() ?? null,
        session.workspace.toWellFormed(),
        session.model.toWellFormed(),
        toJson(session.settings),
        now,
      );
  }

  /** In a transaction on the transcript. */
  advance(sessionId: string, to: SessionAdvance): void {
    const { changes } = this.#database
      .query(ADVANCE)
      .run(sessionId, to.lastRowId, to.compactionRowId, to.phase, to.blockingReason, to.activityAt);
    assert(changes === 1, "A session that advances must be there");
  }

  /** In a transaction. A session that has gone is none to block. */
  block(sessionId: string, reason: string | null): void {
    this.#database.query(BLOCK).run(sessionId, reason);
  }

  /** In the transaction of a removal, children before parents; everything of the session goes along. */
  remove(sessionId: string): void {
    const { changes } = this.#database.query(REMOVE).run(sessionId);
    assert(changes >= 1, "A session that is removed must be there");
  }
}

function fromColumns(columns: SessionColumns): SessionRecord {
  return {
    id: columns.id,
    parentId: columns.parentId,
    title: columns.title,
    workspace: columns.workspace,
    model: columns.model,
    settings: fromJson(columns.settings) as Settings,
    phase: columns.phase,
    blockingReason: columns.blockingReason,
    lastRowId: columns.lastRowId,
    compactionRowId: columns.compactionRowId,
    createdAt: columns.createdAt,
    activityAt: columns.activityAt,
  };
}
