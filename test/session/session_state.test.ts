import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { CONSUME_RETRY_MS } from "../../src/base/limits.ts";
import {
  advance,
  initialState,
  isQuiet,
  maySteer,
  type SessionEffect,
  type SessionEvent,
  type SessionState,
  viewOf,
  type Waiting,
} from "../../src/session/session_state.ts";
import type { Turn } from "../../src/wire/input.ts";

/** Goal: the transitions of a session, as a table and as properties. Method: pure calls; time is an argument. */
function waiting(id: string): Waiting {
  return {
    id,
    kind: "message",
    submissionId: id,
    name: null,
    arguments: null,
    images: [],
    shown: { id, kind: "message", submission_id: id, image_count: 0, accepted_at: 0 },
  };
}

function turn(members: readonly string[], state: Turn["state"] = "running"): Turn {
  return { id: "t", state, members: [...members], started_at: 0 };
}

/** Plays events and keeps the effects. */
function play(
  events: readonly (SessionEvent | [SessionEvent, number])[],
  start: SessionState = initialState({ waiting: [], interrupted: false }),
): { state: SessionState; effects: SessionEffect[] } {
  let state = start;
  const effects: SessionEffect[] = [];
  for (const entry of events) {
    const [event, now] = Array.isArray(entry) ? entry : [entry, 0];
    const next = advance(state, event, now);
    state = next.state;
    effects.push(...next.effects);
  }
  return { state, effects };
}

const ACCEPTED: SessionEvent = { kind: "accepted", input: waiting("a") };

test("Accepting into a quiet session begins a preparation; a second input joins the queue", () => {
  const { state, effects } = play([ACCEPTED, { kind: "accepted", input: waiting("b") }]);
  expect(effects).toEqual([{ kind: "prepare", epoch: 1 }]);
  expect(state.waiting.map(({ id }) => id)).toEqual(["a", "b"]);
  expect(viewOf(state)).toEqual({ phase: "opening", running: false, blockingReason: null });
});

test("An input that is known already is not queued twice", () => {
  const { state, effects } = play([ACCEPTED, ACCEPTED]);
  expect(state.waiting.length).toBe(1);
  expect(effects.length).toBe(1);
});

test("A turn takes its members off the queue, ends, and what still waits is prepared next", () => {
  const { state, effects } = play([
    ACCEPTED,
    { kind: "accepted", input: waiting("b") },
    { kind: "turn_started", epoch: 1, turn: turn(["a"]) },
  ]);
  expect(viewOf(state)).toEqual({ phase: "running", running: true, blockingReason: null });
  expect(state.waiting.map(({ id }) => id)).toEqual(["b"]);
  const ended = play([{ kind: "turn_ended", epoch: 1, turn: turn(["a"], "completed") }], state);
  expect(ended.effects).toEqual([{ kind: "prepare", epoch: 2 }]);
  expect(effects.length).toBe(1);
});

test("An interrupted turn leaves the session interrupted until the next one begins", () => {
  const { state } = play([
    ACCEPTED,
    { kind: "turn_started", epoch: 1, turn: turn(["a"]) },
    { kind: "stop", reason: "interrupt" },
    { kind: "turn_ended", epoch: 1, turn: turn(["a"], "interrupted") },
  ]);
  expect(viewOf(state).phase).toBe("interrupted");
  const next = play(
    [
      { kind: "accepted", input: waiting("b") },
      { kind: "turn_started", epoch: 2, turn: turn(["b"]) },
      { kind: "turn_ended", epoch: 2, turn: turn(["b"], "completed") },
    ],
    state,
  );
  expect(viewOf(next.state).phase).toBe("idle");
});

test("A turn is told to stop once, however often it is asked", () => {
  const { effects } = play([
    ACCEPTED,
    { kind: "turn_started", epoch: 1, turn: turn(["a"]) },
    { kind: "stop", reason: "interrupt" },
    { kind: "stop", reason: "interrupt" },
  ]);
  expect(effects.filter(({ kind }) => kind === "abort")).toEqual([
    { kind: "abort", epoch: 1, reason: "interrupt" },
  ]);
});

test("A failed preparation blocks, is planned again in 15 s, and tells the store once for one reason", () => {
  const first = play([
    ACCEPTED,
    [{ kind: "prepare_failed", epoch: 1, reason: "workspace_missing" }, 5],
  ]);
  expect(first.effects.slice(1)).toEqual([
    { kind: "schedule_retry", at: 5 + CONSUME_RETRY_MS },
    { kind: "store_blocking", reason: "workspace_missing" },
  ]);
  expect(viewOf(first.state)).toEqual({
    phase: "blocked",
    running: false,
    blockingReason: "workspace_missing",
  });
  const early = play([[{ kind: "retry_due" }, 4 + CONSUME_RETRY_MS]], first.state);
  expect(early.effects).toEqual([{ kind: "schedule_retry", at: 5 + CONSUME_RETRY_MS }]);
  const again = play([[{ kind: "retry_due" }, 5 + CONSUME_RETRY_MS]], first.state);
  expect(again.effects).toEqual([{ kind: "prepare", epoch: 2 }]);
  expect(viewOf(again.state).phase).toBe("blocked");
  const same = play(
    [[{ kind: "prepare_failed", epoch: 2, reason: "workspace_missing" }, 20_000]],
    again.state,
  );
  expect(same.effects.map(({ kind }) => kind)).toEqual(["schedule_retry"]);
  const other = play(
    [[{ kind: "prepare_failed", epoch: 2, reason: "model_unavailable" }, 20_000]],
    again.state,
  );
  expect(other.effects.map(({ kind }) => kind)).toEqual(["schedule_retry", "store_blocking"]);
});

test("Only a change of what blocked is a reason to try at once", () => {
  const { state } = play([
    ACCEPTED,
    { kind: "prepare_failed", epoch: 1, reason: "model_unavailable" },
  ]);
  expect(play([{ kind: "unblocked", reason: "workspace_missing" }], state).effects).toEqual([]);
  expect(play([{ kind: "accepted", input: waiting("b") }], state).effects).toEqual([]);
  expect(play([{ kind: "unblocked", reason: "model_unavailable" }], state).effects).toEqual([
    { kind: "prepare", epoch: 2 },
  ]);
});

test("A queue that is emptied is blocked no longer", () => {
  const { state, effects } = play([
    ACCEPTED,
    { kind: "prepare_failed", epoch: 1, reason: "model_unavailable" },
    { kind: "cancelled", ids: ["a"] },
  ]);
  expect(viewOf(state)).toEqual({ phase: "idle", running: false, blockingReason: null });
  expect(effects.at(-1)).toEqual({ kind: "cancel_retry" });
});

test("A failure at a step boundary leaves the turn running, and keeps the boundary from trying again too soon", () => {
  const { state } = play([
    ACCEPTED,
    { kind: "turn_started", epoch: 1, turn: turn(["a"]) },
    { kind: "accepted", input: waiting("b") },
    [{ kind: "steer_failed", epoch: 1, reason: "workspace_missing" }, 100],
  ]);
  expect(viewOf(state)).toMatchObject({ phase: "running", blockingReason: "workspace_missing" });
  expect(maySteer(state, 99 + CONSUME_RETRY_MS)).toBe(false);
  expect(maySteer(state, 100 + CONSUME_RETRY_MS)).toBe(true);
});

test("What an older epoch says changes nothing", () => {
  const { state } = play([ACCEPTED, { kind: "turn_started", epoch: 1, turn: turn(["a"]) }]);
  for (const event of [
    { kind: "prepare_failed", epoch: 1, reason: "storage_failure" },
    { kind: "prepared_nothing", epoch: 1, waiting: [] },
    { kind: "turn_ended", epoch: 0, turn: turn(["a"], "completed") },
    { kind: "turn_changed", epoch: 0, turn: turn(["a", "b"]) },
    { kind: "steer_failed", epoch: 0, reason: "storage_failure" },
  ] as const) {
    expect(play([event], state)).toEqual({ state, effects: [] });
  }
});

test("Nothing starts once the session closes; a turn that had begun is stopped", () => {
  const closing = play([{ kind: "closing", reason: "shutdown" }, ACCEPTED, { kind: "retry_due" }]);
  expect(closing.effects).toEqual([{ kind: "cancel_retry" }]);
  const late = play([
    ACCEPTED,
    { kind: "closing", reason: "shutdown" },
    { kind: "turn_started", epoch: 1, turn: turn(["a"]) },
  ]);
  expect(late.effects.at(-1)).toEqual({ kind: "abort", epoch: 1, reason: "shutdown" });
  const ended = play(
    [{ kind: "turn_ended", epoch: 1, turn: turn(["a"], "interrupted") }],
    late.state,
  );
  expect(ended.effects).toEqual([]);
});

test("A compaction is a turn of its own, only where nothing else is going on", () => {
  const { state, effects } = play([{ kind: "compaction_asked" }]);
  expect(effects).toEqual([{ kind: "prepare_compaction", epoch: 1 }]);
  expect(play([{ kind: "compaction_asked" }], state).effects).toEqual([]);
});

const ids = fc.constantFrom("a", "b", "c", "d");
// Behind the session's own; mostly none, as what comes from an older epoch changes nothing.
const epochs = fc.constantFrom(0, 0, 0, -1);
const reasons = fc.constantFrom(
  "workspace_missing" as const,
  "model_unavailable" as const,
  "storage_failure" as const,
);
const events: fc.Arbitrary<SessionEvent> = fc.oneof(
  fc.record({ kind: fc.constant("accepted" as const), input: ids.map(waiting) }),
  fc.record({ kind: fc.constant("cancelled" as const), ids: fc.uniqueArray(ids) }),
  fc.record({ kind: fc.constant("prepare_failed" as const), epoch: epochs, reason: reasons }),
  fc.record({
    kind: fc.constant("prepared_nothing" as const),
    epoch: epochs,
    waiting: fc.constant([]),
  }),
  fc.record({
    kind: fc.constant("turn_started" as const),
    epoch: epochs,
    turn: fc.uniqueArray(ids, { minLength: 1 }).map((members) => turn(members)),
  }),
  fc.record({
    kind: fc.constant("turn_ended" as const),
    epoch: epochs,
    turn: fc.constantFrom(turn([], "completed"), turn([], "interrupted"), turn([], "failed")),
  }),
  fc.record({ kind: fc.constant("steer_failed" as const), epoch: epochs, reason: reasons }),
  fc.record({ kind: fc.constant("stop" as const), reason: fc.constant("interrupt" as const) }),
  fc.record({ kind: fc.constant("unblocked" as const), reason: reasons }),
  fc.record({ kind: fc.constantFrom("woken", "retry_due", "compaction_asked") }),
);

test("property: at most one turn or preparation at a time, never an idle session with work that could start, tries 15 s apart", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(events, fc.integer({ min: 0, max: 9000 })), { maxLength: 60 }),
      (script) => {
        let state = initialState({ waiting: [], interrupted: false });
        let now = 0;
        let planned: number | null = null;
        for (const [scripted, passed] of script) {
          now += passed;
          const before = state;
          const event =
            "epoch" in scripted ? { ...scripted, epoch: before.epoch + scripted.epoch } : scripted;
          // The store begins a turn only for the preparation that asked for it.
          if (
            event.kind === "turn_started" &&
            (before.activity.kind !== "preparing" || before.activity.epoch !== event.epoch)
          ) {
            continue;
          }
          const next = advance(state, event, now);
          state = next.state;
          // A timer fires once, and this one may fire early.
          if (event.kind === "retry_due") planned = null;
          for (const effect of next.effects) {
            if (effect.kind === "schedule_retry") planned = effect.at;
            if (effect.kind === "cancel_retry") planned = null;
          }
          const prepares = next.effects.filter(({ kind }) => kind.startsWith("prepare"));
          expect(prepares.length).toBeLessThanOrEqual(1);
          if (prepares.length === 1) {
            expect(["quiet", "preparing", "turn"]).toContain(before.activity.kind);
            expect(state.activity.kind).toBe("preparing");
            expect(state.epoch).toBe(before.epoch + 1);
          }
          if (
            prepares[0]?.kind === "prepare" &&
            before.blocking !== null &&
            event.kind !== "unblocked"
          ) {
            expect(now).toBeGreaterThanOrEqual(before.blocking.retryAt);
          }
          const idle = state.activity.kind === "quiet" && state.waiting.length > 0;
          // What waits in a quiet session waits for a planned try.
          if (idle) {
            expect(state.blocking).not.toBeNull();
            expect(planned).toBe(state.blocking?.retryAt ?? null);
          }
          expect(isQuiet(state)).toBe(
            state.activity.kind === "quiet" && state.waiting.length === 0,
          );
          expect(viewOf(state).running).toBe(viewOf(state).phase === "running");
        }
      },
    ),
    { numRuns: 500 },
  );
});
