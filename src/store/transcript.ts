import { unreachable } from "../base/assert.ts";
import type { HistoryRole } from "../wire/history.ts";
import type { Database } from "./database.ts";
import type { Images, StoredImage } from "./images.ts";
import { fromJson, toJson } from "./json.ts";
import type { NewRow, PendingRecord, StoredRow, ToolStatus } from "./rows.ts";

/**
 * Owns transcript rows, the display metadata of committed inputs, and continuation markers. Rows and markers share
 * one increasing number a session, so that both together are the history. There is never a row a delta.
 */
interface RowColumns {
  readonly rowId: number;
  readonly role: HistoryRole;
  readonly turnId: string | null;
  readonly messageId: string | null;
  readonly liveId: string | null;
  readonly text: string | null;
  readonly toolCallId: string | null;
  readonly toolName: string | null;
  readonly toolStatus: ToolStatus | null;
  readonly payload: string | null;
  readonly createdAt: number;
  readonly operationId: string | null;
  readonly source: string | null;
  readonly displayText: string | null;
  readonly clientId: string | null;
  readonly images: string | null;
}

/** The column `payload`: what only some rows have. */
interface Payload {
  readonly input?: unknown;
  readonly metadata?: unknown;
}

const NO_PAYLOAD: Payload = {};

/** Which rows to read: those with `after < row id < before`, the nearest to where the order starts. */
export interface RowRange {
  readonly after: number;
  readonly before: number;
  readonly order: "ascending" | "descending";
  readonly limit: number;
}

const INSERT = `
  INSERT INTO transcript_rows (session_id, row_id, role, turn_id, message_id, live_id, text, tool_call_id, tool_name,
    tool_status, payload, created_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`;
const INSERT_DISPLAY = `
  INSERT INTO input_display (session_id, row_id, operation_id, source, display_text, client_id, images)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`;
const INSERT_MARKER = `
  INSERT INTO continuation_markers (session_id, row_id, operation_id, turn_id, client_id, created_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6)`;
/** Both use their index in its own order; one statement for both would sort each row again. */
const ROWS = (order: "ASC" | "DESC"): string => `
  SELECT r.row_id AS rowId, r.role AS role, r.turn_id AS turnId, r.message_id AS messageId, r.live_id AS liveId,
    r.text AS text, r.tool_call_id AS toolCallId, r.tool_name AS toolName, r.tool_status AS toolStatus,
    r.payload AS payload, r.created_at AS createdAt, d.operation_id AS operationId, d.source AS source,
    d.display_text AS displayText, d.client_id AS clientId, d.images AS images
  FROM transcript_rows AS r
  LEFT JOIN input_display AS d ON d.session_id = r.session_id AND d.row_id = r.row_id
  WHERE r.session_id = ?1 AND r.row_id > ?2 AND r.row_id < ?3
  ORDER BY r.row_id ${order} LIMIT ?4`;
const MARKERS = (order: "ASC" | "DESC"): string => `
  SELECT row_id AS rowId, 'continuation' AS role, turn_id AS turnId, NULL AS messageId, NULL AS liveId, NULL AS text,
    NULL AS toolCallId, NULL AS toolName, NULL AS toolStatus, NULL AS payload, created_at AS createdAt,
    operation_id AS operationId, NULL AS source, NULL AS displayText, client_id AS clientId, NULL AS images
  FROM continuation_markers
  WHERE session_id = ?1 AND row_id > ?2 AND row_id < ?3
  ORDER BY row_id ${order} LIMIT ?4`;
const RANGES = {
  ascending: [ROWS("ASC"), MARKERS("ASC")],
  descending: [ROWS("DESC"), MARKERS("DESC")],
} as const;
const OPEN_CALLS = `
  SELECT c.tool_call_id AS toolCallId, c.tool_name AS toolName
  FROM transcript_rows AS c
  WHERE c.session_id = ?1 AND c.row_id > ?2 AND c.role = 'tool_call' AND c.turn_id = ?3
    AND NOT EXISTS (
      SELECT 1 FROM transcript_rows AS a
      WHERE a.session_id = c.session_id AND a.row_id > c.row_id AND a.role = 'tool_result'
        AND a.turn_id = c.turn_id AND a.tool_call_id = c.tool_call_id
    )
  ORDER BY c.row_id`;

/** Where a row goes. */
export interface Place {
  readonly sessionId: string;
  readonly rowId: number;
  readonly turnId: string | null;
  readonly now: number;
}

const EMPTY = {
  messageId: null,
  liveId: null,
  text: null,
  display: null,
  operationId: null,
  clientId: null,
  toolCallId: null,
  toolName: null,
  toolStatus: null,
  toolInput: undefined,
  metadata: undefined,
} as const;

export class Transcript {
  readonly #database: Database;
  readonly #images: Images;

  constructor(database: Database, images: Images) {
    this.#database = database;
    this.#images = images;
  }

  /** In a transaction. The value is the row as a later read finds it. */
  append(place: Place, row: NewRow): StoredRow {
    const stored = { ...this.#at(place), ...fieldsOf(row), role: row.role };
    this.#insert(stored);
    return stored;
  }

  /** The row, or the marker, of an input that is consumed. In a transaction. */
  appendInput(
    place: Place & { readonly turnId: string },
    input: PendingRecord,
    fittings: readonly (StoredImage | null)[],
  ): StoredRow {
    const { operationId, clientId } = input;
    if (input.kind === "continue") {
      this.#database
        .query(INSERT_MARKER)
        .run(place.sessionId, place.rowId, operationId, place.turnId, clientId, place.now);
      return { ...this.#at(place), role: "continuation", operationId, clientId };
    }
    const row: StoredRow = { ...this.#at(place), role: "user", text: input.modelText };
    this.#insert(row);
    this.#insertDisplay(place, input);
    this.#images.attach(operationId, place.rowId, input.images, fittings);
    const images = this.#images.ofRow(place.sessionId, place.rowId);
    const { source, displayText } = input;
    return { ...row, display: { operationId, source, displayText, clientId, images } };
  }

  /** In the order that the range asks for. */
  read(sessionId: string, range: RowRange): StoredRow[] {
    const [rows, markers] = RANGES[range.order].map((sql) =>
      this.#database
        .query<RowColumns>(sql)
        .all(sessionId, range.after, range.before, range.limit)
        .map((row) => this.#fromColumns(sessionId, row)),
    );
    return merge(rows ?? [], markers ?? [], range);
  }

  /** Calls of the turn that have no result yet. */
  openCalls(
    sessionId: string,
    rowFloor: number,
    turnId: string,
  ): { toolCallId: string; toolName: string }[] {
    return this.#database
      .query<{ toolCallId: string; toolName: string }>(OPEN_CALLS)
      .all(sessionId, rowFloor, turnId);
  }

  #at({ sessionId, rowId, turnId, now }: Place): Omit<StoredRow, "role"> {
    return { ...EMPTY, sessionId, rowId, turnId, createdAt: now };
  }

  #insert(row: StoredRow): void {
    this.#database
      .query(INSERT)
      .run(
        row.sessionId,
        row.rowId,
        row.role,
        row.turnId,
        row.messageId,
        row.liveId,
        row.text,
        row.toolCallId,
        row.toolName,
        row.toolStatus,
        payloadOf(row),
        row.createdAt,
      );
  }

  #insertDisplay(place: Place, input: PendingRecord): void {
    const shown = input.images.map(({ mimeType, width, height, byteCount }) => ({
      mime_type: mimeType,
      width,
      height,
      bytes: byteCount,
    }));
    this.#database
      .query(INSERT_DISPLAY)
      .run(
        place.sessionId,
        place.rowId,
        input.operationId,
        input.source,
        input.displayText,
        input.clientId,
        shown.length === 0 ? null : toJson(shown),
      );
  }

  /** Field by field: a long transcript is read for each request to a model. */
  #fromColumns(sessionId: string, columns: RowColumns): StoredRow {
    const extra = columns.payload === null ? NO_PAYLOAD : (fromJson(columns.payload) as Payload);
    const display = this.#displayOf(sessionId, columns);
    return {
      sessionId,
      rowId: columns.rowId,
      role: columns.role,
      turnId: columns.turnId,
      messageId: columns.messageId,
      liveId: columns.liveId,
      text: columns.text,
      display,
      operationId: display === null ? columns.operationId : null,
      clientId: display === null ? columns.clientId : null,
      toolCallId: columns.toolCallId,
      toolName: columns.toolName,
      toolStatus: columns.toolStatus,
      toolInput: extra.input,
      metadata: extra.metadata,
      createdAt: columns.createdAt,
    };
  }

  #displayOf(sessionId: string, columns: RowColumns): StoredRow["display"] {
    const { operationId, source, displayText, clientId, images } = columns;
    if (operationId === null || source === null || displayText === null) return null;
    const shown = images === null ? [] : this.#images.ofRow(sessionId, columns.rowId);
    return { operationId, source, displayText, clientId, images: shown };
  }
}

/** Two runs in the range's order as one; each was read up to the limit, so the first of both are the first of all. */
function merge(rows: StoredRow[], markers: StoredRow[], range: RowRange): StoredRow[] {
  if (markers.length === 0) return rows;
  const sign = range.order === "ascending" ? 1 : -1;
  const merged = [...rows, ...markers].sort((a, b) => sign * (a.rowId - b.rowId));
  return range.limit < 0 ? merged : merged.slice(0, range.limit);
}

/** The fields that a new row brings along, well-formed. */
function fieldsOf(row: NewRow): Partial<StoredRow> {
  switch (row.role) {
    case "assistant":
    case "thinking":
      return {
        text: row.text.toWellFormed(),
        messageId: row.messageId,
        liveId: row.liveId,
        metadata: asStored(row.metadata),
      };
    case "tool_call":
      return {
        toolCallId: row.toolCallId.toWellFormed(),
        toolName: row.toolName.toWellFormed(),
        toolInput: asStored(row.input),
        messageId: row.messageId,
        metadata: asStored(row.metadata),
      };
    case "tool_result":
      return {
        text: row.text.toWellFormed(),
        toolCallId: row.toolCallId.toWellFormed(),
        toolName: row.toolName.toWellFormed(),
        toolStatus: row.status,
      };
    case "note":
    case "compaction":
      return { text: row.text.toWellFormed(), metadata: asStored(row.metadata) };
    default:
      return unreachable(row);
  }
}

/** The value as a later read finds it. */
function asStored(value: unknown): unknown {
  return value === undefined ? undefined : fromJson(toJson(value));
}

function payloadOf(row: StoredRow): string | null {
  if (row.toolInput === undefined && row.metadata === undefined) return null;
  const payload: Payload = { input: row.toolInput, metadata: row.metadata };
  return toJson(payload);
}
