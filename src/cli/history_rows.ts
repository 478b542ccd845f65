import { HISTORY_ROWS_MAX } from "../base/limits.ts";
import type { CallOptions, Client, HistoryRow, LiveEvent } from "../client/client.ts";

/** Owns reading stored history in the pieces that the verbs need; it loads no session. */

/** The id of the row before the `count` newest ones; 0 where there are no more. */
export async function rowBefore(client: Client, sessionId: string, count: number): Promise<number> {
  if (count === 0) return (await client.history(sessionId, { limit: 1 })).watermark;
  let left = count;
  let before: number | undefined;
  for (;;) {
    const limit = Math.min(left, HISTORY_ROWS_MAX);
    const page = await client.history(sessionId, {
      limit,
      ...(before === undefined ? {} : { before }),
    });
    const [oldest] = page.items;
    if (oldest === undefined || page.next === null) return 0;
    left -= page.items.length;
    before = oldest.id;
    if (left <= 0) return oldest.id - 1;
  }
}

/** Every row after this one, in order. */
export async function* rowsAfter(
  client: Client,
  sessionId: string,
  afterRow: number,
  options?: CallOptions,
): AsyncGenerator<HistoryRow> {
  let after: number | null = afterRow;
  while (after !== null) {
    const page = await client.history(
      sessionId,
      { after, direction: "forward", limit: HISTORY_ROWS_MAX },
      options,
    );
    yield* page.items;
    after = page.next;
  }
}

/** The rows after `afterRow` and before `beforeRow`: what a reset that begins later leaves out. */
export async function rowsBetween(
  client: Client,
  sessionId: string,
  afterRow: number,
  beforeRow: number,
  options?: CallOptions,
): Promise<HistoryRow[]> {
  const rows: HistoryRow[] = [];
  if (afterRow + 1 >= beforeRow) return rows;
  for await (const row of rowsAfter(client, sessionId, afterRow, options)) {
    if (row.id >= beforeRow) break;
    rows.push(row);
  }
  return rows;
}

/** Rows that were cut to keep a page in bounds, whole; what a tool gave back is not shown in full anyway. */
export async function wholeRows(
  client: Client,
  sessionId: string,
  rows: readonly HistoryRow[],
  options?: CallOptions,
): Promise<HistoryRow[]> {
  const whole: HistoryRow[] = [];
  for (const row of rows) {
    const isCut = row.truncated === true && row.role !== "tool_result";
    whole.push(isCut ? await client.historyRow(sessionId, row.id, options) : row);
  }
  return whole;
}

/** An event with the rows it carries whole. */
export async function wholeEvent(
  client: Client,
  sessionId: string,
  event: LiveEvent,
  options?: CallOptions,
): Promise<LiveEvent> {
  if (event.kind === "assistant" || event.kind === "thinking") {
    const [row = event.row] = await wholeRows(client, sessionId, [event.row], options);
    return { ...event, row };
  }
  if (event.kind === "committed") {
    return { ...event, rows: await wholeRows(client, sessionId, event.rows, options) };
  }
  return event;
}
