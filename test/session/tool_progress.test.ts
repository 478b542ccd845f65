import { expect, test } from "bun:test";
import { ToolBoard } from "../../src/session/tool_progress.ts";
import { FakeClock } from "../support/fake_clock.ts";

/** Goal: progress is a bounded look, shown at most ten times a second; phases are shown at once. */
function bench() {
  const clock = new FakeClock();
  const shown: string[] = [];
  const board = new ToolBoard(clock, (kind, tool) =>
    shown.push(`${kind} ${tool.tool_call_id} ${tool.phase} ${tool.preview}`),
  );
  return { clock, shown, board };
}

const CALL = { id: "c", name: "run", phase: "running", preview: "" } as const;

test("ToolBoard shows a call once as started, then its phases at once", () => {
  const { shown, board } = bench();
  board.enter({ ...CALL, phase: "preparing", preview: "{" });
  board.enter({ ...CALL, preview: "{}" });
  expect(shown).toEqual(["tool_started c preparing {", "tool_progress c running {}"]);
  expect(board.phase("c")).toBe("running");
  expect(board.phase("d")).toBeNull();
});

test("ToolBoard shows looks at most once in 100 ms; the newest wins", async () => {
  const { clock, shown, board } = bench();
  board.enter(CALL);
  for (let count = 0; count < 50; count += 1) board.output("c", `${count}`);
  expect(shown.length).toBe(1);
  await clock.advance(99);
  expect(shown.length).toBe(1);
  await clock.advance(1);
  expect(shown.slice(1)).toEqual(["tool_progress c running 49"]);
  board.output("c", "next");
  board.output("c", "next");
  await clock.advance(100);
  expect(shown.slice(2)).toEqual(["tool_progress c running next"]);
});

test("ToolBoard keeps the end of an output and the beginning of arguments, well-formed", async () => {
  const { clock, board } = bench();
  board.enter(CALL);
  board.output("c", `${"x".repeat(2000)}end`);
  expect(board.current()?.tools[0]?.preview).toEndWith("xend");
  board.arguments("c", `start${"😀".repeat(2000)}`);
  await clock.advance(1000);
  const preview = board.current()?.tools[0]?.preview ?? "";
  expect(preview).toStartWith("start");
  expect(preview.length).toBeLessThanOrEqual(1000);
  expect(preview.isWellFormed()).toBe(true);
});

test("ToolBoard shows a bounded number of tools, forgets those that leave, and keeps no timer", async () => {
  const { clock, board } = bench();
  for (let count = 0; count < 100; count += 1) board.enter({ ...CALL, id: `c${count}` });
  expect(board.current()?.tools.length).toBe(64);
  board.leave("c0");
  expect(board.current()?.tools[0]?.tool_call_id).toBe("c1");
  board.clear();
  expect(board.current()).toBeNull();
  expect(clock.waiting).toBe(0);
  board.output("c1", "late");
  expect(board.current()).toBeNull();
});
