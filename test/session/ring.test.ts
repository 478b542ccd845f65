import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { RESPONSE_BYTES_MAX, RING_BYTES_MAX, RING_EVENTS_MAX } from "../../src/base/limits.ts";
import { Ring } from "../../src/session/ring.ts";
import type { Frame } from "../../src/session/subscription.ts";

/**
 * Goal: "The replay window keeps at most 256 events and less than one response's bytes, so any replay fits a single
 * batch" (sessions.md, Stream failures and recovery). Method: events that say their own number.
 */
function event(seq: number, size = 0): string {
  return JSON.stringify({ seq, pad: "x".repeat(size) });
}

function numbers(frame: Frame | null): number[] | null {
  if (frame === null) return null;
  const batch = JSON.parse(frame.data) as { cursor: number; events: { seq: number }[] };
  expect(batch.cursor).toBe(frame.cursor);
  return batch.events.map(({ seq }) => seq);
}

function filled(count: number, size = 0): Ring {
  const ring = new Ring("g");
  for (let seq = 1; seq <= count; seq += 1) ring.append(event(seq, size));
  return ring;
}

test("Ring.after() gives all events behind a position, and an empty batch at the head", () => {
  const ring = filled(3);
  expect(numbers(ring.after(0))).toEqual([1, 2, 3]);
  expect(numbers(ring.after(2))).toEqual([3]);
  expect(numbers(ring.after(3))).toEqual([]);
  expect(ring.after(3)?.data).toBe('{"generation":"g","cursor":3,"events":[]}');
});

test("Ring.after() refuses positions outside of the window: older, ahead, and no numbers", () => {
  const ring = filled(RING_EVENTS_MAX + 5);
  expect(ring.after(4)).toBeNull();
  expect(numbers(ring.after(5))?.length).toBe(RING_EVENTS_MAX);
  expect(ring.after(RING_EVENTS_MAX + 6)).toBeNull();
  expect(ring.after(-1)).toBeNull();
  expect(ring.after(1.5)).toBeNull();
  expect(ring.after(Number.NaN)).toBeNull();
});

test("Ring keeps less than a response's bytes, so that a replay of all of it fits", () => {
  const ring = filled(200, 20_000);
  expect(ring.bytes).toBeLessThanOrEqual(RING_BYTES_MAX);
  const whole = ring.after(ring.head - ring.size);
  expect(Buffer.byteLength(whole?.data ?? "")).toBeLessThan(RESPONSE_BYTES_MAX);
  expect(ring.size).toBe(Math.floor(RING_BYTES_MAX / (event(100, 20_000).length + 1)));
});

test("Ring counts bytes, not characters", () => {
  const ring = new Ring("g");
  for (let seq = 1; seq <= 10; seq += 1) {
    ring.append(JSON.stringify({ seq, pad: "漢".repeat(60_000) }));
  }
  expect(ring.size).toBe(Math.floor(RING_BYTES_MAX / (60_000 * 3 + 17)));
});

test("Ring keeps an event of exactly the window's size and drops one that is a byte larger", () => {
  const overhead = event(1).length + 1;
  const fits = filled(1, RING_BYTES_MAX - overhead);
  expect(numbers(fits.after(0))).toEqual([1]);
  const large = filled(1, RING_BYTES_MAX - overhead + 1);
  expect(large.after(0)).toBeNull();
  expect(numbers(large.after(1))).toEqual([]);
  large.append(event(2));
  expect(numbers(large.after(1))).toEqual([2]);
});

test("Ring gives readers at one position the same frame until something is added", () => {
  const ring = filled(5);
  expect(ring.after(2)).toBe(ring.after(2));
  const before = ring.after(2);
  ring.append(event(6));
  expect(ring.after(2)).not.toBe(before);
});

test("Ring.clear() lets go of the window but not of the numbers", () => {
  const ring = filled(5);
  ring.clear();
  expect(ring.bytes).toBe(0);
  expect(ring.after(4)).toBeNull();
  expect(numbers(ring.after(5))).toEqual([]);
  ring.append(event(6));
  expect(numbers(ring.after(5))).toEqual([6]);
});

test("property: a replay is the suffix of what was appended, or the window does not reach back that far", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 30_000 }), { maxLength: 600 }),
      fc.array(fc.nat(700), { minLength: 1, maxLength: 20 }),
      (sizes, positions) => {
        const ring = new Ring("g");
        for (const [index, size] of sizes.entries()) ring.append(event(index + 1, size));
        expect(ring.size).toBeLessThanOrEqual(RING_EVENTS_MAX);
        expect(ring.bytes).toBeLessThanOrEqual(RING_BYTES_MAX);
        for (const position of positions) {
          const got = numbers(ring.after(position));
          if (got === null) {
            expect(position > sizes.length || position < sizes.length - ring.size).toBe(true);
          } else {
            expect(got).toEqual(
              Array.from({ length: sizes.length - position }, (_, index) => position + 1 + index),
            );
          }
        }
      },
    ),
    { numRuns: 60 },
  );
});
