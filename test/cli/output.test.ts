import { describe, expect, test } from "bun:test";
import { closeSync, existsSync, openSync } from "node:fs";
import { descriptorStream, Sink } from "../../src/cli/output.ts";
import { Paper } from "./paper.ts";

/** Goal: colour and escapes only where they belong, and no byte lost at the end. */
function printed(isTTY: boolean, variables: Record<string, string>): string {
  const paper = new Paper({ isTTY, variables });
  paper.sink.line(["red", "x"], "\u001b");
  return paper.text;
}

describe("Sink", () => {
  test("colours a terminal and nothing else", () => {
    expect(printed(true, {})).toBe("\u001b[31mx\u001b[39m␛\n");
    expect(printed(false, {})).toBe("x\u001b\n");
    expect(printed(true, { TERM: "dumb" })).toBe("x␛\n");
  });

  test("obeys NO_COLOR before FORCE_COLOR, and both only when they are set to something", () => {
    expect(printed(true, { NO_COLOR: "1" })).toBe("x␛\n");
    expect(printed(true, { NO_COLOR: "" })).toContain("\u001b[31m");
    expect(printed(false, { FORCE_COLOR: "1" })).toContain("\u001b[31m");
    expect(printed(false, { FORCE_COLOR: "0" })).toBe("x\u001b\n");
    expect(printed(false, { FORCE_COLOR: "1", NO_COLOR: "1" })).toBe("x\u001b\n");
  });

  test("styles a piece, and a piece cannot end its style by itself", () => {
    const paper = new Paper({ isTTY: true });
    paper.sink.line(["faint", "a\u001b[22mb"]);
    expect(paper.text).toBe("\u001b[2ma␛[22mb\u001b[22m\n");
  });

  test("ends a line only where one was begun", () => {
    const paper = new Paper();
    const { sink } = paper;
    sink.endLine();
    sink.put("a");
    sink.endLine();
    sink.endLine();
    sink.put("b\n");
    sink.endLine();
    expect(paper.text).toBe("a\nb\n");
  });

  test("prints JSON on one line, without the controls that JSON lets through", () => {
    const paper = new Paper({ isTTY: true });
    paper.sink.json({ text: "a\nb\u009b\u007f" });
    expect(paper.text).toBe('{"text":"a\\nb\\u009b\\u007f"}\n');
    expect(JSON.parse(paper.text)).toEqual({ text: "a\nb\u009b\u007f" });
  });

  test("flush waits for every write", async () => {
    const paper = new Paper({ holds: true });
    const { sink } = paper;
    sink.line("a");
    sink.line("b");
    let flushed = false;
    const flush = sink.flush().then(() => {
      flushed = true;
    });
    await Promise.resolve();
    expect(flushed).toBe(false);
    paper.release();
    await flush;
    expect(flushed).toBe(true);
  });

  // A file on a full disk; without this a flush would wait for ever and the program end as if all were well.
  test.skipIf(!existsSync("/dev/full"))(
    "flushes also what was not taken, and says so",
    async () => {
      const descriptor = openSync("/dev/full", "w");
      const failures: unknown[] = [];
      const sink = new Sink(
        descriptorStream(descriptor, (error) => failures.push(error)),
        {},
      );
      sink.line("a");
      await sink.flush();
      closeSync(descriptor);
      expect(failures.map((error) => (error as NodeJS.ErrnoException).code)).toEqual(["ENOSPC"]);
    },
  );
});
