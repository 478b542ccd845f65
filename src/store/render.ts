import { EVENT_TEXT_BYTES_MAX, KIB } from "../base/limits.ts";
import type { HistoryRow } from "../wire/history.ts";
import type { InputKind, PendingInput } from "../wire/input.ts";
import type { SubmissionKind } from "../wire/submission.ts";
import { cutText, jsonBytes } from "./json.ts";
import type { PendingRecord, StoredRow } from "./rows.ts";

/**
 * Owns how stored records look to clients (contract.md, Pending inputs, turns and cancellation), and how a long one
 * is cut. Model text of a user row and provider metadata never get here.
 */

/** The name, the quotes and the comma of the part that is cut. */
const CUT_PART_BYTES = 32;

/** What a waiting input shows of its text. 32 of them then stay a small part of a frame. */
const PENDING_TEXT_BYTES_MAX = 4 * KIB;

/** An operation's kind in the words of the inputs door. */
export function inputKind(kind: SubmissionKind): InputKind {
  return kind === "continue" ? "continuation" : kind;
}

/** A row as clients see it, whole. */
export function renderRow(row: StoredRow): HistoryRow {
  const common = { id: row.rowId, role: row.role, turn_id: row.turnId, created_at: row.createdAt };
  switch (row.role) {
    case "user":
      return { ...common, ...renderDisplay(row) };
    case "continuation":
      return {
        ...common,
        ...(row.operationId === null ? {} : { operation_id: row.operationId }),
        ...(row.clientId === null ? {} : { client_id: row.clientId }),
      };
    case "assistant":
    case "thinking":
    case "tool_call":
    case "tool_result":
    case "compaction":
    case "note":
      return {
        ...common,
        ...(row.text === null ? {} : { text: row.text }),
        ...(row.messageId === null ? {} : { message_id: row.messageId }),
        ...(row.liveId === null ? {} : { live_id: row.liveId }),
        ...(row.toolCallId === null ? {} : { tool_call_id: row.toolCallId }),
        ...(row.toolName === null ? {} : { tool_name: row.toolName }),
        ...(row.toolInput === undefined ? {} : { tool_input: row.toolInput }),
        ...(row.toolStatus === null ? {} : { tool_status: row.toolStatus }),
      };
  }
}

function renderDisplay({ display }: StoredRow): Partial<HistoryRow> {
  if (display === null) return {};
  return {
    display_text: display.displayText,
    source: display.source,
    operation_id: display.operationId,
    ...(display.clientId === null ? {} : { client_id: display.clientId }),
    ...(display.images.length === 0 ? {} : { images: [...display.images] }),
  };
}

/** The row within `bytesMax` UTF-8 bytes of JSON, marked as `truncated` where something had to go. */
export function cutRow(row: HistoryRow, bytesMax: number = EVENT_TEXT_BYTES_MAX): HistoryRow {
  if (jsonBytes(row) <= bytesMax) return row;
  const { text, display_text: displayText, tool_input: toolInput, ...rest } = row;
  const room = Math.max(0, bytesMax - jsonBytes({ ...rest, truncated: true }) - CUT_PART_BYTES);
  return {
    ...rest,
    ...(text === undefined ? {} : { text: cutText(text, room) }),
    ...(displayText === undefined ? {} : { display_text: cutText(displayText, room) }),
    // A look at its beginning; half of a JSON value would be none.
    ...(toolInput === undefined ? {} : { tool_input: cutText(JSON.stringify(toolInput), room) }),
    truncated: true,
  };
}

/** A waiting input as the session resource and a reset show it. */
export function renderPending(
  record: PendingRecord,
  blockingReason: string | null,
  textBytesMax: number = PENDING_TEXT_BYTES_MAX,
): PendingInput {
  const shown = cutText(record.displayText, textBytesMax);
  return {
    id: record.operationId,
    kind: inputKind(record.kind),
    ...(record.kind === "continue" ? {} : { display_text: shown }),
    ...(record.clientId === null ? {} : { client_id: record.clientId }),
    submission_id: record.submissionId,
    image_count: record.images.length,
    accepted_at: record.acceptedAt,
    ...(blockingReason === null ? {} : { blocking_reason: blockingReason }),
    ...(shown.length === record.displayText.length ? {} : { truncated: true }),
  };
}
