import {
  EVENT_TEXT_BYTES_MAX,
  HISTORY_ROWS_DEFAULT,
  HISTORY_ROWS_MAX,
  KIB,
  PAGE_BYTES_MAX,
} from "../base/limits.ts";
import type { HistoryPage, HistoryRow } from "../wire/history.ts";
import { Problem } from "../wire/problem.ts";
import { jsonBytes } from "./json.ts";
import { cutRow, renderRow } from "./render.ts";
import type { SessionTable } from "./sessions.ts";
import type { Transcript } from "./transcript.ts";

/**
 * Owns how history is read in pages (contract.md, Pending inputs, turns and cancellation). Reads the store alone, so
 * it never loads a session.
 */
export interface HistoryQuery {
  /** Rows before this id; `null` for the end. */
  readonly before: number | null;
  /** Rows after this id; `null` for the beginning. */
  readonly after: number | null;
  /** @default {HISTORY_ROWS_DEFAULT} */
  readonly limit?: number;
  /** Which end of the range the page is taken from. @default {"backward"} */
  readonly direction?: "forward" | "backward";
}

export interface HistoryTail {
  /** Ascending. */
  readonly rows: readonly HistoryRow[];
  /** Older rows exist. */
  readonly more: boolean;
  readonly watermark: number;
}

/** Room for what surrounds the items of a page. */
const ENVELOPE_BYTES = KIB;
/** Rows that are read at a time, so that a page of long rows does not fill the memory. */
const CHUNK_ROWS = 16;

interface Taken {
  /** In the order of reading. */
  readonly rows: readonly HistoryRow[];
  /** Rows of the range are left. */
  readonly more: boolean;
}

export class History {
  readonly #sessions: SessionTable;
  readonly #transcript: Transcript;

  constructor(sessions: SessionTable, transcript: Transcript) {
    this.#sessions = sessions;
    this.#transcript = transcript;
  }

  /** @throws {Problem} session_not_found */
  page(sessionId: string, query: HistoryQuery): HistoryPage {
    const watermark = this.watermark(sessionId);
    const direction = query.direction ?? "backward";
    const limit = Math.min(query.limit ?? HISTORY_ROWS_DEFAULT, HISTORY_ROWS_MAX);
    const taken = this.#take(sessionId, {
      after: query.after ?? 0,
      before: query.before ?? Number.MAX_SAFE_INTEGER,
      order: direction === "backward" ? "descending" : "ascending",
      limit,
      bytesMax: PAGE_BYTES_MAX - ENVELOPE_BYTES,
      rowBytesMax: PAGE_BYTES_MAX - ENVELOPE_BYTES,
    });
    return {
      items: direction === "backward" ? taken.rows.toReversed() : [...taken.rows],
      next: taken.more ? (taken.rows.at(-1)?.id ?? null) : null,
      watermark,
    };
  }

  /** The whole row. @throws {Problem} session_not_found, history_row_not_found */
  row(sessionId: string, rowId: number): HistoryRow {
    this.#sessions.require(sessionId);
    const [row] = this.#transcript.read(sessionId, {
      after: rowId - 1,
      before: rowId + 1,
      order: "ascending",
      limit: 1,
    });
    if (row === undefined) throw new Problem("history_row_not_found");
    return renderRow(row);
  }

  /**
   * The newest rows, as many as `bytesMax` bytes of JSON let in, each as the stream's events would show it.
   *
   * @throws {Problem} session_not_found
   */
  tail(sessionId: string, limit: number, bytesMax: number = PAGE_BYTES_MAX / 2): HistoryTail {
    const watermark = this.watermark(sessionId);
    if (limit === 0) return { rows: [], more: watermark > 0, watermark };
    const range = { after: 0, before: Number.MAX_SAFE_INTEGER, order: "descending" } as const;
    const rowBytesMax = Math.min(bytesMax, EVENT_TEXT_BYTES_MAX);
    const taken = this.#take(sessionId, { ...range, limit, bytesMax, rowBytesMax });
    return { rows: taken.rows.toReversed(), more: taken.more, watermark };
  }

  /** The newest row id, 0 for none. @throws {Problem} session_not_found */
  watermark(sessionId: string): number {
    return this.#sessions.require(sessionId).lastRowId;
  }

  #take(
    sessionId: string,
    range: {
      after: number;
      before: number;
      order: "ascending" | "descending";
      limit: number;
      bytesMax: number;
      rowBytesMax: number;
    },
  ): Taken {
    const rows: HistoryRow[] = [];
    let { after, before } = range;
    let bytes = 0;
    for (;;) {
      // One more than wanted tells whether rows are left.
      const chunk = Math.min(CHUNK_ROWS, range.limit - rows.length + 1);
      const found = this.#transcript.read(sessionId, {
        after,
        before,
        order: range.order,
        limit: chunk,
      });
      for (const stored of found) {
        if (rows.length === range.limit) return { rows, more: true };
        const row = cutRow(renderRow(stored), range.rowBytesMax);
        bytes += jsonBytes(row) + 1;
        // A page has at least one row, or paging would not get on.
        if (bytes > range.bytesMax && rows.length > 0) return { rows, more: true };
        rows.push(row);
        if (range.order === "ascending") after = row.id;
        else before = row.id;
      }
      if (found.length < chunk) return { rows, more: false };
    }
  }
}
