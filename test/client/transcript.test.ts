import { describe, expect, test } from "bun:test";
import { Transcript } from "../../src/client/transcript.ts";
import type { StreamEvent, ToolProgress } from "../../src/wire/event.ts";
import type { HistoryRow } from "../../src/wire/history.ts";
import type { PendingInput } from "../../src/wire/input.ts";
import { inputId, reset, row, TURN } from "./stream_script.ts";

/**
 * Goal: what resets and events fold into, and that a pending row is settled by its operation alone. Method: events by
 * hand; whole conversations with cuts are in stream_cuts.test.ts.
 */

function pending(number: number, more: Partial<PendingInput> = {}): PendingInput {
  const id = inputId(number);
  return {
    id,
    kind: "message",
    display_text: "same",
    submission_id: id,
    image_count: 0,
    accepted_at: number,
    ...more,
  };
}

function userRow(id: number, number: number): HistoryRow {
  return row(id, { role: "user", display_text: "same", operation_id: inputId(number) });
}

function committed(seq: number, number: number, rowId = 100 + number): StreamEvent {
  return {
    seq,
    kind: "input_committed",
    input_id: inputId(number),
    turn_id: TURN,
    row: userRow(rowId, number),
  };
}

function tool(id: string): ToolProgress {
  return { tool_call_id: id, tool_name: "bash", phase: "running", preview: "", started_at: 1 };
}

function commit(more: Partial<Extract<StreamEvent, { kind: "committed" }>> = {}): StreamEvent {
  return {
    seq: 9,
    kind: "committed",
    turn_id: TURN,
    row_ids: [],
    rows: [],
    history_watermark: 0,
    replaces_live_ids: [],
    replaces_all_live: false,
    ...more,
  };
}

function say(transcript: Transcript, liveId: string, text: string): void {
  transcript.apply({ seq: 1, kind: "text_delta", message_id: "m", live_id: liveId, text });
}

/** `number:state` of each input. */
function inputs(transcript: Transcript): string[] {
  return transcript.inputs.map(({ operationId, state }) => {
    return `${Number.parseInt(operationId.slice(-12), 16)}:${state}`;
  });
}

describe("rows", () => {
  test("are in the order of their ids, whatever the order they come in", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { history: [row(7), row(3), row(5)] }));
    for (const id of [6, 1, 9, 4, 8]) transcript.apply({ seq: id, kind: "note", row: row(id) });
    expect(transcript.rows.map(({ id }) => id)).toEqual([1, 3, 4, 5, 6, 7, 8, 9]);
    expect(transcript.watermark).toBe(9);
  });

  test("that come again replace themselves", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { history: [row(3), row(5, { text: "cut", truncated: true })] }));
    transcript.replace(row(5, { text: "whole" }));
    transcript.apply({ seq: 2, kind: "note", row: row(3, { text: "again" }) });
    expect(transcript.rows.map(({ text }) => text)).toEqual(["again", "whole"]);
  });

  test("of older pages go in front", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { history: [row(7)], history_more: true }));
    expect(transcript.hasOlder).toBe(true);
    transcript.prepend([row(3), row(5)], 3);
    expect(transcript.hasOlder).toBe(true);
    transcript.prepend([row(1)], null);
    expect(transcript.hasOlder).toBe(false);
    expect(transcript.rows.map(({ id }) => id)).toEqual([1, 3, 5, 7]);
  });

  test("a reset replaces them", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { history: [row(1), row(2)] }));
    transcript.apply(reset(2, { history: [row(2)] }));
    expect(transcript.rows.map(({ id }) => id)).toEqual([2]);
  });
});

describe("live chunks", () => {
  test("grow by their id, and a reset's chunks grow on", () => {
    const transcript = new Transcript();
    const segments = [
      { live_id: "a", message_id: "m", kind: "text" as const, text: "so " },
      { live_id: "b", message_id: "m", kind: "text" as const, unavailable: true as const },
    ];
    transcript.apply(reset(1, { active_output: { segments, incomplete: true } }));
    expect(transcript.incomplete).toBe(true);
    say(transcript, "a", "far");
    say(transcript, "b", "tail");
    say(transcript, "c", "new");
    expect(transcript.live.map(({ text, unavailable }) => [text, unavailable])).toEqual([
      ["so far", false],
      ["tail", true],
      ["new", false],
    ]);
  });

  test("are retired by their row, by a commit, and all of them where it says so", () => {
    const transcript = new Transcript();
    const active_output = { segments: [], incomplete: true };
    transcript.apply(reset(1, { active_output }));
    for (const liveId of ["a", "b", "c", "d"]) say(transcript, liveId, "x");
    transcript.apply({ seq: 2, kind: "assistant", message_id: "m", row: row(1, { live_id: "a" }) });
    expect(transcript.live.map(({ liveId }) => liveId)).toEqual(["b", "c", "d"]);
    transcript.apply(
      commit({ replaces_live_ids: ["b", "x"], rows: [row(2)], history_watermark: 4 }),
    );
    expect(transcript.live.map(({ liveId }) => liveId)).toEqual(["c", "d"]);
    expect(transcript.incomplete).toBe(true);
    expect(transcript.watermark).toBe(4);
    transcript.apply(commit({ replaces_all_live: true }));
    expect(transcript.live).toEqual([]);
    expect(transcript.incomplete).toBe(false);
    expect(transcript.rows.map(({ id }) => id)).toEqual([1, 2]);
  });

  test("of a failed attempt and of an ended turn are gone", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1));
    say(transcript, "a", "x");
    transcript.apply({
      seq: 2,
      kind: "retry",
      turn_id: TURN,
      message_id: "m",
      attempt: 1,
      delay_ms: 1,
      code: "overloaded",
      message: "",
      replaces_live_ids: [],
      replaces_all_live: true,
    });
    expect(transcript.live).toEqual([]);
    say(transcript, "b", "x");
    transcript.apply({ seq: 3, kind: "tool_started", turn_id: TURN, tool: tool("t") });
    const turn = { id: TURN, state: "failed" as const, members: [], started_at: 1, ended_at: 2 };
    transcript.apply({ seq: 4, kind: "turn_finished", turn, replaces_all_live: true });
    expect(transcript.live).toEqual([]);
    expect(transcript.progress).toEqual([]);
    expect(transcript.turn?.state).toBe("failed");
  });
});

describe("pending inputs", () => {
  test("are settled by their operation: the same text settles nothing else", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1));
    for (const number of [1, 2, 3]) {
      transcript.expect({ operationId: inputId(number), kind: "message", displayText: "same" });
    }
    expect(inputs(transcript)).toEqual(["1:sending", "2:sending", "3:sending"]);
    transcript.apply({ seq: 2, kind: "input_accepted", input: pending(2) });
    expect(inputs(transcript)).toEqual(["2:waiting", "1:sending", "3:sending"]);
    transcript.apply(committed(3, 9));
    expect(inputs(transcript)).toEqual(["2:waiting", "1:sending", "3:sending"]);
    transcript.apply(committed(4, 3));
    expect(inputs(transcript)).toEqual(["2:waiting", "1:sending"]);
    transcript.apply({ seq: 5, kind: "input_cancelled", input_id: inputId(2) });
    expect(inputs(transcript)).toEqual(["1:sending"]);
  });

  test("a row of a commit settles too, as a continuation's does", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { pending_inputs: [pending(1, { kind: "continuation" })] }));
    const marker = row(5, { role: "continuation", operation_id: inputId(1) });
    transcript.apply(commit({ rows: [marker], row_ids: [5] }));
    expect(inputs(transcript)).toEqual([]);
  });

  test("wait in the order of their acceptance, also when expected in another", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1));
    transcript.expect({ operationId: inputId(1), kind: "message" });
    transcript.expect({ operationId: inputId(2), kind: "message" });
    transcript.apply({ seq: 2, kind: "input_accepted", input: pending(2) });
    transcript.apply({ seq: 3, kind: "input_accepted", input: pending(1) });
    expect(inputs(transcript)).toEqual(["2:waiting", "1:waiting"]);
  });

  test("show why they wait", () => {
    const transcript = new Transcript();
    const blocked = pending(1, { blocking_reason: "workspace_missing", image_count: 2 });
    transcript.apply(
      reset(1, { pending_inputs: [blocked], phase: "blocked", blocking_reason: "x" }),
    );
    expect(transcript.inputs).toEqual([
      {
        operationId: inputId(1),
        kind: "message",
        state: "waiting",
        displayText: "same",
        imageCount: 2,
        blockingReason: "workspace_missing",
        own: false,
      },
    ]);
    expect(transcript.blockingReason).toBe("x");
    transcript.apply({ seq: 2, kind: "status", phase: "running", running: true });
    expect(transcript.blockingReason).toBeNull();
  });

  test("of this program survive resets until the daemon has shown their outcome", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { pending_inputs: [pending(8)] }));
    for (const number of [1, 2, 3, 4, 5]) {
      transcript.expect({ operationId: inputId(number), kind: "message", displayText: "same" });
    }
    transcript.apply({ seq: 2, kind: "input_accepted", input: pending(2) });
    transcript.apply({ seq: 3, kind: "input_accepted", input: pending(5) });
    transcript.mark(inputId(3), "uncertain");
    transcript.mark(inputId(4), "expired");
    transcript.apply(
      reset(4, { history: [userRow(7, 1)], pending_inputs: [pending(9), pending(5)] }),
    );
    // 1 is in history, 8 was another's, 2 waited and does no longer.
    expect(inputs(transcript)).toEqual([
      "9:waiting",
      "5:waiting",
      "3:uncertain",
      "4:expired",
      "2:uncertain",
    ]);
    expect(transcript.inputs.map(({ own }) => own)).toEqual([false, true, true, true, true]);
    // A matching durable event can still reconcile them.
    transcript.apply(committed(5, 4));
    transcript.apply(committed(6, 3));
    expect(inputs(transcript)).toEqual(["9:waiting", "5:waiting", "2:uncertain"]);
  });

  test("what comes late changes nothing that is settled", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1));
    transcript.apply({ seq: 2, kind: "input_accepted", input: pending(1) });
    transcript.mark(inputId(1), "uncertain");
    expect(inputs(transcript)).toEqual(["1:waiting"]);
    transcript.expect({ operationId: inputId(1), kind: "message" });
    expect(transcript.inputs[0]).toMatchObject({
      state: "waiting",
      own: true,
      displayText: "same",
    });
    transcript.apply(committed(3, 1));
    transcript.expect({ operationId: inputId(1), kind: "message" });
    transcript.mark(inputId(1), "uncertain");
    expect(inputs(transcript)).toEqual([]);
  });

  test("a refused one can be taken away", () => {
    const transcript = new Transcript();
    transcript.expect({ operationId: inputId(1), kind: "message" });
    transcript.forget(inputId(1));
    expect(inputs(transcript)).toEqual([]);
  });
});

describe("the rest", () => {
  test("progress is kept by tool call, restored by a reset, and cleared on demand", () => {
    const transcript = new Transcript();
    transcript.apply(reset(1, { current_progress: { tools: [tool("a"), tool("b")] } }));
    transcript.apply({
      seq: 2,
      kind: "tool_progress",
      turn_id: TURN,
      tool: { ...tool("a"), preview: "50 %" },
    });
    transcript.apply({ seq: 3, kind: "tool_started", turn_id: TURN, tool: tool("c") });
    expect(transcript.progress.map(({ tool_call_id, preview }) => tool_call_id + preview)).toEqual([
      "a50 %",
      "b",
      "c",
    ]);
    transcript.apply({
      seq: 4,
      kind: "tool_finished",
      turn_id: TURN,
      tool_call_id: "b",
      row: row(3, { role: "tool_result" }),
    });
    expect(transcript.progress.map(({ tool_call_id }) => tool_call_id)).toEqual(["a", "c"]);
    expect(transcript.rows).toHaveLength(1);
    transcript.clearProgress();
    expect(transcript.progress).toEqual([]);
  });

  test("phase, turn, members, title and model follow their events", () => {
    const transcript = new Transcript();
    expect(transcript.phase).toBeNull();
    transcript.apply(reset(1, { phase: "interrupted" }));
    expect(transcript.phase).toBe("interrupted");
    const turn = { id: TURN, state: "running" as const, members: [inputId(1)], started_at: 1 };
    transcript.apply({ seq: 2, kind: "turn_started", turn });
    const members = [inputId(1), inputId(2)];
    transcript.apply({ seq: 3, kind: "turn_members", turn_id: TURN, members });
    expect(transcript.turn?.members).toEqual(members);
    transcript.apply({ seq: 4, kind: "turn_members", turn_id: inputId(9), members: [] });
    expect(transcript.turn?.members).toEqual(members);
    transcript.apply({ seq: 5, kind: "session", title: "T", model: "demo/demo" });
    expect([transcript.title, transcript.model]).toEqual(["T", "demo/demo"]);
  });
});
