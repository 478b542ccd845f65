import { expect, test } from "bun:test";
import fc from "fast-check";
import { SurrogateJoiner, wellFormed } from "../../src/agent/well_formed.ts";

// Goal: "text is made well-formed before it is fingerprinted, stored or sent; a pair split over two deltas is joined"
// (contract.md, What others' users ran into).

test("SurrogateJoiner gives the same text in whatever pieces it comes, each piece well-formed", () => {
  const units = fc.array(
    fc.oneof(
      fc.constantFrom(0xd83c, 0xdf0d, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0x61),
      fc.integer({ min: 0, max: 0xffff }),
    ),
    { maxLength: 40 },
  );
  fc.assert(
    fc.property(
      units,
      fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 40 }),
      (codes, sizes) => {
        const text = String.fromCharCode(...codes);
        const joiner = new SurrogateJoiner();
        const pieces: string[] = [];
        let at = 0;
        for (const size of sizes) {
          pieces.push(joiner.push(text.slice(at, at + size)));
          at += size;
        }
        pieces.push(joiner.push(text.slice(at)), joiner.end());
        expect(pieces.join("")).toBe(text.toWellFormed());
        expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
      },
    ),
  );
});

test("SurrogateJoiner holds nothing back but a first half", () => {
  const joiner = new SurrogateJoiner();
  expect(joiner.push("ab")).toBe("ab");
  expect(joiner.push("c\ud83c")).toBe("c");
  expect(joiner.push("")).toBe("");
  expect(joiner.push("\udf0d")).toBe("🌍");
  expect(joiner.end()).toBe("");
});

test("wellFormed() mends every text in a value and leaves the rest", () => {
  expect(wellFormed({ "a\ud800": ["\udc00", 1, null, { b: true }], c: undefined })).toEqual({
    "a\ufffd": ["\ufffd", 1, null, { b: true }],
    c: undefined,
  });
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(wellFormed(value)).toEqual(value as never);
    }),
  );
});
