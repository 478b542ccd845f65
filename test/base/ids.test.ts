import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { createIds, isUuidv7, systemRandom, uuidv7Timestamp } from "../../src/base/ids.ts";
import { FakeClock } from "../support/fake_clock.ts";

// Goal: ids are UUIDv7 in lowercase canonical form, stamped with the injected clock (contract.md, Identity and
// time), and none is made without random bytes (operations.md).

describe("createIds()", () => {
  test("stamps the clock's time and gives what is told to be a UUIDv7", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 48 - 1 }), (now) => {
        const id = createIds({ now: () => now }).uuidv7();
        expect(isUuidv7(id)).toBe(true);
        expect(uuidv7Timestamp(id)).toBe(now);
      }),
    );
  });

  test("ids of one millisecond, and of a clock that goes back a little, increase and differ", () => {
    const clock = new FakeClock();
    const ids = createIds(clock);
    const made: string[] = [];
    for (let count = 0; count < 2000; count += 1) {
      if (count === 1000) clock.setWall(clock.now() - 5_000);
      made.push(ids.uuidv7());
    }
    expect(made).toEqual([...new Set(made)].sort());
  });

  test("a clock that was set back for good stamps its own time again", () => {
    const clock = new FakeClock();
    const ids = createIds(clock);
    ids.uuidv7();
    clock.setWall(clock.now() - 3_600_000);
    expect(uuidv7Timestamp(ids.uuidv7())).toBe(clock.now());
  });

  test("follows from clock and bytes alone", () => {
    const bytes = (target: Uint8Array<ArrayBuffer>): void => void target.fill(7);
    const clock = new FakeClock();
    expect(createIds(clock, bytes).uuidv7()).toBe(createIds(clock, bytes).uuidv7());
    expect(createIds(clock).uuidv7()).not.toBe(createIds(clock).uuidv7());
  });

  test("throws when the random source fails", () => {
    const ids = createIds(new FakeClock(), () => {
      throw new Error("No entropy");
    });
    expect(() => ids.uuidv7()).toThrow("No entropy");
  });
});

describe("systemRandom()", () => {
  test("fills the array", () => {
    const bytes = new Uint8Array(64);
    systemRandom(bytes);
    expect(bytes.some((byte) => byte !== 0)).toBe(true);
  });
});

describe("isUuidv7()", () => {
  test.each([
    ["01930000-0000-7000-8000-000000000001", true],
    ["01930000-0000-7000-BFFF-000000000001", false],
    ["01930000-0000-7000-bfff-000000000001", true],
    // Another version, another variant.
    ["01930000-0000-4000-8000-000000000001", false],
    ["01930000-0000-7000-c000-000000000001", false],
    ["01930000-0000-7000-7000-000000000001", false],
    // Another form of the same.
    ["0193000000007000800000000000001", false],
    ["{01930000-0000-7000-8000-000000000001}", false],
    ["urn:uuid:01930000-0000-7000-8000-000000000001", false],
    ["01930000-0000-7000-8000-000000000001\n", false],
    [" 01930000-0000-7000-8000-000000000001", false],
    ["01930000-0000-7000-8000-00000000000g", false],
    ["", false],
  ])("%j: %p", (text, expected) => {
    expect(isUuidv7(text)).toBe(expected);
  });
});
