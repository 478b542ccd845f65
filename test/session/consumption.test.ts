import { expect, test } from "bun:test";
import { headOf } from "../../src/session/consumption.ts";
import type { Waiting } from "../../src/session/session_state.ts";

/** Goal: which inputs are taken together. What preparing them does is in the scenarios of blocked.test.ts. */
function queue(kinds: string): Waiting[] {
  return kinds.split("").map((letter, index) => ({
    id: `${letter}${index}`,
    kind: letter === "c" ? ("command" as const) : ("message" as const),
    submissionId: "",
    name: null,
    arguments: null,
    images: [],
    shown: { id: "", kind: "message", submission_id: "", image_count: 0, accepted_at: 0 },
  }));
}

test("headOf() takes all up to the first command, and a command at the head alone", () => {
  for (const [kinds, taken] of [
    ["mmm", "mmm"],
    ["mmcm", "mm"],
    ["cmm", "c"],
    ["ccm", "c"],
    ["m", "m"],
    ["", ""],
  ] as const) {
    const letters = headOf(queue(kinds))
      .map(({ id }) => id[0])
      .join("");
    expect(letters).toBe(taken);
  }
});
