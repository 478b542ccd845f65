import { describe, expect, test } from "bun:test";
import { inputText, printRow } from "../../src/cli/row_text.ts";
import type { HistoryRow } from "../../src/client/client.ts";
import { Paper } from "./paper.ts";

/** Goal: each kind of row reads well on lines of its own. */
function printed(fields: Partial<HistoryRow> & Pick<HistoryRow, "role">): string {
  const paper = new Paper();
  printRow(paper.sink, { id: 1, turn_id: null, created_at: 1, ...fields });
  return paper.text;
}

describe("printRow", () => {
  test("marks what a user said, line by line, with its images", () => {
    const image = { image_id: "i", mime_type: "image/png", width: 3, height: 2, bytes: 70 };
    expect(printed({ role: "user", display_text: "one\ntwo", images: [image] })).toBe(
      "> one\n  two\n  [image/png, 3 × 2, 70 bytes]\n",
    );
    expect(printed({ role: "continuation" })).toBe("> (go on)\n");
  });

  test("shows a tool's call in words and the beginning of its output", () => {
    expect(
      printed({ role: "tool_call", tool_name: "bash", tool_input: { command: "ls -l" } }),
    ).toBe("• bash ls -l\n");
    expect(printed({ role: "tool_result", tool_status: "error", text: "1\n2\n3\n4\n5\n" })).toBe(
      "  error\n  1\n  2\n  3\n  … 2 more lines\n",
    );
  });

  test("ends every row with its line", () => {
    for (const role of ["assistant", "thinking", "note"] as const) {
      expect(printed({ role, text: "one\ntwo\n" })).toBe("one\ntwo\n");
    }
    expect(printed({ role: "compaction" })).toEndWith("\n");
  });
});

describe("inputText", () => {
  test("takes the texts out of arguments, also out of their JSON", () => {
    expect(inputText({ path: "a.txt", limit: 3 })).toBe("a.txt 3");
    expect(inputText('{"command":"ls"}')).toBe("ls");
    expect(inputText('{"command":"cut of')).toBe('{"command":"cut of');
    expect(inputText(undefined)).toBe("");
    expect(inputText([1])).toBe("[1]");
  });
});
