import { EVENT_TEXT_BYTES_MAX } from "../base/limits.ts";
import type { Committed, Consumption } from "../store/conversation.ts";
import { jsonBytes } from "../store/json.ts";
import { cutRow, renderRow } from "../store/render.ts";
import type { StoredRow } from "../store/rows.ts";
import type { EventBody } from "../wire/event.ts";
import type { HistoryRow } from "../wire/history.ts";
import type { Turn } from "../wire/input.ts";

/**
 * Owns which events a commit becomes, and their order (contract.md, The stream). Pure: it is called when the commit
 * is on disk.
 *
 * I1 Each transcript row is carried by exactly one event.
 * I2 `turn_members` comes before anything that the new members caused.
 * I3 `assistant` and `thinking` come before the `committed` that retires what they replace.
 * I4 No event is larger than a frame: rows are cut, and many rows take several `committed`.
 */

/** Rows that one `committed` carries take at most this together. */
const COMMITTED_ROWS_BYTES_MAX = 2 * EVENT_TEXT_BYTES_MAX;

/** What the consumption of inputs publishes. */
export function consumptionEvents(value: Consumption, startsTurn: boolean): EventBody[] {
  const { turn } = value;
  if (turn === null) return [];
  const events: EventBody[] = [];
  if (startsTurn) events.push({ kind: "turn_started", turn: asRunning(turn) });
  events.push({ kind: "turn_members", turn_id: turn.id, members: turn.members });
  for (const [index, stored] of value.rows.entries()) {
    const inputId = value.consumed[index];
    if (inputId === undefined) events.push(...rowEvents(turn.id, [stored]));
    else {
      const row = shown(stored);
      events.push({ kind: "input_committed", input_id: inputId, turn_id: turn.id, row });
    }
  }
  if (turn.state !== "running") events.push(finished(turn));
  return events;
}

/**
 * What a commit of a turn publishes.
 *
 * @param replaces the provisional identities that a model's rows replace; `null` for rows of another origin
 */
export function commitEvents(
  turnId: string,
  value: Committed,
  replaces: readonly string[] | null,
): EventBody[] {
  const events: EventBody[] = [];
  if (replaces === null) events.push(...rowEvents(turnId, value.rows));
  else events.push(...modelEvents(turnId, value.rows, replaces));
  if (value.turn !== null && value.turn.state !== "running") events.push(finished(value.turn));
  return events;
}

function modelEvents(
  turnId: string,
  rows: readonly StoredRow[],
  replaces: readonly string[],
): EventBody[] {
  const events: EventBody[] = [];
  const carried: HistoryRow[] = [];
  const others: StoredRow[] = [];
  const rowIds: number[] = [];
  for (const stored of rows) {
    const { role, rowId, messageId } = stored;
    if (role === "assistant" || role === "thinking") {
      rowIds.push(rowId);
      events.push({ kind: role, message_id: messageId ?? "", row: shown(stored) });
    } else if (role === "tool_call" || role === "compaction") {
      rowIds.push(rowId);
      carried.push(shown(stored));
    } else {
      others.push(stored);
    }
  }
  const watermark = rows.at(-1)?.rowId ?? 0;
  const portions = portionsOf(carried);
  for (const portion of portions.slice(0, -1)) {
    events.push(committed(turnId, portion, [], watermark));
  }
  events.push({
    ...committed(turnId, portions.at(-1) ?? [], rowIds, watermark),
    replaces_live_ids: [...replaces],
    replaces_all_live: true,
  });
  return [...events, ...rowEvents(turnId, others)];
}

/** Rows that speak for themselves. */
function rowEvents(turnId: string, rows: readonly StoredRow[]): EventBody[] {
  const events: EventBody[] = [];
  const rest: HistoryRow[] = [];
  for (const stored of rows) {
    const row = shown(stored);
    if (stored.role === "tool_result") {
      const toolCallId = stored.toolCallId ?? "";
      events.push({ kind: "tool_finished", turn_id: turnId, tool_call_id: toolCallId, row });
    } else if (stored.role === "note") {
      events.push({ kind: "note", row });
    } else {
      rest.push(row);
    }
  }
  for (const portion of rest.length === 0 ? [] : portionsOf(rest)) {
    const ids = portion.map(({ id }) => id);
    events.push(committed(turnId, portion, ids, portion.at(-1)?.id ?? 0));
  }
  return events;
}

function committed(
  turnId: string,
  rows: readonly HistoryRow[],
  rowIds: readonly number[],
  watermark: number,
): Extract<EventBody, { kind: "committed" }> {
  return {
    kind: "committed",
    turn_id: turnId,
    row_ids: [...rowIds],
    rows: [...rows],
    history_watermark: watermark,
    replaces_live_ids: [],
    replaces_all_live: false,
  };
}

function finished(turn: Turn): EventBody {
  return { kind: "turn_finished", turn, replaces_all_live: true };
}

/** The turn as it was when it began, where one transaction both began and ended it. */
function asRunning(turn: Turn): Turn {
  const { id, members, started_at } = turn;
  return { id, state: "running", members, started_at };
}

function shown(stored: StoredRow): HistoryRow {
  return cutRow(renderRow(stored), EVENT_TEXT_BYTES_MAX);
}

/** The rows in groups of a bounded size; at least one group, which may be empty. */
function portionsOf(rows: readonly HistoryRow[]): HistoryRow[][] {
  const portions: HistoryRow[][] = [[]];
  let bytes = 0;
  for (const row of rows) {
    const size = jsonBytes(row) + 1;
    if (bytes + size > COMMITTED_ROWS_BYTES_MAX) {
      portions.push([]);
      bytes = 0;
    }
    bytes += size;
    portions.at(-1)?.push(row);
  }
  return portions;
}
