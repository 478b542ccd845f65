import { expect, test } from "bun:test";
import type { ModelPart } from "../../src/agent/provider.ts";
import { Answer } from "../../src/session/answer.ts";

/** Goal: parts of a stream become rows; the sink sees every delta under the identity that its row will have. */
function bench(taken: readonly string[] = []) {
  const seen: string[] = [];
  const answer = new Answer(
    "m",
    {
      delta: ({ kind, liveId, text }) => seen.push(`${kind} ${liveId} ${text}`),
      endBlock: (liveId) => seen.push(`end ${liveId}`),
      preview: ({ id, text }) => seen.push(`preview ${id} ${text}`),
    },
    new Set(taken),
  );
  const take = (...parts: ModelPart[]) => {
    for (const part of parts) answer.take(part);
  };
  return { answer, seen, take };
}

const USAGE = {
  inputTokens: null,
  outputTokens: null,
  cachedInputTokens: null,
  reasoningTokens: null,
};

test("Answer keeps blocks and calls in the order of the stream, each block under its own identity", () => {
  const { answer, seen, take } = bench();
  take(
    { type: "started" },
    { type: "block_started", block: "0", kind: "thinking" },
    { type: "delta", block: "0", text: "h" },
    { type: "block_started", block: "1", kind: "text" },
    { type: "delta", block: "1", text: "a" },
    { type: "delta", block: "0", text: "m" },
    { type: "block_ended", block: "0", metadata: { signature: "s" } },
    { type: "tool_call", id: "c", name: "run", input: { x: 1 }, metadata: { k: 1 } },
    { type: "delta", block: "1", text: "b" },
    { type: "block_ended", block: "1" },
    { type: "finished", reason: "tool_calls", usage: USAGE },
  );
  expect(seen).toEqual([
    "thinking m:0 h",
    "text m:1 a",
    "thinking m:0 m",
    "end m:0",
    "text m:1 b",
    "end m:1",
  ]);
  expect(answer.rows()).toEqual([
    { role: "thinking", text: "hm", messageId: "m", liveId: "m:0", metadata: { signature: "s" } },
    { role: "assistant", text: "ab", messageId: "m", liveId: "m:1" },
    {
      role: "tool_call",
      toolCallId: "c",
      toolName: "run",
      input: { x: 1 },
      messageId: "m",
      metadata: { k: 1 },
    },
  ]);
  expect(answer.liveIds).toEqual(["m:0", "m:1"]);
  expect(answer.text).toBe("ab");
  expect(answer.finished?.reason).toBe("tool_calls");
});

test("Answer drops blocks that say nothing, but keeps one whose metadata the provider wants back", () => {
  const { answer, take } = bench();
  take(
    { type: "block_started", block: "0", kind: "text" },
    { type: "block_ended", block: "0" },
    { type: "block_started", block: "1", kind: "thinking" },
    { type: "block_ended", block: "1", metadata: { redacted: "x" } },
  );
  expect(answer.rows()).toMatchObject([{ role: "thinking", text: "" }]);
});

test("Answer gives calls ids that no other call of the turn has, and previews the same ones", () => {
  const { answer, seen, take } = bench(["c"]);
  take(
    { type: "tool_preview", id: "c", name: "run", text: "{" },
    { type: "tool_call", id: "c", name: "run", input: 1 },
    { type: "tool_call", id: "c", name: "run", input: 2 },
    { type: "tool_call", id: "", name: "run", input: 3 },
  );
  expect(answer.calls.map(({ id }) => id)).toEqual(["c_2", "c_3", "call"]);
  expect(seen).toEqual(["preview c_2 {"]);
});

test("Answer takes a delta of a block that was never begun as text", () => {
  const { answer, take } = bench();
  take({ type: "delta", block: "x", text: "hi" });
  expect(answer.rows()).toMatchObject([{ role: "assistant", text: "hi" }]);
});

test("Answer refuses to grow without bound", () => {
  const { take } = bench();
  const text = "x".repeat(16 * 1024 * 1024);
  for (let count = 0; count < 8; count += 1) take({ type: "delta", block: "x", text });
  expect(() => take({ type: "delta", block: "x", text: "y" })).toThrow("longer than can be kept");
});
