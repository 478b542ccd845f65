import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { buildMessages, systemPrompt } from "../../src/agent/prompt.ts";
import type { ModelMessage } from "../../src/agent/provider.ts";
import type { StoredRow } from "../../src/store/rows.ts";
import { storedRow } from "../support/stored_row.ts";

// Goal: whatever a transcript holds, a provider takes it: I1 to I4 of prompt.ts. Method: examples of each rule, and
// a property over random transcripts, those that no session would write included.

const OWN = { source: "anthropic", options: { anthropic: { signature: "s" } } };

const user = (text: string | null, images: string[] = []): StoredRow =>
  storedRow({
    role: "user",
    text,
    display: {
      operationId: "o",
      source: "user",
      displayText: "shown, never sent",
      clientId: null,
      images: images.map((image_id) => ({
        image_id,
        mime_type: "image/png",
        width: 1,
        height: 1,
        bytes: 3,
      })),
    },
  });
const assistant = (text: string, messageId = "m1"): StoredRow =>
  storedRow({ role: "assistant", text, messageId });
const thinking = (text: string, metadata: unknown = OWN, messageId = "m1"): StoredRow =>
  storedRow({ role: "thinking", text, messageId, metadata });
const call = (toolCallId: string, messageId = "m1", toolInput: unknown = { a: 1 }): StoredRow =>
  storedRow({ role: "tool_call", toolCallId, toolName: "bash", toolInput, messageId });
const result = (
  toolCallId: string,
  text: string,
  toolStatus: StoredRow["toolStatus"] = "ok",
): StoredRow => storedRow({ role: "tool_result", toolCallId, toolName: "bash", text, toolStatus });

function build(
  rows: readonly StoredRow[],
  given: { bytesMax?: number; images?: Record<string, number> } = {},
): readonly ModelMessage[] {
  return buildMessages({
    rows,
    provider: "anthropic",
    readImage: (imageId) => {
      const size = given.images?.[imageId];
      return size === undefined ? null : { mimeType: "image/png", bytes: new Uint8Array(size) };
    },
    ...(given.bytesMax === undefined ? {} : { bytesMax: given.bytesMax }),
  });
}

/** A short form to compare with. */
function shape(messages: readonly ModelMessage[]): string[] {
  return messages.map((message) => {
    const parts = message.parts.map((part) => {
      switch (part.type) {
        case "text":
          return part.text;
        case "image":
          return `image:${part.data.length}`;
        case "thinking":
          return `thinking:${part.text}`;
        case "tool_call":
          return `call:${part.id}`;
        case "tool_result":
          return `result:${part.id}:${part.isError ? "!" : ""}${part.output}`;
      }
    });
    return `${message.role}: ${parts.join(" | ")}`;
  });
}

describe("buildMessages()", () => {
  test("groups a turn's rows into the messages they came from", () => {
    const rows = [
      user("Look", ["i1"]),
      user("and go"),
      thinking("hm"),
      assistant("I look."),
      call("c1"),
      call("c2"),
      result("c2", "two", "error"),
      result("c1", "one"),
      assistant("Done.", "m2"),
      user("Thanks"),
    ];
    expect(shape(build(rows, { images: { i1: 3 } }))).toEqual([
      "user: image:3 | Look | and go",
      "assistant: thinking:hm | I look. | call:c1 | call:c2",
      "tool: result:c1:one | result:c2:!two",
      "assistant: Done.",
      "user: Thanks",
    ]);
  });

  test("what a user sees stays out; what is for the model goes in", () => {
    const text = JSON.stringify(build([user("for the model")]));
    expect(text).toContain("for the model");
    expect(text).not.toContain("shown, never sent");
  });

  test("a command is nothing to the model, an empty message is said to be empty", () => {
    expect(shape(build([user(null), user("Hi")]))).toEqual(["user: Hi"]);
    expect(shape(build([user("  ")]))).toEqual(["user: (This message is empty.)"]);
    expect(shape(build([user("", ["i"])], { images: { i: 2 } }))).toEqual(["user: image:2"]);
  });

  test("a continuation nudges only where nobody said anything", () => {
    const marker = storedRow({ role: "continuation", operationId: "o" });
    expect(shape(build([user("a"), assistant("b"), marker]))).toEqual([
      "user: a",
      "assistant: b",
      "user: Continue.",
    ]);
    expect(shape(build([user("a"), assistant("b"), marker, user("c")]))).toEqual([
      "user: a",
      "assistant: b",
      "user: c",
    ]);
    expect(shape(build([user("a"), marker]))).toEqual(["user: a"]);
    expect(shape(build([user("a"), call("c"), result("c", "x"), marker]))).toEqual([
      "user: a",
      "assistant: call:c",
      "tool: result:c:x",
      "user: Continue.",
    ]);
    // In the middle of the history, too.
    expect(
      shape(build([user("a"), assistant("b"), marker, assistant("c", "m2"), user("d")])),
    ).toEqual(["user: a", "assistant: b", "user: Continue.", "assistant: c", "user: d"]);
    expect(shape(build([]))).toEqual(["user: Continue."]);
  });

  test("a call that was cut off says so, with or without its row", () => {
    const rows = [
      user("a"),
      call("c1"),
      call("c2"),
      result("c1", "half", "interrupted"),
      user("b"),
    ];
    expect(shape(build(rows))).toEqual([
      "user: a",
      "assistant: call:c1 | call:c2",
      "tool: result:c1:![interrupted] The call was stopped before it ended. half | " +
        "result:c2:![interrupted] The call was stopped before it ended.",
      "user: b",
    ]);
  });

  test("results stand behind their calls wherever they were stored; those without a call are left out", () => {
    const rows = [
      user("a"),
      call("c1"),
      storedRow({ role: "note", text: "careful" }),
      user("b"),
      result("c1", "late"),
      result("c1", "twice"),
      result("nobody", "x"),
    ];
    expect(shape(build(rows))).toEqual([
      "user: a",
      "assistant: call:c1",
      "tool: result:c1:late",
      "user: <note>\ncareful\n</note> | b",
    ]);
  });

  test("ids that a provider gave twice or that another refuses are made usable, in pairs", () => {
    const rows = [
      user("a"),
      call("functions.bash:0"),
      result("functions.bash:0", "one"),
      call("functions.bash:0", "m2"),
      result("functions.bash:0", "two"),
      call("", "m3"),
      user("b"),
    ];
    expect(shape(build(rows))).toEqual([
      "user: a",
      "assistant: call:functions_bash_0",
      "tool: result:functions_bash_0:one",
      "assistant: call:functions_bash_0-2",
      "tool: result:functions_bash_0-2:two",
      "assistant: call:call",
      "tool: result:call:![interrupted] The call was stopped before it ended.",
      "user: b",
    ]);
  });

  test("thinking goes back only to the provider that wrote it, without text too", () => {
    const rows = [
      user("a"),
      thinking("own"),
      thinking("", { source: "anthropic", options: { anthropic: { redactedData: "x" } } }),
      thinking("other", { source: "openai" }),
      thinking("nobody's", null),
      assistant("b"),
      user("c"),
    ];
    expect(shape(build(rows))[1]).toBe("assistant: thinking:own | thinking: | b");
  });

  test("a summary takes the place of what was before it", () => {
    const rows = [
      user("old"),
      call("c"),
      storedRow({ role: "compaction", text: "It was about cats." }),
      user("new"),
    ];
    const [only, ...others] = shape(build(rows));
    expect(others).toEqual([]);
    expect(only).toContain("It was about cats.");
    expect(only).toEndWith("| new");
    expect(only).not.toContain("old");
  });

  test("whatever the rows, roles alternate, calls and results pair up, and all text is well-formed", () => {
    const text = fc.string({ unit: fc.constantFrom("a", " ", "\n", "\ud83c", "\udf0d", "é") });
    const id = fc.constantFrom("c1", "c2", "c:3", "");
    const messageId = fc.constantFrom("m1", "m2");
    const row = fc.oneof(
      text.map((value) => user(value)),
      fc.constant(user(null)),
      fc.constant(user("x", ["i1", "i2"])),
      fc.tuple(text, messageId).map(([value, message]) => assistant(value, message)),
      fc
        .tuple(text, messageId, fc.constantFrom(OWN, { source: "x" }, undefined))
        .map(([value, message, metadata]) => thinking(value, metadata, message)),
      fc
        .tuple(id, messageId, fc.oneof(fc.jsonValue(), text))
        .map(([call_id, message, input]) => call(call_id, message, input)),
      fc
        .tuple(id, text, fc.constantFrom("ok" as const, "error" as const, "interrupted" as const))
        .map(([call_id, value, status]) => result(call_id, value, status)),
      text.map((value) => storedRow({ role: "note", text: value })),
      text.map((value) => storedRow({ role: "compaction", text: value })),
      fc.constant(storedRow({ role: "continuation" })),
    );
    fc.assert(
      fc.property(fc.array(row, { maxLength: 30 }), (rows) => {
        holdsInvariants(build(rows, { images: { i1: 10 } }));
      }),
      { numRuns: 500 },
    );
  });
});

function holdsInvariants(messages: readonly ModelMessage[]): void {
  expect(messages[0]?.role).toBe("user");
  expect(messages.at(-1)?.role).not.toBe("assistant");
  const ids = new Set<string>();
  for (const [index, message] of messages.entries()) {
    const before = messages[index - 1];
    expect(message.parts.length).toBeGreaterThan(0);
    expect(message.role).not.toBe(before?.role as never);
    expect(
      JSON.stringify(message, (_, value) => (value instanceof Uint8Array ? 0 : value)),
    ).not.toMatch(/\\ud[89a-f]/i);
    const calls =
      message.role === "assistant" ? message.parts.filter((p) => p.type === "tool_call") : [];
    for (const { id } of calls) {
      expect(id).toMatch(/^[A-Za-z0-9_-]+$/);
      expect(ids.has(id)).toBe(false);
      ids.add(id);
    }
    if (calls.length > 0) {
      const next = messages[index + 1];
      expect(next?.role).toBe("tool");
      expect(next?.parts.map((part) => (part as { id: string }).id)).toEqual(
        calls.map(({ id }) => id),
      );
    }
    if (message.role === "tool") expect(before?.role).toBe("assistant");
    if (message.role === "assistant") {
      const texts = message.parts.filter((part) => part.type === "text");
      expect(texts.every((part) => part.text.trim() !== "")).toBe(true);
    }
  }
}

describe("buildMessages(), the byte budget", () => {
  test("the oldest images give way to a note", () => {
    const rows = [user("a", ["i1"]), assistant("x"), user("b", ["i2", "i3"])];
    const images = { i1: 3000, i2: 3000, i3: 3000 };
    const fits = 3 * 4000 + 10_000;
    expect(shape(build(rows, { images, bytesMax: fits }))).toEqual([
      "user: image:3000 | a",
      "assistant: x",
      "user: image:3000 | image:3000 | b",
    ]);
    const left = shape(build(rows, { images, bytesMax: 9_000 }));
    expect(left[0]).toContain("is left out");
    expect(left[2]).toBe("user: image:3000 | image:3000 | b");
    const least = shape(build(rows, { images, bytesMax: 5_000 }));
    expect(least[2]).toMatch(/^user: \[An image.*left out.*\] \| image:3000 \| b$/);
  });

  test("an older image never stays where a newer one had to go", () => {
    const rows = [user("a", ["small"]), assistant("x"), user("b", ["large"])];
    const built = shape(build(rows, { images: { small: 30, large: 30_000 }, bytesMax: 5_000 }));
    expect(built.join()).not.toContain("image:30");
  });

  test("an image that is no longer stored is said to be gone", () => {
    expect(shape(build([user("a", ["gone"])]))[0]).toContain("no longer stored");
  });

  test("then outputs are shortened from the oldest on, then arguments, then texts, never the last message", () => {
    const long = "x".repeat(20_000);
    const rows = [
      user(`first ${long}`),
      call("c1", "m1", { text: long }),
      result("c1", `begin${long}end`),
      call("c2", "m2"),
      result("c2", long),
      assistant("b", "m3"),
      user(`last ${long}`),
    ];
    const sizes = (bytesMax: number): number[] =>
      build(rows, { bytesMax }).map((message) => JSON.stringify(message.parts).length);
    const whole = sizes(1_000_000);
    expect(whole.every((size, index) => size > 20_000 || [3, 5].includes(index))).toBe(true);
    const one = build(rows, { bytesMax: 90_000 });
    expect(JSON.stringify(one[2])).toMatch(/begin.*characters left out.*end/);
    expect(JSON.stringify(one[4]).length).toBeGreaterThan(20_000);
    const all = sizes(30_000);
    expect(all[0]).toBeLessThan(6_000);
    expect(all[1]).toBeLessThan(3_000);
    expect(all[2]).toBeLessThan(3_000);
    expect(all[4]).toBeLessThan(3_000);
    expect(all[6]).toBe(whole[6]!);
    // Not even where nothing else is left to give way.
    expect(sizes(1_000)[6]).toBe(whole[6]!);
  });

  test("a large transcript fits, whatever is in it", () => {
    const row = fc.oneof(
      fc.integer({ min: 0, max: 30_000 }).map((size) => user("é".repeat(size), ["i1"])),
      fc.integer({ min: 1, max: 30_000 }).map((size) => assistant("x".repeat(size))),
      fc.integer({ min: 0, max: 30_000 }).map((size) => call("c", "m", { a: "y".repeat(size) })),
      fc.integer({ min: 0, max: 30_000 }).map((size) => result("c", "z".repeat(size))),
    );
    fc.assert(
      fc.property(fc.array(row, { maxLength: 25 }), (rows) => {
        const bytesMax = 200_000;
        const messages = build(rows, { bytesMax, images: { i1: 40_000 } });
        holdsInvariants(messages);
        let bytes = 0;
        for (const message of messages) {
          for (const part of message.parts) {
            bytes +=
              part.type === "image"
                ? Math.ceil(part.data.length / 3) * 4
                : Buffer.byteLength(JSON.stringify(part));
          }
        }
        expect(bytes).toBeLessThanOrEqual(bytesMax);
      }),
      { numRuns: 60 },
    );
  });
});

describe("systemPrompt()", () => {
  const source = {
    workspace: "/home/me/project",
    platform: "linux",
    now: Date.UTC(2026, 0, 2, 23, 59),
    instructions: null,
    toolNames: ["bash", "read"],
  };

  test("says workspace, platform, day and tools, with the session's instructions in front", () => {
    const text = systemPrompt({ ...source, instructions: "  Speak like a pirate.\n" });
    expect(text).toStartWith("Speak like a pirate.\n\n");
    for (const part of ["/home/me/project", "linux", "2026-01-02", "bash, read"]) {
      expect(text).toContain(part);
    }
  });

  test("stays the same for the whole day, and names no tools where there are none", () => {
    expect(systemPrompt({ ...source, now: source.now - 3_600_000 })).toBe(systemPrompt(source));
    expect(systemPrompt({ ...source, toolNames: [] })).not.toContain("tools");
  });
});
