import { expect, test } from "bun:test";
import fc from "fast-check";
import { equalInConstantTime } from "../../src/base/constant_time.ts";

test("equalInConstantTime says what a plain comparison says", () => {
  const bytes = fc.uint8Array({ maxLength: 8 });
  fc.assert(
    fc.property(bytes, bytes, (a, b) => {
      expect(equalInConstantTime(a, b)).toBe(Buffer.compare(a, b) === 0);
      expect(equalInConstantTime(a, a.slice())).toBe(true);
    }),
  );
  const key = new Uint8Array([1, 2, 3]);
  for (const other of [
    [1, 2],
    [1, 2, 3, 0],
    [0, 2, 3],
    [1, 2, 131],
  ]) {
    expect(equalInConstantTime(key, new Uint8Array(other))).toBe(false);
  }
});
