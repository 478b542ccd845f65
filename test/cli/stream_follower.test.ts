import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { StreamFollower } from "../../src/cli/stream_follower.ts";
import type { Shown } from "../../src/cli/stream_follower.ts";
import type { HistoryRow, LiveEvent, ResetEvent, Turn } from "../../src/client/client.ts";
import { resetEvent as reset } from "../support/reset_event.ts";

/**
 * Goal: what is printed once stays printed once, whatever resets come between, and a prompt prints its own turn
 * alone. Method: events and resets by hand; a property that cuts a turn at every place and begins again with a
 * reset.
 */
const INPUT = "0198c1d2-0000-7000-8000-0000000000aa";
const OTHER = "0198c1d2-0000-7000-8000-0000000000bb";
const TURN = "0198c1d2-0000-7000-8000-0000000000cc";
const OTHER_TURN = "0198c1d2-0000-7000-8000-0000000000dd";

function turn(fields: Partial<Turn> = {}): Turn {
  return { id: TURN, state: "running", members: [INPUT], started_at: 1, ...fields };
}

function row(id: number, role: HistoryRow["role"], fields: Partial<HistoryRow> = {}): HistoryRow {
  return { id, role, turn_id: TURN, created_at: 1, ...fields };
}

function started(members = [INPUT], id = TURN): LiveEvent {
  return { seq: 1, kind: "turn_started", turn: turn({ id, members }) };
}

function committed(input = INPUT, id = 1, turnId = TURN): LiveEvent {
  return {
    seq: 2,
    kind: "input_committed",
    input_id: input,
    turn_id: turnId,
    row: row(id, "user", { display_text: "hi", operation_id: input, turn_id: turnId }),
  };
}

function delta(text: string, liveId = "l1", kind: "text_delta" | "thinking_delta" = "text_delta") {
  return { seq: 3, kind, message_id: "m1", live_id: liveId, text } as const satisfies LiveEvent;
}

function assistant(id: number, text: string, fields: Partial<HistoryRow> = {}): LiveEvent {
  return {
    seq: 4,
    kind: "assistant",
    message_id: "m1",
    row: row(id, "assistant", { text, live_id: "l1", message_id: "m1", ...fields }),
  };
}

function finished(fields: Partial<Turn> = {}): LiveEvent {
  return {
    seq: 9,
    kind: "turn_finished",
    turn: turn({ state: "completed", ...fields }),
    replaces_all_live: true,
  };
}

function textOf(shown: readonly Shown[]): string {
  return shown.map((each) => (each.type === "text" ? each.text : "")).join("");
}

function typesOf(shown: readonly Shown[]): string[] {
  return shown.map((each) => each.type);
}

function follow(inputId: string | null = INPUT, afterRow = 0): StreamFollower {
  return new StreamFollower({ inputId, afterRow });
}

function play(follower: StreamFollower, ...events: LiveEvent[]): Shown[] {
  return events.flatMap((event) => follower.event(event));
}

describe("StreamFollower of an input", () => {
  test("shows deltas as they come and the committed row not again", () => {
    const shown = play(
      follow(),
      started(),
      committed(),
      delta("Hel"),
      delta("lo"),
      assistant(2, "Hello"),
      finished(),
    );
    expect(shown).toEqual([
      { type: "turn_started", turn_id: TURN },
      { type: "text", message_id: "m1", text: "Hel" },
      { type: "text", message_id: "m1", text: "lo" },
      { type: "block_end" },
      { type: "turn_finished", turn: turn({ state: "completed" }) },
    ]);
  });

  test("shows what the row holds beyond the deltas", () => {
    const shown = play(follow(), started(), committed(), delta("Hel"), assistant(2, "Hello"));
    expect(textOf(shown)).toBe("Hello");
  });

  test("shows nothing of a turn that it does not belong to", () => {
    const shown = play(
      follow(),
      started([OTHER], OTHER_TURN),
      committed(OTHER, 1, OTHER_TURN),
      delta("not mine"),
      assistant(2, "not mine", { turn_id: OTHER_TURN }),
      finished({ id: OTHER_TURN, members: [OTHER] }),
    );
    expect(shown).toEqual([]);
  });

  test("shows a turn that it steers from where it joined", () => {
    const follower = follow();
    const before = play(
      follower,
      started([OTHER]),
      committed(OTHER),
      delta("before", "l0"),
      assistant(2, "before", { live_id: "l0" }),
    );
    expect(before).toEqual([]);
    const after = play(
      follower,
      { seq: 5, kind: "turn_members", turn_id: TURN, members: [OTHER, INPUT] },
      committed(INPUT, 3),
      delta("after"),
      assistant(4, "after"),
      finished({ members: [OTHER, INPUT] }),
    );
    expect(textOf(after)).toBe("after");
    expect(typesOf(after).at(-1)).toBe("turn_finished");
  });

  test("shows nothing after its turn", () => {
    const follower = follow();
    play(follower, started(), committed(), finished());
    const shown = play(
      follower,
      started([OTHER], OTHER_TURN),
      delta("later"),
      assistant(5, "later"),
    );
    expect(shown).toEqual([]);
  });

  test("asks for the durable input when a reset shows neither its turn nor its waiting", () => {
    expect(typesOf(follow().reset(reset()))).toEqual(["check"]);
    const follower = follow();
    play(follower, started(), committed(), delta("a"));
    expect(
      typesOf(follower.reset(reset({ turn: turn({ id: OTHER_TURN, members: [OTHER] }) }))),
    ).toEqual(["check"]);
    expect(play(follower, delta("another's"))).toEqual([]);
  });

  test("waits while the reset shows it waiting, and says why it is blocked, once", () => {
    const pending = {
      id: INPUT,
      kind: "message",
      submission_id: INPUT,
      image_count: 0,
      accepted_at: 1,
    } as const;
    const follower = follow();
    const blocked = reset({
      pending_inputs: [pending],
      phase: "blocked",
      blocking_reason: "workspace_missing",
    });
    expect(follower.reset(blocked)).toEqual([{ type: "blocked", reason: "workspace_missing" }]);
    expect(follower.reset(blocked)).toEqual([]);
  });

  test("goes on after a reset where it stopped", () => {
    const follower = follow();
    const first = play(follower, started(), committed(), delta("Hel"));
    const second = follower.reset(
      reset({
        turn: turn(),
        history: [row(1, "user", { operation_id: INPUT })],
        active_output: {
          segments: [{ live_id: "l1", message_id: "m1", kind: "text", text: "Hello wo" }],
          incomplete: false,
        },
      }),
    );
    const third = play(follower, delta("rld"), assistant(2, "Hello world"));
    expect(textOf([...first, ...second, ...third])).toBe("Hello world");
  });

  test("shows what was committed and finished while it was away, from history", () => {
    const follower = follow();
    const first = play(follower, started(), committed(), delta("Hel"));
    const gap = follower.rows([
      row(1, "user", { operation_id: INPUT }),
      row(2, "assistant", { text: "Hello", live_id: "l1" }),
      row(3, "tool_call", { tool_call_id: "t1", tool_name: "bash", tool_input: { command: "ls" } }),
    ]);
    const second = follower.reset(
      reset({
        history: [
          row(4, "tool_result", {
            tool_call_id: "t1",
            tool_name: "bash",
            text: "x",
            tool_status: "ok",
          }),
          row(5, "assistant", { text: " Done", live_id: "l2" }),
          row(6, "user", { operation_id: OTHER, turn_id: OTHER_TURN }),
          row(7, "assistant", { text: "another's", turn_id: OTHER_TURN }),
        ],
        turn: turn({ id: OTHER_TURN, members: [OTHER] }),
      }),
    );
    expect(textOf([...first, ...gap, ...second])).toBe("Hello Done");
    expect(typesOf(gap)).toContain("tool_started");
    expect(typesOf(second)).toEqual(["tool_finished", "text", "block_end", "check"]);
  });

  test("leaves output whose beginning is unknown until it is committed", () => {
    const follower = follow();
    follower.reset(
      reset({
        turn: turn(),
        active_output: {
          segments: [{ live_id: "l1", message_id: "m1", kind: "text", unavailable: true }],
          incomplete: true,
        },
      }),
    );
    expect(textOf(play(follower, delta(" end"), delta("unknown", "l9")))).toBe("");
    expect(textOf(play(follower, assistant(2, "The end")))).toBe("The end");
  });

  test("voids a failed attempt and shows the next one whole", () => {
    const follower = follow();
    const shown = play(
      follower,
      started(),
      committed(),
      delta("Hel"),
      {
        seq: 5,
        kind: "retry",
        turn_id: TURN,
        message_id: "m1",
        attempt: 1,
        delay_ms: 10,
        code: "overloaded",
        message: "busy",
        replaces_live_ids: ["l1"],
        replaces_all_live: true,
      },
      { ...delta("Hello", "l2"), message_id: "m2" },
    );
    expect(typesOf(shown)).toEqual(["turn_started", "text", "block_end", "retry", "text"]);
    expect(shown.at(-1)).toEqual({ type: "text", message_id: "m2", text: "Hello" });
  });

  test("shows a tool once, however it hears of it", () => {
    const follower = follow();
    const tool = {
      tool_call_id: "t1",
      tool_name: "bash",
      phase: "preparing",
      preview: "",
      started_at: 1,
    } as const;
    const shown = play(
      follower,
      started(),
      committed(),
      { seq: 3, kind: "tool_started", turn_id: TURN, tool },
      {
        seq: 4,
        kind: "tool_progress",
        turn_id: TURN,
        tool: { ...tool, phase: "running", preview: "ls" },
      },
      {
        seq: 5,
        kind: "tool_progress",
        turn_id: TURN,
        tool: { ...tool, phase: "running", preview: "ls" },
      },
      {
        seq: 6,
        kind: "tool_finished",
        turn_id: TURN,
        tool_call_id: "t1",
        row: row(3, "tool_result", {
          tool_call_id: "t1",
          tool_name: "bash",
          tool_status: "error",
          text: "no",
        }),
      },
      {
        seq: 7,
        kind: "committed",
        turn_id: TURN,
        row_ids: [2, 3],
        rows: [row(2, "tool_call", { tool_call_id: "t1", tool_name: "bash" })],
        history_watermark: 3,
        replaces_live_ids: [],
        replaces_all_live: true,
      },
    );
    expect(typesOf(shown)).toEqual(["turn_started", "tool_started", "tool_finished"]);
    expect(shown[1]).toMatchObject({ preview: "ls" });
    expect(shown[2]).toMatchObject({ status: "error", text: "no" });
  });

  test("prints the whole answer once, wherever it was cut and begun again with a reset", () => {
    const words = fc.array(fc.string({ minLength: 1, maxLength: 5 }), {
      minLength: 1,
      maxLength: 6,
    });
    fc.assert(
      fc.property(fc.array(words, { minLength: 1, maxLength: 3 }), fc.nat(), (messages, at) => {
        const script = scriptOf(messages);
        const cut = at % (script.length + 1);
        const follower = follow();
        const shown = play(follower, started(), committed());
        const behind = script.slice(0, cut);
        for (const { event } of behind.slice(0, Math.floor(cut / 2)))
          shown.push(...follower.event(event));
        // Half of what happened was not seen; the reset says where things are.
        const state = behind.at(-1)?.after ?? reset({ turn: turn() });
        shown.push(...follower.rows(state.history), ...follower.reset(state));
        for (const { event } of script.slice(cut)) shown.push(...follower.event(event));
        expect(textOf(shown)).toBe(messages.map((parts) => parts.join("")).join(""));
      }),
    );
  });
});

/** The events of a turn's messages, each with the reset that one would get after it. */
function scriptOf(messages: readonly string[][]): { event: LiveEvent; after: ResetEvent }[] {
  const script: { event: LiveEvent; after: ResetEvent }[] = [];
  const rows: HistoryRow[] = [row(1, "user", { operation_id: INPUT })];
  for (const [index, parts] of messages.entries()) {
    const liveId = `live ${index}`;
    let text = "";
    for (const part of parts) {
      text += part;
      script.push({
        event: { ...delta(part, liveId), message_id: `m${index}` },
        after: reset({
          turn: turn(),
          history: [...rows],
          active_output: {
            segments: [{ live_id: liveId, message_id: `m${index}`, kind: "text", text }],
            incomplete: false,
          },
        }),
      });
    }
    rows.push(row(index + 2, "assistant", { text, live_id: liveId, message_id: `m${index}` }));
    script.push({
      event: { seq: 1, kind: "assistant", message_id: `m${index}`, row: rows.at(-1) as HistoryRow },
      after: reset({ turn: turn(), history: [...rows] }),
    });
  }
  return script;
}

describe("StreamFollower of a session", () => {
  test("shows every turn with its inputs", () => {
    const follower = follow(null);
    const shown = play(
      follower,
      started([OTHER], OTHER_TURN),
      // Its membership is told as well, which is no other start.
      { seq: 2, kind: "turn_members", turn_id: OTHER_TURN, members: [OTHER] },
      committed(OTHER, 1, OTHER_TURN),
      delta("thought", "l0", "thinking_delta"),
      delta("answer"),
      assistant(3, "answer", { turn_id: OTHER_TURN }),
      finished({ id: OTHER_TURN }),
    );
    expect(typesOf(shown)).toEqual([
      "turn_started",
      "input",
      "thinking",
      "block_end",
      "text",
      "block_end",
      "turn_finished",
    ]);
  });

  test("never asks for an input", () => {
    expect(follow(null).reset(reset())).toEqual([]);
  });

  test("does not repeat rows that it was told to skip", () => {
    const shown = follow(null, 2).reset(
      reset({
        history: [
          row(1, "user", { display_text: "old" }),
          row(2, "assistant", { text: "old" }),
          row(3, "note", { text: "new" }),
        ],
      }),
    );
    expect(shown).toEqual([{ type: "note", text: "new" }]);
  });
});
