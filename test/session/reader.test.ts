import { expect, test } from "bun:test";
import { Reader, type ReaderSource } from "../../src/session/reader.ts";
import { batchFrame, Ring } from "../../src/session/ring.ts";
import { settle } from "../support/fake_clock.ts";

/** Goal: a position and a flag, and a clean end. Method: a source that is a ring and a count of resets. */
function bench() {
  const ring = new Ring("g");
  const state = { closed: false, resets: 0, released: 0 };
  const source: ReaderSource = {
    generation: "g",
    get cursor() {
      return ring.head;
    },
    get closed() {
      return state.closed;
    },
    after: (seq) => ring.after(seq),
    reset: () => {
      state.resets += 1;
      return batchFrame("g", ring.head, '{"kind":"reset"}');
    },
    release: () => void (state.released += 1),
  };
  const emit = (count = 1): void => {
    for (let index = 0; index < count; index += 1) ring.append(`{"seq":${ring.head + 1}}`);
  };
  return { state, source, emit };
}

test("Reader gives what is new, once, and nothing when there is nothing", () => {
  const { source, emit, state } = bench();
  const reader = new Reader(source, null);
  expect(reader.next()?.data).toContain("reset");
  expect(reader.next()).toBeNull();
  emit(2);
  expect(reader.next()?.data).toContain('[{"seq":1},{"seq":2}]');
  expect(reader.next()).toBeNull();
  expect(state.resets).toBe(1);
});

test("Reader resumes behind its position, and is reset when that is of another lifetime or too old", () => {
  const { source, emit, state } = bench();
  emit(300);
  const at = (generation: string, seq: number) =>
    new Reader(source, { generation, seq }).next()?.data ?? "";
  expect(at("g", 299)).toContain('[{"seq":300}]');
  expect(at("g", 300)).toContain('"events":[]');
  expect(state.resets).toBe(0);
  for (const data of [at("h", 300), at("g", 301), at("g", 3)]) expect(data).toContain("reset");
});

test("Reader.wait() resolves for each of its callers, and at once when there is something or an end", async () => {
  const { source, emit, state } = bench();
  const reader = new Reader(source, null);
  await reader.wait();
  reader.next();
  let woken = 0;
  void reader.wait().then(() => (woken += 1));
  void reader.wait().then(() => (woken += 1));
  await settle();
  expect(woken).toBe(0);
  emit();
  reader.wake();
  await settle();
  expect(woken).toBe(2);
  await reader.wait();
  reader.next();
  state.closed = true;
  await reader.wait();
  expect(reader.ended).toBe(true);
});

test("Reader of a source that has closed takes what is left, and ends without a reset", () => {
  const { source, emit, state } = bench();
  const reader = new Reader(source, null);
  reader.next();
  emit(2);
  state.closed = true;
  expect(reader.next()?.data).toContain('{"seq":2}');
  expect(reader.next()).toBeNull();
  emit(300);
  expect(reader.next()).toBeNull();
  expect(state.resets).toBe(1);
});

test("Reader.close() takes the watch away once", () => {
  const { source, state } = bench();
  const reader = new Reader(source, null);
  reader.close();
  reader.close();
  expect(state.released).toBe(1);
  expect([reader.ended, reader.next()]).toEqual([true, null]);
});
