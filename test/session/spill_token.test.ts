import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { SpillTokens } from "../../src/session/spill_token.ts";
import { seededRandom } from "../support/session_bench.ts";

/** Goal: a snapshot says what it was given out for, and cannot be made or changed by anyone else. */
const CAPTURE = { sessionId: "s", contentId: "c", cutoff: 70_000, issuedAt: 1_767_225_600_000 };

test("SpillTokens reads back what it gave out", () => {
  const tokens = new SpillTokens("instance", seededRandom());
  expect(tokens.read("s", "c", tokens.issue(CAPTURE))).toEqual({
    kind: "good",
    cutoff: CAPTURE.cutoff,
    issuedAt: CAPTURE.issuedAt,
  });
});

test("SpillTokens tells forged, foreign and malformed tokens apart", () => {
  const tokens = new SpillTokens("instance", seededRandom(1));
  const token = tokens.issue(CAPTURE);
  expect(tokens.read("other", "c", token).kind).toBe("forged");
  expect(tokens.read("s", "other", token).kind).toBe("forged");
  expect(new SpillTokens("instance", seededRandom(2)).read("s", "c", token).kind).toBe("forged");
  expect(new SpillTokens("another", seededRandom(1)).read("s", "c", token).kind).toBe("foreign");
  expect(tokens.read("s", "c", `${token}x`).kind).toBe("malformed");
});

test("property: a token with any character changed is never good", () => {
  const tokens = new SpillTokens("instance", seededRandom());
  const token = tokens.issue(CAPTURE);
  fc.assert(
    fc.property(
      fc.nat(token.length - 1),
      fc.constantFrom("0", "a", "Z", ".", "_", "-"),
      (at, letter) => {
        const changed = token.slice(0, at) + letter + token.slice(at + 1);
        const reading = tokens.read("s", "c", changed);
        // The last character of base64url holds bits that stand for nothing.
        if (changed !== token && at < token.length - 1) expect(reading.kind).not.toBe("good");
      },
    ),
    { numRuns: 500 },
  );
});
