import { describe, expect, test } from "bun:test";
import { MIB } from "../../src/base/limits.ts";
import { Flood } from "../../src/session/flood.ts";

/*
 * "40 stalled readers while 8 MiB are streamed cost less than 100 MiB" (issue 3): most of it is garbage, so it is
 * collected once for each MiB, and never at a model's pace.
 */
describe("Flood", () => {
  test("collects once for each MiB, whatever parts it came in", () => {
    let collected = 0;
    const flood = new Flood(() => {
      collected += 1;
    });
    flood.passed(MIB - 1);
    expect(collected).toBe(0);
    flood.passed(1);
    expect(collected).toBe(1);
    for (let part = 0; part < 256; part += 1) flood.passed(4096);
    expect(collected).toBe(2);
    flood.passed(3 * MIB);
    expect(collected).toBe(3);
  });
});
