import { expect, test } from "bun:test";
import { EVENT_TEXT_BYTES_MAX, RING_BYTES_MAX } from "../../src/base/limits.ts";
import { commitEvents, consumptionEvents } from "../../src/session/publication.ts";
import type { StoredRow } from "../../src/store/rows.ts";
import type { Turn } from "../../src/wire/input.ts";
import { storedRow } from "../support/stored_row.ts";

/** Goal: each row is carried once, in the order that contract.md, "The stream", asks for. Method: pure calls. */
function row(rowId: number, role: StoredRow["role"], fields: Partial<StoredRow> = {}): StoredRow {
  return storedRow({ sessionId: "s", rowId, role, turnId: "t", createdAt: 1, ...fields });
}

function turn(state: Turn["state"] = "running"): Turn {
  return {
    id: "t",
    state,
    members: ["a", "b"],
    started_at: 1,
    ...(state === "running" ? {} : { ended_at: 2 }),
  };
}

test("consumptionEvents(): the turn, its members, then each input; no turn, no event", () => {
  const value = {
    consumed: ["a", "b"],
    rows: [row(1, "user", { text: "x" }), row(2, "continuation"), row(3, "note", { text: "n" })],
    turn: turn(),
  };
  expect(consumptionEvents(value, true).map(({ kind }) => kind)).toEqual([
    "turn_started",
    "turn_members",
    "input_committed",
    "input_committed",
    "note",
  ]);
  expect(consumptionEvents(value, false)[0]).toEqual({
    kind: "turn_members",
    turn_id: "t",
    members: ["a", "b"],
  });
  expect(consumptionEvents({ consumed: [], rows: [], turn: null }, true)).toEqual([]);
});

test("consumptionEvents(): a turn that ended in the same transaction begins as running all the same", () => {
  const value = { consumed: ["a"], rows: [row(1, "user")], turn: turn("completed") };
  const events = consumptionEvents(value, true);
  expect(events[0]).toMatchObject({ kind: "turn_started", turn: { state: "running" } });
  expect(events.at(-1)).toMatchObject({
    kind: "turn_finished",
    turn: { state: "completed" },
    replaces_all_live: true,
  });
});

test("commitEvents(): canonical rows, then what they replace, then the end", () => {
  const rows = [
    row(4, "thinking", { messageId: "m", liveId: "m:0", text: "h" }),
    row(5, "tool_call", { toolCallId: "c", toolName: "run", toolInput: {} }),
    row(6, "assistant", { messageId: "m", liveId: "m:1", text: "a" }),
  ];
  const events = commitEvents("t", { rows, turn: turn("completed") }, ["m:0", "m:1"]);
  expect(events.map(({ kind }) => kind)).toEqual([
    "thinking",
    "assistant",
    "committed",
    "turn_finished",
  ]);
  expect(events[2]).toMatchObject({
    row_ids: [4, 5, 6],
    rows: [{ id: 5, tool_call_id: "c" }],
    history_watermark: 6,
    replaces_live_ids: ["m:0", "m:1"],
    replaces_all_live: true,
  });
});

test("commitEvents(): results and notes speak for themselves and retire nothing", () => {
  const rows = [
    row(7, "tool_result", { toolCallId: "c", toolName: "run", text: "o", toolStatus: "ok" }),
    row(8, "note", { text: "n" }),
  ];
  expect(commitEvents("t", { rows, turn: turn() }, null)).toMatchObject([
    { kind: "tool_finished", tool_call_id: "c", row: { id: 7, tool_status: "ok" } },
    { kind: "note", row: { id: 8 } },
  ]);
});

test("commitEvents(): a model that said nothing still retires what is provisional", () => {
  expect(commitEvents("t", { rows: [], turn: turn() }, ["m:0"])).toMatchObject([
    {
      kind: "committed",
      row_ids: [],
      rows: [],
      replaces_live_ids: ["m:0"],
      replaces_all_live: true,
    },
  ]);
});

test("commitEvents(): many large calls take several events; each fits, each row is in one, only the last retires", () => {
  const rows = Array.from({ length: 20 }, (_, index) =>
    row(index + 1, "tool_call", {
      toolCallId: `c${index}`,
      toolName: "run",
      toolInput: { text: "x".repeat(EVENT_TEXT_BYTES_MAX) },
    }),
  );
  const events = commitEvents("t", { rows, turn: turn() }, ["m:0"]);
  expect(events.length).toBeGreaterThan(5);
  const carried = events.flatMap((event) => (event.kind === "committed" ? event.rows : []));
  expect(carried.map(({ id }) => id)).toEqual(rows.map(({ rowId }) => rowId));
  for (const event of events) {
    expect(Buffer.byteLength(JSON.stringify(event))).toBeLessThan(RING_BYTES_MAX);
  }
  const retiring = events.map((event) => event.kind === "committed" && event.replaces_all_live);
  expect(retiring).toEqual([...Array(events.length - 1).fill(false), true]);
});
