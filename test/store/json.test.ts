import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { cutText, jsonBytes, toJson } from "../../src/store/json.ts";

/* Any text at all: control characters, quotes, every plane, lone surrogates. */
const anyText = fc.oneof(
  fc.string({ unit: "binary" }),
  fc
    .array(fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)))
    .map((units) => units.join("")),
  fc
    .array(
      fc.constantFrom(
        "\u0000",
        "\b",
        "\n",
        "\u000b",
        '"',
        "\\",
        "é",
        "€",
        "😀",
        "\ud83d",
        "\ude00",
        "\u007f",
        "\u2028",
      ),
    )
    .map((units) => units.join("")),
);

describe("cutText()", () => {
  test("keeps the longest beginning that fits and never half of a pair", () => {
    fc.assert(
      fc.property(anyText, fc.nat(80), (text, bytesMax) => {
        const cut = cutText(text, bytesMax);
        const bytes = (part: string): number => jsonBytes(part) - 2;
        expect(text.startsWith(cut)).toBe(true);
        expect(bytes(cut)).toBeLessThanOrEqual(bytesMax);
        if (text.isWellFormed()) expect(cut.isWellFormed()).toBe(true);
        if (cut.length === text.length) return;
        const next = String.fromCodePoint(text.codePointAt(cut.length) ?? 0);
        expect(bytes(cut + next)).toBeGreaterThan(bytesMax);
      }),
      { numRuns: 500 },
    );
  });

  test("keeps a text that fits exactly and cuts one that is a byte too long", () => {
    expect(cutText("abcdé", 6)).toBe("abcdé");
    expect(cutText("abcdé", 5)).toBe("abcd");
    expect(cutText("ab😀", 6)).toBe("ab😀");
    expect(cutText("ab😀", 5)).toBe("ab");
    expect(cutText("a", 0)).toBe("");
  });
});

describe("toJson()", () => {
  test("leaves no lone surrogate, however deep", () => {
    const text = toJson({ a: ["x\ud800", { b: "\udc00y" }], c: "😀" });
    expect(JSON.parse(text)).toEqual({ a: ["x\ufffd", { b: "\ufffdy" }], c: "😀" });
    expect(text).not.toMatch(/\\ud[89a-f]/i);
  });
});
