import { describe, expect, test } from "bun:test";
import { ago, printTable } from "../../src/cli/table.ts";
import { Paper } from "./paper.ts";

/** Goal: columns line up in terminal columns, and a title cannot break out of its line. */
function table(isTTY: boolean, columns: number, rows: readonly string[][]): string[] {
  const paper = new Paper({ isTTY, columns, variables: { NO_COLOR: "1" } });
  printTable(
    paper.sink,
    ["ID", "TITLE"],
    rows.map((row) => row.map((cell) => ({ text: cell }))),
  );
  return paper.text.trimEnd().split("\n");
}

describe("printTable", () => {
  test("lines up columns of wide characters", () => {
    expect(
      table(false, 80, [
        ["漢字", "a"],
        ["b", "c"],
      ]),
    ).toEqual(["ID    TITLE", "漢字  a", "b     c"]);
  });

  test("cuts the last column to the terminal, and nothing elsewhere", () => {
    const title = "a title of many words";
    expect(table(true, 16, [["b", title]])[1]).toBe("b   a title of …");
    expect(table(false, 16, [["b", title]])[1]).toBe(`b   ${title}`);
  });

  test("keeps a title on its line", () => {
    expect(table(true, 80, [["b", "one\n\u001b[2Jtwo"]])).toHaveLength(2);
  });
});

describe("ago", () => {
  test("takes the largest unit that is not nothing", () => {
    const second = 1000;
    expect(ago(second, 2 * second)).toBe("0s ago");
    expect(ago(59 * second, 0)).toBe("59s ago");
    expect(ago(60 * second, 0)).toBe("1m ago");
    expect(ago(3599 * second, 0)).toBe("59m ago");
    expect(ago(3600 * second, 0)).toBe("1h ago");
    expect(ago(48 * 3600 * second, 0)).toBe("2d ago");
  });
});
