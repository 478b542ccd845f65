import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  EVENT_TEXT_BYTES_MAX,
  HISTORY_ROWS_MAX,
  KIB,
  MIB,
  PAGE_BYTES_MAX,
} from "../../src/base/limits.ts";
import { jsonBytes } from "../../src/store/json.ts";
import { cutRow, renderPending } from "../../src/store/render.ts";
import type { NewRow } from "../../src/store/rows.ts";
import type { HistoryRow } from "../../src/wire/history.ts";
import { Problem } from "../../src/wire/problem.ts";
import { admit, type Bench, createSession, openBench, runTurn } from "./support.ts";

/*
 * "a page is at most 1 MiB, a longer row is cut with `truncated: true` and read whole at `GET …/history/{row_id}`"
 * (contract.md, Pending inputs, turns and cancellation). Goal: whatever the sizes and the limit, walking the pages in
 * either direction gives each row once, in order, within the bounds.
 */
function code(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return "none";
}

function note(text: string): NewRow {
  return { role: "note", text };
}

async function withRows(bench: Bench, rows: readonly NewRow[]): Promise<string> {
  const sessionId = await createSession(bench);
  await bench.store.conversation.commit({ sessionId, turnId: null, rows });
  return sessionId;
}

/** So many rows, all cut, each as long as it may be. */
function expectCut(rows: readonly HistoryRow[], count: number, rowBytesMax: number): void {
  expect(rows.map(({ truncated }) => truncated)).toEqual(Array.from({ length: count }, () => true));
  for (const row of rows) {
    expect(jsonBytes(row)).toBeGreaterThan(rowBytesMax - 4 * KIB);
    expect(jsonBytes(row)).toBeLessThanOrEqual(rowBytesMax);
  }
}

function ids(rows: readonly HistoryRow[]): number[] {
  return rows.map(({ id }) => id);
}

function walk(
  bench: Bench,
  sessionId: string,
  direction: "forward" | "backward",
  limit: number,
): HistoryRow[][] {
  const pages: HistoryRow[][] = [];
  let next: number | null = null;
  do {
    const page = bench.store.history.page(sessionId, {
      before: direction === "backward" ? next : null,
      after: direction === "forward" ? next : null,
      direction,
      limit,
    });
    pages.push(page.items);
    ({ next } = page);
  } while (next !== null);
  return pages;
}

describe("History.page", () => {
  test("gives the newest page in ascending order unless told otherwise", async () => {
    await using bench = openBench();
    const rows = Array.from({ length: 60 }, (_, n) => note(`row ${n + 1}`));
    const sessionId = await withRows(bench, rows);
    const { history } = bench.store;
    const newest = history.page(sessionId, { before: null, after: null });
    expect(ids(newest.items)).toEqual(Array.from({ length: 50 }, (_, n) => n + 11));
    expect([newest.next, newest.watermark]).toEqual([11, 60]);
    const rest = history.page(sessionId, { before: newest.next, after: null });
    expect(ids(rest.items)).toEqual(Array.from({ length: 10 }, (_, n) => n + 1));
    expect(rest.next).toBeNull();
    const forward = { direction: "forward", limit: 3 } as const;
    const first = history.page(sessionId, { before: null, after: null, ...forward });
    expect([ids(first.items), first.next]).toEqual([[1, 2, 3], 3]);
    const between = history.page(sessionId, { before: 6, after: 3, ...forward });
    expect([ids(between.items), between.next]).toEqual([[4, 5], null]);
    const beyond = history.page(sessionId, { before: null, after: 60, ...forward });
    expect([beyond.items, beyond.next, beyond.watermark]).toEqual([[], null, 60]);
  });

  test("never gives more than 200 rows", async () => {
    await using bench = openBench();
    const sessionId = await withRows(
      bench,
      Array.from({ length: 205 }, () => note("x")),
    );
    const page = bench.store.history.page(sessionId, { before: null, after: null, limit: 1000 });
    expect(page.items).toHaveLength(HISTORY_ROWS_MAX);
    expect(page.next).toBe(6);
  });

  test("has each row and marker once, in order, in pages of at most 1 MiB, in both directions", async () => {
    const size = fc.oneof(
      { weight: 3, arbitrary: fc.nat(200) },
      { weight: 3, arbitrary: fc.integer({ min: 50_000, max: 150_000 }) },
      { weight: 1, arbitrary: fc.integer({ min: 240_000, max: 400_000 }) },
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof({ weight: 5, arbitrary: size }, fc.constant("continue" as const)), {
          minLength: 5,
          maxLength: 25,
        }),
        fc.integer({ min: 1, max: 30 }),
        async (made, limit) => {
          await using bench = openBench();
          const sessionId = await createSession(bench);
          for (const what of made) {
            if (what === "continue") {
              await admit(bench, sessionId, { kind: "continue" });
              await runTurn(bench, sessionId, { state: "completed" });
              continue;
            }
            // Quotes take two bytes as JSON: the bound is on bytes, not on characters.
            const rows = [note('"'.repeat(what))];
            await bench.store.conversation.commit({ sessionId, turnId: null, rows });
          }
          const all = made.map((_, n) => n + 1);
          const forward = walk(bench, sessionId, "forward", limit);
          const backward = walk(bench, sessionId, "backward", limit);
          expect(ids(forward.flat())).toEqual(all);
          expect(ids(backward.toReversed().flat())).toEqual(all);
          for (const items of [...forward, ...backward]) {
            expect(items.length).toBeLessThanOrEqual(limit);
            expect(jsonBytes({ items, next: 123456, watermark: 123456 })).toBeLessThanOrEqual(
              PAGE_BYTES_MAX,
            );
          }
          expect(forward.flat()).toEqual(backward.toReversed().flat());
          for (const row of forward.flat()) {
            const whole = bench.store.history.row(sessionId, row.id);
            if (row.truncated === undefined) expect(row).toEqual(whole);
            else expect(whole.text!.startsWith(row.text!)).toBe(true);
          }
        },
      ),
      { numRuns: 6 },
    );
  });

  test("cuts a long row and gives it whole at its own address", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const text = "é".repeat(MIB / 2);
    await admit(bench, sessionId, { text });
    const turnId = await runTurn(bench, sessionId);
    const input = { path: "a", content: "x".repeat(MIB) };
    await bench.store.conversation.commit({
      sessionId,
      turnId,
      rows: [
        { role: "tool_call", toolCallId: "c", toolName: "write", input, messageId: null },
        { role: "tool_result", toolCallId: "c", toolName: "write", text, status: "ok" },
      ],
    });
    // What a reset shows is what the stream's events would show.
    const tail = bench.store.history.tail(sessionId, 3, PAGE_BYTES_MAX).rows;
    expectCut(tail, 3, EVENT_TEXT_BYTES_MAX);
    // A page has room for one such row, and cuts it only where it is longer than the page.
    const pages = [2, 3, 4].map((before) =>
      bench.store.history.page(sessionId, { before, after: null }),
    );
    for (const { items } of pages) expectCut(items, 1, PAGE_BYTES_MAX - KIB);
    const items = pages.flatMap((page) => page.items);
    expect(text.startsWith(items[0]?.display_text ?? "none")).toBe(true);
    expect(JSON.stringify(input).startsWith(String(items[1]?.tool_input))).toBe(true);
    expect(items[2]).toMatchObject({ tool_status: "ok", tool_name: "write" });
    expect(bench.store.history.row(sessionId, 1).display_text).toBe(text);
    expect(bench.store.history.row(sessionId, 2).tool_input).toEqual(input);
    expect(bench.store.history.row(sessionId, 3).text).toBe(text);
  });

  test("gives a row whole that one page can hold", async () => {
    await using bench = openBench();
    const text = "x".repeat(MIB - 4 * KIB);
    const sessionId = await withRows(bench, [note("before"), note(text), note("after")]);
    const page = bench.store.history.page(sessionId, { before: null, after: null });
    expect(page.items.map((row) => row.text)).toEqual(["before", text, "after"]);
    expect(page.items.some(({ truncated }) => truncated)).toBe(false);
    expect(jsonBytes(page)).toBeLessThanOrEqual(PAGE_BYTES_MAX);
  });

  test("answers 404 for a session or a row that is not there", async () => {
    await using bench = openBench();
    const sessionId = await withRows(bench, [note("x")]);
    const { history } = bench.store;
    const none = bench.ids.uuidv7();
    expect(code(() => history.page(none, { before: null, after: null }))).toBe("session_not_found");
    expect(code(() => history.row(none, 1))).toBe("session_not_found");
    expect(code(() => history.row(sessionId, 2))).toBe("history_row_not_found");
    expect(code(() => history.row(sessionId, 0))).toBe("history_row_not_found");
    expect(code(() => history.tail(none, 1))).toBe("session_not_found");
  });
});

describe("History.tail", () => {
  test("has the newest rows, says whether older ones exist, and stays within its bytes", async () => {
    await using bench = openBench();
    const sessionId = await withRows(
      bench,
      Array.from({ length: 10 }, () => note("x".repeat(1000))),
    );
    const { history } = bench.store;
    const tail = (limit: number, bytesMax?: number) => {
      const found = history.tail(sessionId, limit, bytesMax);
      return [ids(found.rows), found.more, found.watermark];
    };
    expect(tail(3)).toEqual([[8, 9, 10], true, 10]);
    expect(tail(10)).toEqual([ids(history.tail(sessionId, 50).rows), false, 10]);
    expect(tail(0)).toEqual([[], true, 10]);
    expect(tail(10, 3 * 1100)).toEqual([[8, 9, 10], true, 10]);
    // At least one row, cut, or a client would have nothing to page from.
    const [last] = history.tail(sessionId, 10, 500).rows;
    expect(last).toMatchObject({ id: 10, truncated: true });
    const empty = await createSession(bench);
    expect(history.tail(empty, 5)).toEqual({ rows: [], more: false, watermark: 0 });
    expect(history.tail(empty, 0)).toEqual({ rows: [], more: false, watermark: 0 });
  });
});

describe("cutRow()", () => {
  test("keeps a row that fits as it is, and never goes over its bound", () => {
    const row: HistoryRow = { id: 1, role: "note", turn_id: null, created_at: 5, text: "x" };
    expect(cutRow(row, jsonBytes(row))).toBe(row);
    fc.assert(
      fc.property(
        fc.string({ unit: "binary", minLength: 3000, maxLength: 9000 }),
        fc.integer({ min: 2000, max: 9000 }),
        (text, bytesMax) => {
          const cut = cutRow({ ...row, text }, bytesMax);
          expect(jsonBytes(cut)).toBeLessThanOrEqual(bytesMax);
          expect(text.startsWith(cut.text ?? "none")).toBe(true);
        },
      ),
    );
  });
});

describe("renderPending()", () => {
  test("shows a bounded look at the text and marks it", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId, { text: "x".repeat(5000), clientId: "echo" });
    await admit(bench, sessionId, { kind: "continue", text: "" });
    const [long, again] = bench.store.operations
      .pending(sessionId)
      .map((record) => renderPending(record, "workspace_missing"));
    expect(long).toMatchObject({
      kind: "message",
      client_id: "echo",
      image_count: 0,
      display_text: "x".repeat(4096),
      truncated: true,
      blocking_reason: "workspace_missing",
    });
    expect(again?.kind).toBe("continuation");
    expect(again).not.toHaveProperty("display_text");
    expect(again).not.toHaveProperty("truncated");
  });
});
