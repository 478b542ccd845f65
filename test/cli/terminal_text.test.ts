import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { cutToWidth, safeForTerminal, safeLine } from "../../src/cli/terminal_text.ts";

/** Goal: nothing a model writes can steer the terminal, however it is cut into deltas. */
const ESCAPE = "\u001b";

describe("safeForTerminal", () => {
  test("shows control characters instead of sending them", () => {
    expect(safeForTerminal(`${ESCAPE}[31mred`)).toBe("␛[31mred");
    expect(safeForTerminal(`${ESCAPE}]0;title\u0007`)).toBe("␛]0;title␇");
    expect(safeForTerminal("\u009b31m")).toBe("\\u009b31m");
    expect(safeForTerminal("\u007f\b")).toBe("␡␈");
    expect(safeForTerminal("a\u202eb")).toBe("a\\u202eb");
  });

  test("leaves text, tabs, newlines and emoji as they are", () => {
    const text = "Grüße\t→ 漢字 👩‍👩‍👧\nשלום";
    expect(safeForTerminal(text)).toBe(text);
  });

  test("takes the return off a line's end, so that nothing is overwritten", () => {
    expect(safeForTerminal("one\r\ntwo\rthree")).toBe("one\ntwothree");
  });

  test("leaves no control character, wherever the text was split", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.nat(), (text, at) => {
        const cut = text.length === 0 ? 0 : at % text.length;
        const whole = safeForTerminal(text.slice(0, cut)) + safeForTerminal(text.slice(cut));
        expect(whole).toBe(safeForTerminal(text));
        // oxlint-disable-next-line no-control-regex -- the very characters that must not be there
        expect(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(whole)).toBe(false);
      }),
    );
  });
});

describe("safeLine", () => {
  test("makes one line of several", () => {
    expect(safeLine("one \r\n\n two\tthree")).toBe("one two three");
  });
});

describe("cutToWidth", () => {
  test("counts columns, not characters", () => {
    expect(cutToWidth("漢字漢字", 8)).toBe("漢字漢字");
    expect(cutToWidth("漢字漢字", 5)).toBe("漢字…");
    expect(cutToWidth("hello world", 6)).toBe("hello…");
  });
});
