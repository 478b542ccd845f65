import { describe, expect, test } from "bun:test";
import type { Shown } from "../../src/cli/stream_follower.ts";
import { createPrinter } from "../../src/cli/turn_printer.ts";
import type { PromptResult } from "../../src/cli/turn_printer.ts";
import { Paper } from "./paper.ts";

/** Goal: the answer and nothing else on stdout, progress on stderr, one object a line with `--json`. */
const RESULT: PromptResult = {
  outcome: "completed",
  session_id: "s",
  operation_id: "o",
  turn_id: "t",
};

const TURN: readonly Shown[] = [
  { type: "turn_started", turn_id: "t" },
  { type: "thinking", message_id: "m1", text: "Let me look" },
  { type: "block_end" },
  { type: "text", message_id: "m1", text: "I will " },
  { type: "text", message_id: "m1", text: "look." },
  { type: "block_end" },
  { type: "tool_started", tool_call_id: "c", tool_name: "bash", preview: "ls\nmore" },
  { type: "tool_finished", tool_call_id: "c", tool_name: "bash", status: "error", text: "no" },
  { type: "text", message_id: "m2", text: "Done" },
];

function print(shown: readonly Shown[], options: { json?: boolean; quiet?: boolean } = {}) {
  const stdout = new Paper();
  const stderr = new Paper();
  const printer = createPrinter(
    { stdout: stdout.sink, stderr: stderr.sink },
    { json: options.json ?? false, quiet: options.quiet ?? false },
  );
  printer.session("s", true);
  printer.accepted("s", "o");
  for (const each of shown) printer.show(each);
  printer.result(RESULT);
  return { stdout: stdout.text, stderr: stderr.text };
}

describe("text", () => {
  test("puts the answer on stdout and all else on stderr", () => {
    const { stdout, stderr } = print(TURN);
    expect(stdout).toBe("I will look.\nDone\n");
    expect(stderr).toBe("albedo: session s\nLet me look\n• bash ls more\n  bash: error no\n");
  });

  test("says nothing on stderr when it is quiet", () => {
    expect(print(TURN, { quiet: true })).toEqual({ stdout: "I will look.\nDone\n", stderr: "" });
  });

  test.each([
    ["workspace_missing", "goes on when the folder is back"],
    ["model_unavailable", "goes on when the settings offer it"],
    ["storage_failure", "tried again every 15 s"],
    ["something_new", "something_new"],
  ])("says of %s what would help, and the way out", (reason, words) => {
    const { stderr } = print([{ type: "blocked", reason }]);
    expect(stderr).toContain(words);
    expect(stderr).toContain(`(${reason})`);
    expect(stderr).toContain("Ctrl-C takes the message back");
  });

  test("says that a failed attempt is void", () => {
    const { stdout, stderr } = print([
      { type: "text", message_id: "m1", text: "Hel" },
      { type: "block_end" },
      {
        type: "retry",
        message_id: "m1",
        attempt: 1,
        delay_ms: 1500,
        code: "overloaded",
        message: "busy",
      },
      { type: "text", message_id: "m2", text: "Hello" },
    ]);
    expect(stdout).toBe("Hel\nHello\n");
    expect(stderr).toContain("attempt 1 failed (overloaded: busy); what it wrote is void");
    expect(stderr).toContain("1.5 s");
  });
});

describe("JSON", () => {
  test("prints one object a line, the answer whole in the last one", () => {
    const { stdout, stderr } = print(TURN, { json: true });
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as object);
    expect(lines.map((line) => (line as { type: string }).type)).toEqual([
      "session",
      "accepted",
      "turn_started",
      "thinking",
      "block_end",
      "text",
      "text",
      "block_end",
      "tool_started",
      "tool_finished",
      "text",
      "result",
    ]);
    expect(lines.at(-1)).toEqual({ type: "result", ...RESULT, text: "I will look.\nDone" });
    expect(stderr).toBe("");
  });

  test("leaves a void attempt out of the answer", () => {
    const { stdout } = print(
      [
        { type: "text", message_id: "m1", text: "void" },
        { type: "retry", message_id: "m1", attempt: 1, delay_ms: 1, code: "c", message: "m" },
        { type: "text", message_id: "m2", text: "good" },
      ],
      { json: true },
    );
    expect(JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")).toMatchObject({ text: "good" });
  });
});
