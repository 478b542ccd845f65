import { expect, test } from "bun:test";
import { FRAME_MS } from "../../src/base/limits.ts";
import { Emitter } from "../../src/session/emit.ts";
import type { Delta } from "../../src/session/frame.ts";
import type { EventBody } from "../../src/wire/event.ts";
import { FakeClock } from "../support/fake_clock.ts";

/** Goal: numbers without gaps, and the order between deltas and everything else. */
function bench() {
  const clock = new FakeClock();
  const deltas: [number, string][] = [];
  let published = 0;
  const emitter: Emitter = new Emitter({
    generation: "g",
    clock,
    onDelta: (delta) => deltas.push([emitter.cursor, delta.text]),
    onPublished: () => (published += 1),
  });
  const events = (after = 0) =>
    (
      JSON.parse(emitter.after(after)?.data ?? "{}") as {
        events: { seq: number; kind: string; text?: string }[];
      }
    ).events;
  return { clock, emitter, deltas, events, published: () => published };
}

const STATUS: EventBody = { kind: "status", phase: "idle", running: false };

function delta(text: string): Delta {
  return { kind: "text", messageId: "m", liveId: "l", text };
}

test("Emitter numbers events from 1 and stands at 0 before the first", () => {
  const { emitter, events } = bench();
  expect(emitter.cursor).toBe(0);
  emitter.emit(STATUS);
  emitter.delta(delta("a"));
  emitter.emit(STATUS);
  expect(events().map(({ seq, kind }) => [seq, kind])).toEqual([
    [1, "status"],
    [2, "text_delta"],
    [3, "status"],
  ]);
});

test("Emitter publishes held deltas before any other event", () => {
  const { emitter, events } = bench();
  emitter.delta(delta("a"));
  emitter.delta(delta("b"));
  emitter.delta(delta("c"));
  expect(emitter.cursor).toBe(1);
  emitter.emit(STATUS);
  expect(events().map(({ kind, text }) => text ?? kind)).toEqual(["a", "bc", "status"]);
});

test("Emitter shows a delta to the projection exactly when it has its number", async () => {
  const { clock, emitter, deltas } = bench();
  emitter.delta(delta("a"));
  emitter.delta(delta("b"));
  expect(deltas).toEqual([[1, "a"]]);
  await clock.advance(FRAME_MS);
  expect(deltas).toEqual([
    [1, "a"],
    [2, "b"],
  ]);
});

test("Emitter keeps half a surrogate pair over a status, and ends it with the message", () => {
  const { emitter, events } = bench();
  emitter.delta(delta("a\ud83d"));
  emitter.emit(STATUS);
  emitter.delta(delta("\ude00\ud83d"));
  emitter.emit({
    kind: "committed",
    turn_id: "t",
    row_ids: [],
    rows: [],
    history_watermark: 0,
    replaces_live_ids: [],
    replaces_all_live: true,
  });
  expect(events().map(({ kind, text }) => text ?? kind)).toEqual([
    "a",
    "status",
    "😀\ufffd",
    "committed",
  ]);
});

test("Emitter tells of every publication, and of none while deltas are held", () => {
  const { emitter, published } = bench();
  emitter.delta(delta("a"));
  emitter.delta(delta("b"));
  expect(published()).toBe(1);
  emitter.emit(STATUS);
  expect(published()).toBe(3);
});

test("Emitter.forget() ends the replay of what was, close() leaves no timer", () => {
  const { clock, emitter } = bench();
  emitter.emit(STATUS);
  emitter.emit(STATUS);
  emitter.forget();
  expect(emitter.after(1)).toBeNull();
  expect(emitter.after(2)).not.toBeNull();
  emitter.delta(delta("a"));
  emitter.close();
  expect(clock.waiting).toBe(0);
});
