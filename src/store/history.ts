import type { HistoryPage, HistoryRow } from "../wire/history.ts";

export interface HistoryQuery {
  readonly before: number | null;
  readonly after: number | null;
  /** @default {HISTORY_ROWS_DEFAULT} */
  readonly limit?: number;
  /** @default {"backward"} */
  readonly direction?: "forward" | "backward";
}

export interface HistoryTail {
  /** Ascending. */
  readonly rows: readonly HistoryRow[];
  /** Older rows exist. */
  readonly more: boolean;
  readonly watermark: number;
}

export declare class History {
  /** @throws {Problem} session_not_found */
  page(sessionId: string, query: HistoryQuery): HistoryPage;
  /** The whole row. @throws {Problem} session_not_found, history_row_not_found */
  row(sessionId: string, rowId: number): HistoryRow;
  /** The newest `limit` rows, as many as `bytesMax` (UTF-8 JSON) lets in. */
  tail(sessionId: string, limit: number, bytesMax?: number): HistoryTail;
  watermark(sessionId: string): number;
}
