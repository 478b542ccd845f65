import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { FRAME_MS } from "../../src/base/limits.ts";
import { DELTA_CHARS_MAX, type Delta, DeltaFrame } from "../../src/session/frame.ts";
import { FakeClock } from "../support/fake_clock.ts";

/**
 * Goal: "Text and thinking deltas reach subscribers at most once a frame (16 ms) … merging neighbours of one message
 * into one event. Any other event … publish the held deltas first" (sessions.md, Stream failures and recovery).
 * Method: a clock that stands still; what is published is noted with the time of its publication.
 */
function bench() {
  const clock = new FakeClock();
  const published: (Delta & { at: number })[] = [];
  const frame = new DeltaFrame(clock, (delta) =>
    published.push({ ...delta, at: clock.monotonic() }),
  );
  return { clock, published, frame };
}

function delta(text: string, liveId = "a", kind: Delta["kind"] = "text"): Delta {
  return { kind, messageId: `m-${liveId}`, liveId, text };
}

test("DeltaFrame publishes the first delta after a quiet frame at once and holds later ones until it ends", async () => {
  const { clock, published, frame } = bench();
  frame.push(delta("1"));
  frame.push(delta("2"));
  await clock.advance(FRAME_MS - 1);
  frame.push(delta("3"));
  expect(published.map(({ text }) => text)).toEqual(["1"]);
  await clock.advance(1);
  expect(published.map(({ text, at }) => [text, at])).toEqual([
    ["1", 0],
    ["23", FRAME_MS],
  ]);
  await clock.advance(FRAME_MS);
  frame.push(delta("4"));
  expect(published.at(-1)).toMatchObject({ text: "4", at: 2 * FRAME_MS });
});

test("DeltaFrame starts a new frame at each end that published something", async () => {
  const { clock, published, frame } = bench();
  for (let ms = 0; ms < 10 * FRAME_MS; ms += 1) {
    frame.push(delta("x"));
    await clock.advance(1);
  }
  expect(published.length).toBe(11);
  const gaps = published.slice(1).map(({ at }, index) => at - (published[index]?.at ?? 0));
  expect(new Set(gaps)).toEqual(new Set([FRAME_MS]));
});

test("DeltaFrame merges neighbours of one block only", async () => {
  const { clock, published, frame } = bench();
  frame.push(delta("0"));
  for (const [text, liveId, kind] of [
    ["a", "t1", "thinking"],
    ["b", "t1", "thinking"],
    ["c", "x1", "text"],
    ["d", "t1", "thinking"],
  ] as const) {
    frame.push(delta(text, liveId, kind));
  }
  await clock.advance(FRAME_MS);
  expect(published.slice(1).map(({ liveId, text }) => [liveId, text])).toEqual([
    ["t1", "ab"],
    ["x1", "c"],
    ["t1", "d"],
  ]);
});

test("flush() publishes what is held and lets the frame go on", async () => {
  const { clock, published, frame } = bench();
  frame.push(delta("1"));
  frame.push(delta("2"));
  frame.flush();
  frame.push(delta("3"));
  expect(published.map(({ text }) => text)).toEqual(["1", "2"]);
  await clock.advance(FRAME_MS);
  expect(published.map(({ text }) => text)).toEqual(["1", "2", "3"]);
});

test("DeltaFrame joins a surrogate pair that was split over two deltas, and never publishes half of one", async () => {
  const { clock, published, frame } = bench();
  const [high, low] = ["\ud83d", "\ude00"];
  frame.push(delta(`a${high}`));
  frame.flush();
  frame.push(delta(`${low}b`));
  await clock.advance(FRAME_MS);
  expect(published.map(({ text }) => text)).toEqual(["a", "😀b"]);
});

test("DeltaFrame publishes half a pair as U+FFFD when its block ends, another begins, or the message is over", async () => {
  for (const end of ["endBlock", "finish", "another"] as const) {
    const { clock, published, frame } = bench();
    frame.push(delta("a\ud83d"));
    if (end === "another") frame.push(delta("z", "b"));
    else if (end === "endBlock") frame.endBlock("a");
    else frame.finish();
    await clock.advance(FRAME_MS);
    const texts = published.filter(({ liveId }) => liveId === "a").map(({ text }) => text);
    expect(texts.join("")).toBe("a\ufffd");
  }
});

test("DeltaFrame cuts what is too long for an event, between characters", () => {
  const { published, frame } = bench();
  const text = `x${"😀".repeat(DELTA_CHARS_MAX)}`;
  frame.push(delta(text));
  expect(published.map((piece) => piece.text).join("")).toBe(text);
  for (const piece of published) {
    expect(piece.text.length).toBeLessThanOrEqual(DELTA_CHARS_MAX);
    expect(piece.text.isWellFormed()).toBe(true);
  }
});

test("DeltaFrame bounds what it holds within a frame", () => {
  const { published, frame } = bench();
  frame.push(delta("-"));
  for (let count = 0; count < 1024; count += 1) frame.push(delta("x".repeat(1024)));
  const chars = published.reduce((sum, { text }) => sum + text.length, 0);
  expect(1024 * 1024 + 1 - chars).toBeLessThanOrEqual(256 * 1024 + 1024);
});

test("DeltaFrame leaves no timer behind when it is closed or quiet", async () => {
  const { clock, frame } = bench();
  frame.push(delta("1"));
  await clock.advance(2 * FRAME_MS);
  expect(clock.waiting).toBe(0);
  frame.push(delta("2"));
  frame.push(delta("3"));
  frame.close();
  expect(clock.waiting).toBe(0);
});

/** Halves of surrogate pairs on their own, so that they meet and miss each other. */
const unit = fc.constantFrom("a", "é", "\ud83d", "\ude00", "\n");

const steps = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ push: fc.string({ unit }), block: fc.nat(1) }) },
    { weight: 2, arbitrary: fc.record({ advance: fc.integer({ min: 1, max: 20 }) }) },
    { weight: 1, arbitrary: fc.record({ flush: fc.constant(true) }) },
  ),
);

test("property: published text equals what was pushed, a block at a time, and time never puts two publications into one frame", async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (script) => {
      const { clock, published, frame } = bench();
      const pushed: Delta[] = [];
      let flushes = 0;
      for (const step of script) {
        if ("push" in step) {
          pushed.push(delta(step.push, `b${step.block}`));
          frame.push(delta(step.push, `b${step.block}`));
        } else if ("advance" in step) await clock.advance(step.advance);
        else {
          flushes += 1;
          frame.flush();
        }
      }
      frame.finish();
      // Runs of one block, in order: neighbours may be merged, nothing may be moved.
      expect(runs(published)).toEqual(runs(wellFormed(pushed)));
      expect(published.every(({ text }) => text !== "" && text.isWellFormed())).toBe(true);
      const instants = new Set(published.map(({ at }) => at));
      expect(instants.size).toBeLessThanOrEqual(
        1 + flushes + 1 + Math.floor(clock.monotonic() / FRAME_MS) + 1,
      );
    }),
    { numRuns: 300 },
  );
});

/** Text of neighbouring deltas of one block, joined. */
function runs(deltas: readonly Delta[]): [string, string][] {
  const result: [string, string][] = [];
  for (const { liveId, text } of deltas) {
    if (text === "") continue;
    const last = result.at(-1);
    if (last !== undefined && last[0] === liveId) last[1] += text;
    else result.push([liveId, text]);
  }
  return result;
}

/** The pushed deltas with each run made well-formed, which is what a reader may see. */
function wellFormed(deltas: readonly Delta[]): Delta[] {
  return runs(deltas).map(([liveId, text]) => delta(text.toWellFormed(), liveId));
}
