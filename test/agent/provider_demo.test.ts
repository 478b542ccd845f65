import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { ModelMessage, ModelRequest } from "../../src/agent/provider.ts";
import { DemoModel } from "../../src/agent/provider_demo.ts";
import { systemClock } from "../../src/base/clock.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { blockTexts, collect, modelRequest, ofType } from "./model_request.ts";

// Goal: the demo model "needs no network, streams thinking and text, and really calls the tools", and "says what it
// is in its first answer" (contract.md, Turns, models, tools). Method: whole requests, as a turn makes them.

const TOOLS = ["bash", "read", "write", "edit", "glob", "grep"].map((name) => ({
  name,
  description: "",
  parameters: {},
}));

function user(text: string): ModelMessage {
  return { role: "user", parts: [{ type: "text", text }] };
}

function ask(text: string, given: Partial<ModelRequest> = {}): ModelRequest {
  return modelRequest({ messages: [user(text)], tools: TOOLS, thinking: "medium", ...given });
}

function said(parts: Awaited<ReturnType<typeof collect>>["parts"]): string {
  return blockTexts(parts)
    .filter((block) => block.kind === "text")
    .map((block) => block.text)
    .join("\n");
}

/** Runs a whole turn the way a session does, with results made up from the calls. */
async function runTurn(model: DemoModel, text: string): Promise<{ calls: object[]; text: string }> {
  const messages: ModelMessage[] = [user(text)];
  const calls: object[] = [];
  for (let step = 0; step < 50; step += 1) {
    const { parts } = await collect(model, ask("", { messages }));
    const called = ofType(parts, "tool_call");
    if (called.length === 0) return { calls, text: said(parts) };
    calls.push(called.map(({ name, input }) => ({ name, input })));
    messages.push({
      role: "assistant",
      parts: called.map(({ id, name, input }) => ({ type: "tool_call", id, name, input })),
    });
    messages.push({
      role: "tool",
      parts: called.map(({ id, name }) => ({
        type: "tool_result",
        id,
        name,
        output: `output of ${name}`,
        isError: name === "edit",
      })),
    });
  }
  throw new Error("The turn does not end");
}

describe("DemoModel", () => {
  const model = new DemoModel({ clock: systemClock });

  test("thinks, says what it is and echoes, in small deltas", async () => {
    const { parts, error } = await collect(model, ask("Good morning"));
    expect(error).toBeNull();
    const blocks = blockTexts(parts);
    expect(blocks.map((block) => block.kind)).toEqual(["thinking", "text"]);
    expect(blocks[1]?.text).toContain("demo model that is built into albedo");
    expect(blocks[1]?.text).toContain("Good morning");
    expect(ofType(parts, "delta").length).toBeGreaterThan(10);
    expect(parts[0]).toEqual({ type: "started" });
    expect(parts.at(-1)).toMatchObject({ type: "finished", reason: "stop" });
  });

  test("is the same for the same request", async () => {
    const request = ask("!bash ls\n!say x");
    expect((await collect(model, request)).parts).toEqual((await collect(model, request)).parts);
  });

  test("calls each tool that a directive names, one an answer, and sums up", async () => {
    const turn = await runTurn(
      model,
      "!bash echo hi && ls\nplease\n!read a b.txt\n!write c.txt one\\ntwo\n!edit c.txt one => two => three\n!glob **/*.ts\n!grep a+",
    );
    expect(turn.calls).toEqual([
      [{ name: "bash", input: { command: "echo hi && ls" } }],
      [{ name: "read", input: { path: "a b.txt" } }],
      [{ name: "write", input: { path: "c.txt", content: "one\ntwo" } }],
      [
        {
          name: "edit",
          input: { path: "c.txt", old_string: "one", new_string: "two => three" },
        },
      ],
      [{ name: "glob", input: { pattern: "**/*.ts" } }],
      [{ name: "grep", input: { pattern: "a+" } }],
    ]);
    expect(turn.text).toContain("6 tool(s), 1 failed");
    expect(turn.text).toContain("output of grep");
    expect(turn.text).toContain("built into albedo");
  });

  test("!parallel makes all calls in one answer", async () => {
    const turn = await runTurn(model, "!parallel\n!bash a\n!read b\n!glob c");
    expect(turn.calls).toHaveLength(1);
    expect(turn.calls[0]).toHaveLength(3);
  });

  test("calls only what is offered, and ids differ from answer to answer", async () => {
    const none = await collect(model, ask("!bash ls", { tools: [] }));
    expect(ofType(none.parts, "tool_call")).toEqual([]);
    const ids = new Set<string>();
    for (const text of ["!bash ls", "!bash ls ", "x\n!bash ls"]) {
      const { parts } = await collect(model, ask(text));
      for (const call of ofType(parts, "tool_call")) ids.add(call.id);
    }
    expect(ids.size).toBe(3);
  });

  test("speaks what stands between two calls when the first has ended", async () => {
    const messages: ModelMessage[] = [
      user("!think before\n!bash a\n!say between\n!bash b\n!say after"),
      {
        role: "assistant",
        parts: [{ type: "tool_call", id: "1", name: "bash", input: { command: "a" } }],
      },
      {
        role: "tool",
        parts: [{ type: "tool_result", id: "1", name: "bash", output: "", isError: false }],
      },
    ];
    const { parts } = await collect(model, ask("", { messages }));
    expect(blockTexts(parts)).toEqual([{ kind: "text", text: "between" }]);
    expect(ofType(parts, "tool_call")[0]?.input).toEqual({ command: "b" });
  });

  test("a message that steers adds to what is to be done", async () => {
    const messages: ModelMessage[] = [
      user("!bash a\n!bash b"),
      {
        role: "assistant",
        parts: [{ type: "tool_call", id: "1", name: "bash", input: { command: "a" } }],
      },
      {
        role: "tool",
        parts: [{ type: "tool_result", id: "1", name: "bash", output: "", isError: false }],
      },
      user("!bash c"),
    ];
    const { parts } = await collect(model, ask("", { messages }));
    expect(ofType(parts, "tool_call")[0]?.input).toEqual({ command: "b" });
  });

  test("directives of a turn that was interrupted or is over are not taken up again", async () => {
    for (const output of ["[interrupted] The call was stopped", null]) {
      const messages: ModelMessage[] = [
        user("!bash a\n!bash b"),
        ...(output === null
          ? []
          : ([
              {
                role: "assistant",
                parts: [{ type: "tool_call", id: "1", name: "bash", input: { command: "a" } }],
              },
              {
                role: "tool",
                parts: [{ type: "tool_result", id: "1", name: "bash", output, isError: true }],
              },
            ] as const)),
        ...(output === null
          ? ([{ role: "assistant", parts: [{ type: "text", text: "Done" }] }] as const)
          : []),
        user("Hello again"),
      ];
      const { parts } = await collect(model, ask("", { messages }));
      expect(ofType(parts, "tool_call")).toEqual([]);
      expect(said(parts)).toContain("Hello again");
    }
  });

  test("!repeat streams that often, and other work runs meanwhile", async () => {
    let turns = 0;
    let isOver = false;
    const other = (async () => {
      while (!isOver) {
        turns += 1;
        await new Promise<void>((resolve) => setImmediate(resolve));
      }
    })();
    const { parts } = await collect(model, ask("!repeat 10000 line"));
    isOver = true;
    await other;
    expect(blockTexts(parts)[0]?.text).toBe("line\n".repeat(10_000));
    expect(turns).toBeGreaterThan(50);
  });

  test("!fail fails as a provider does, as often as it says, after what came before it", async () => {
    const once = ask("!say half\n!fail rate_limited 2\n!say whole");
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const { parts, error } = await collect(model, once);
      expect(said(parts)).toBe("half");
      expect(error).toMatchObject({ name: "ProviderError", code: "rate_limited", retryable: true });
    }
    const third = await collect(model, once);
    expect(third.error).toBeNull();
    expect(said(third.parts)).toContain("half\nwhole");
    for (const [code, retryable] of [
      ["overloaded", true],
      ["authentication", false],
    ] as const) {
      const { error } = await collect(model, ask(`!fail ${code}`));
      expect(error).toMatchObject({ code, retryable });
    }
  });

  test("a failure of an earlier message does not fail the next one", async () => {
    const messages: ModelMessage[] = [
      {
        role: "user",
        parts: [
          { type: "text", text: "!fail bad_request" },
          { type: "text", text: "Hello" },
        ],
      },
    ];
    expect((await collect(model, ask("", { messages }))).error).toBeNull();
  });

  test("!slow waits on the clock between deltas, and an abort ends it with its reason", async () => {
    const clock = new FakeClock();
    const slow = new DemoModel({ clock });
    const abort = new AbortController();
    const seen: string[] = [];
    let thrown: unknown = null;
    const running = (async () => {
      try {
        const request = ask("!slow 100\n!repeat 100 x", { signal: abort.signal });
        for await (const part of slow.stream(request))
          if (part.type === "delta") seen.push(part.text);
      } catch (error) {
        thrown = error;
      }
    })();
    await settle();
    expect(seen).toHaveLength(0);
    await clock.advance(350);
    expect(seen).toHaveLength(3);
    abort.abort("stop");
    await running;
    expect(thrown).toBe("stop");
    expect(clock.waiting).toBe(0);
  });

  test("an abort ends an answer that has no delay too", async () => {
    const abort = new AbortController();
    let count = 0;
    let thrown: unknown = null;
    try {
      for await (const part of model.stream(ask("!repeat 1000000 x", { signal: abort.signal }))) {
        if (part.type === "delta") count += 1;
        if (count === 10) abort.abort("stop");
      }
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBe("stop");
    expect(count).toBe(10);
  });

  test("whatever is said to it, it answers with well-formed text that adds up", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            fc.string({ unit: "binary" }),
            fc.constantFrom(
              "!bash",
              "!write a",
              "!edit a b",
              "!repeat x",
              "!slow",
              "!say",
              "!think 🌍",
            ),
          ),
        ),
        async (lines) => {
          const { parts, error } = await collect(model, ask(lines.join("\n").toWellFormed()));
          expect(error).toBeNull();
          expect(parts.at(-1)?.type).toBe("finished");
          for (const delta of ofType(parts, "delta")) expect(delta.text.isWellFormed()).toBe(true);
          const started = ofType(parts, "block_started").length;
          expect(ofType(parts, "block_ended")).toHaveLength(started);
        },
      ),
      { numRuns: 50 },
    );
  });
});
