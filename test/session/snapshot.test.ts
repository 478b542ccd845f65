import { expect, test } from "bun:test";
import { ACTIVE_SESSION_MS, KIB, RESPONSE_BYTES_MAX } from "../../src/base/limits.ts";
import type { View, Waiting } from "../../src/session/session_state.ts";
import { type Moment, resetEvent, sessionSummary } from "../../src/session/snapshot.ts";
import type { SessionListRecord } from "../../src/store/rows.ts";

/** Goal: a reset fits one frame whatever is in it; a summary tells loaded from stored. Method: pure calls. */
const IDLE: View = { phase: "idle", running: false, blockingReason: null };

function waiting(index: number, text: string): Waiting {
  const id = `input-${index}`.padEnd(36, "0");
  return {
    id,
    kind: "message",
    submissionId: id,
    name: null,
    arguments: null,
    images: [],
    shown: {
      id,
      kind: "message",
      display_text: text,
      submission_id: id,
      image_count: 0,
      accepted_at: 0,
    },
  };
}

function moment(fields: Partial<Moment> = {}): Moment {
  return {
    cursor: 7,
    view: IDLE,
    waiting: [],
    turn: null,
    activeOutput: { segments: [], incomplete: false },
    progress: null,
    ...fields,
  };
}

test("resetEvent() asks for no more history than there is room for, and fits one frame", () => {
  const text = "x".repeat(4 * KIB);
  const many = Array.from({ length: 3000 }, (_, index) => waiting(index, text));
  const turn = {
    id: "t",
    state: "running" as const,
    members: many.map(({ id }) => id),
    started_at: 0,
  };
  const event = resetEvent(moment({ waiting: many, turn }), (_rows, bytesMax) => ({
    rows: [{ id: 1, role: "note", text: "h".repeat(bytesMax - 200), turn_id: null, created_at: 0 }],
    more: true,
    watermark: 1,
  }));
  expect(Buffer.byteLength(JSON.stringify(event))).toBeLessThan(RESPONSE_BYTES_MAX - KIB);
  expect(event.pending_inputs[0]).toMatchObject({ id: many[0]?.id ?? "", truncated: true });
  expect(event).toMatchObject({ seq: 7, history_more: true, history_watermark: 1 });
});

test("resetEvent() shows 32 waiting inputs whole, with the reason they wait", () => {
  const text = "x".repeat(4 * KIB);
  const queue = Array.from({ length: 32 }, (_, index) => waiting(index, text));
  const view: View = { phase: "blocked", running: false, blockingReason: "model_unavailable" };
  const event = resetEvent(moment({ waiting: queue, view }), () => ({
    rows: [],
    more: false,
    watermark: 0,
  }));
  expect(event.pending_inputs.length).toBe(32);
  expect(event.pending_inputs.every((input) => input.display_text === text)).toBe(true);
  expect(event.pending_inputs[0]?.blocking_reason).toBe("model_unavailable");
  expect(event.blocking_reason).toBe("model_unavailable");
});

const RECORD: SessionListRecord = {
  id: "s",
  parentId: null,
  title: null,
  workspace: "/w",
  model: "m/m",
  settings: {},
  phase: "interrupted",
  blockingReason: null,
  lastRowId: 0,
  compactionRowId: null,
  createdAt: 0,
  activityAt: 1000,
  pendingCount: 2,
};

test("sessionSummary() of a session that is not loaded: nothing runs, however it was left", () => {
  expect(sessionSummary(RECORD, null, 1000)).toMatchObject({
    phase: "interrupted",
    running: false,
    loaded: false,
    active: false,
    pending_count: 2,
  });
  expect(sessionSummary({ ...RECORD, phase: "running" }, null, 1000)).toMatchObject({
    phase: "idle",
    running: false,
  });
});

test("sessionSummary() of a loaded session is active for less than an hour after its last turn", () => {
  const at = (now: number) => sessionSummary(RECORD, IDLE, now).active;
  expect(at(1000 + ACTIVE_SESSION_MS - 1)).toBe(true);
  expect(at(1000 + ACTIVE_SESSION_MS)).toBe(false);
});
