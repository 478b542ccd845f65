import { expect, setDefaultTimeout, test } from "bun:test";
import { ProviderError } from "../../src/agent/provider.ts";
import type { Tool, ToolContext, ToolResult } from "../../src/agent/tool.ts";
import { FRAME_MS } from "../../src/base/limits.ts";
import { settle } from "../support/fake_clock.ts";
import { lastUserText } from "../support/scripted_model.ts";
import { SessionBench } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: the course of a turn as contract.md, "Pending inputs, turns and cancellation", "The stream" and "Turns, models,
 * tools" have it. Method: the session floor on a real store; the model says what the test says, when the test says it.
 */
test("A message to an idle session starts a turn at once, and its events come in order", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Hello");
  const exchange = await bench.model.next();
  expect(lastUserText(exchange.request)).toBe("Hello");
  exchange.think("Hm").say("Hi", " there").finish();
  const done = await bench.settled(session, input);
  expect(done).toMatchObject({
    state: "committed",
    turn: { state: "completed", members: [input] },
  });
  expect(watch.kinds).toEqual([
    "input_accepted",
    "status",
    "turn_started",
    "turn_members",
    "input_committed",
    "status",
    "thinking_delta",
    "text_delta",
    "thinking",
    "assistant",
    "committed",
    "turn_finished",
    "status",
  ]);
  expect(bench.history(session)).toEqual(["user: Hello", "thinking: Hm", "assistant: Hi there"]);
  expect(bench.resource(session)).toMatchObject({ phase: "idle", running: false });
  expect(bench.errors).toEqual([]);
});

test("Internal signals take no sequence number: numbers have no gap around the provider's start", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Hello");
  (await bench.model.next()).send({ type: "started" }).say("Hi").finish();
  await bench.settled(session, input);
  const numbers = watch.drain().events.flatMap(({ kind, seq }) => (kind === "reset" ? [] : [seq]));
  expect(numbers).toEqual(numbers.map((_, index) => index + 1));
});

test("A simple turn costs three commits: admission, consumption, answer with end", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const before = bench.store.database.writes;
  const input = await bench.send(session, "Hello");
  (await bench.model.next()).say("Hi").finish();
  await bench.settled(session, input);
  expect(bench.store.database.writes - before).toBe(3);
});

test("The acknowledgement does not wait for the consumption", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "Hello");
  expect(bench.input(session, input).state).toBe("pending");
});

test("committed names what it replaces after the canonical rows, and the rows keep the live identities", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Hello");
  (await bench.model.next()).think("a").say("b").say("c").finish();
  await bench.settled(session, input);
  const committed = await watch.until("committed");
  const live = watch.events.flatMap((event) =>
    event.kind === "text_delta" || event.kind === "thinking_delta" ? [event.live_id] : [],
  );
  expect(committed).toMatchObject({ replaces_all_live: true, replaces_live_ids: live, rows: [] });
  const canonical = watch.events.flatMap((event) =>
    event.kind === "assistant" || event.kind === "thinking" ? [event.row] : [],
  );
  expect(canonical.map(({ live_id }) => live_id)).toEqual(live);
  expect(committed.row_ids).toEqual(canonical.map(({ id }) => id));
  expect(committed.history_watermark).toBe(canonical.at(-1)?.id ?? 0);
});

test("Deltas reach readers at most once a frame, merged", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  await bench.send(session, "Hello");
  const exchange = await bench.model.next();
  const block = exchange.open("text");
  exchange.delta(block, "1");
  await watch.until("text_delta");
  exchange.delta(block, "2").delta(block, "3");
  await settle();
  expect(watch.kinds.filter((kind) => kind === "text_delta").length).toBe(1);
  await bench.clock.advance(FRAME_MS);
  expect((await watch.until("text_delta", ({ text }) => text !== "1")).text).toBe("23");
  exchange.send({ type: "block_ended", block }).finish();
  await bench.phase(session, "idle");
});

test("Input that arrives while a turn runs waits for the step boundary and steers it; membership is told before its output", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  const third = await bench.send(session, "Three");
  expect(bench.resource(session).pending_inputs.map(({ id }) => id)).toEqual([second, third]);
  expect(bench.model.exchanges.length).toBe(1);
  exchange.say("Answer one").finish();
  const steered = await bench.model.next();
  expect(bench.input(session, second)).toMatchObject({ state: "committed" });
  expect(lastUserText(steered.request)).toBe("Two\nThree");
  steered.say("Answer two").finish();
  const done = await bench.settled(session, third);
  expect(done.turn).toMatchObject({ state: "completed", members: [first, second, third] });
  const events = watch.drain().events;
  const members = events.findLastIndex(({ kind }) => kind === "turn_members");
  expect(events[members]).toMatchObject({ members: [first, second, third] });
  const output = events.findIndex(
    (event) => event.kind === "text_delta" && event.text === "Answer two",
  );
  expect(members).toBeLessThan(output);
  expect(events.filter(({ kind }) => kind === "turn_started").length).toBe(1);
  expect(bench.history(session)).toEqual([
    "user: One",
    "assistant: Answer one",
    "user: Two",
    "user: Three",
    "assistant: Answer two",
  ]);
});

test("Input accepted while the last answer is committed starts a turn of its own", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const first = await bench.send(session, "One");
  (await bench.model.next()).say("A").finish();
  // The answer's commit is asked for in this very moment; the admission joins the group behind it.
  const second = await bench.send(session, "Two");
  const exchange = await bench.model.next();
  exchange.say("B").finish();
  const [one, two] = [await bench.settled(session, first), await bench.settled(session, second)];
  expect([one.turn?.state, two.turn?.state]).toEqual(["completed", "completed"]);
  expect(bench.history(session)).toEqual([
    "user: One",
    "assistant: A",
    "user: Two",
    "assistant: B",
  ]);
});

test("A continuation leaves a marker without a text row, and the model is asked to go on", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("A").finish();
  await bench.settled(session, input);
  const reply = await bench.submit(session, { kind: "continue" });
  expect(reply.status).toBe(202);
  const exchange = await bench.model.next();
  expect(lastUserText(exchange.request)).toBe("Continue.");
  exchange.say("B").finish();
  await bench.phase(session, "idle");
  expect(bench.history(session)).toEqual([
    "user: One",
    "assistant: A",
    "continuation",
    "assistant: B",
  ]);
});

const NO_USAGE = {
  inputTokens: null,
  outputTokens: null,
  cachedInputTokens: null,
  reasoningTokens: null,
};

function tool(
  name: string,
  run: (input: unknown, context: ToolContext) => Promise<ToolResult>,
): Tool {
  return { name, description: name, parameters: { type: "object" }, run };
}

test("Tools that are called together run side by side; each result is published as it comes, and the model reads all", async () => {
  const gates = new Map<string, PromiseWithResolvers<ToolResult>>();
  const wait = tool("wait", (input) => {
    const gate = Promise.withResolvers<ToolResult>();
    gates.set((input as { key: string }).key, gate);
    return gate.promise;
  });
  await using bench = new SessionBench({ tools: [wait] });
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Go");
  const exchange = await bench.model.next();
  exchange
    .say("Calling")
    .call("c1", "wait", { key: "a" })
    .call("c2", "wait", { key: "b" })
    .finish("tool_calls");
  await until("both calls", () => gates.size === 2);
  expect(bench.history(session)).toEqual([
    "user: Go",
    "assistant: Calling",
    "tool_call",
    "tool_call",
  ]);
  gates.get("b")?.resolve({ output: "second", isError: false });
  expect((await watch.until("tool_finished")).tool_call_id).toBe("c2");
  gates.get("a")?.resolve({ output: "first", isError: true });
  const next = await bench.model.next();
  const results = next.request.messages.at(-1);
  expect(results).toMatchObject({
    role: "tool",
    parts: [
      { id: "c1", output: "first", isError: true },
      { id: "c2", output: "second", isError: false },
    ],
  });
  next.say("Done").finish();
  await bench.settled(session, input);
  const committed = await watch.until("committed");
  expect(committed.rows.map(({ role, tool_call_id }) => [role, tool_call_id])).toEqual([
    ["tool_call", "c1"],
    ["tool_call", "c2"],
  ]);
  const carried = watch.events.flatMap((event) => {
    if ("row" in event) return [event.row.id];
    return event.kind === "committed" ? event.rows.map(({ id }) => id) : [];
  });
  expect(carried.toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7]);
});

test("Progress of tools: preparing, running, finished; a reset in between shows it", async () => {
  const gate = Promise.withResolvers<ToolResult>();
  let progress: ((preview: string) => void) | null = null;
  const slow = tool("slow", (_input, context) => {
    progress = (preview) => context.progress(preview);
    return gate.promise;
  });
  await using bench = new SessionBench({ tools: [slow] });
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Go");
  const exchange = await bench.model.next();
  exchange.send({ type: "tool_preview", id: "c1", name: "slow", text: '{"a' });
  expect((await watch.until("tool_started")).tool).toMatchObject({
    tool_call_id: "c1",
    tool_name: "slow",
    phase: "preparing",
    preview: '{"a',
  });
  exchange.call("c1", "slow", { a: 1 }).finish("tool_calls");
  await watch.until("tool_progress", ({ tool: { phase } }) => phase === "running");
  const show = await until("the tool", () => progress);
  show("line 1");
  show("line 2");
  await bench.clock.advance(1000);
  expect(
    (await watch.until("tool_progress", (e) => e.tool.preview === "line 2")).seq,
  ).toBeGreaterThan(0);
  const late = await bench.watch(session).until("reset");
  expect(late.current_progress?.tools).toMatchObject([{ tool_call_id: "c1", preview: "line 2" }]);
  gate.resolve({ output: "out", isError: false });
  await watch.until("tool_finished");
  expect((await bench.watch(session).until("reset")).current_progress).toBeNull();
  (await bench.model.next()).say("ok").finish();
  await bench.settled(session, input);
});

test("A call to a tool that is not there, and a tool that throws, are results the model can read", async () => {
  const broken = tool("broken", () => Promise.reject(new Error("secret detail")));
  await using bench = new SessionBench({ tools: [broken] });
  const session = await bench.create();
  const input = await bench.send(session, "Go");
  (await bench.model.next()).call("c1", "nothing").call("c2", "broken").finish("tool_calls");
  const next = await bench.model.next();
  const text = JSON.stringify(next.request.messages.at(-1));
  expect(text).toContain("There is no tool 'nothing'");
  expect(text).not.toContain("secret detail");
  next.say("ok").finish();
  await bench.settled(session, input);
});

test("Calls with one id, in one answer or in two, get results of their own", async () => {
  const echo = tool("echo", async (input) => ({ output: JSON.stringify(input), isError: false }));
  await using bench = new SessionBench({ tools: [echo] });
  const session = await bench.create();
  const input = await bench.send(session, "Go");
  (await bench.model.next()).call("x", "echo", 1).call("x", "echo", 2).finish("tool_calls");
  (await bench.model.next()).call("x", "echo", 3).finish("tool_calls");
  const last = await bench.model.next();
  const outputs = last.request.messages.flatMap((message) =>
    message.role === "tool" ? message.parts.map(({ output }) => output) : [],
  );
  expect(outputs).toEqual(["1", "2", "3"]);
  last.say("ok").finish();
  await bench.settled(session, input);
});

test("Input steers between a tool's result and the next model step", async () => {
  const gate = Promise.withResolvers<ToolResult>();
  await using bench = new SessionBench({ tools: [tool("wait", () => gate.promise)] });
  const session = await bench.create();
  const first = await bench.send(session, "Go");
  (await bench.model.next()).call("c1", "wait").finish("tool_calls");
  await until("the call", () => bench.history(session).includes("tool_call"));
  const second = await bench.send(session, "Also this");
  expect(bench.input(session, second).state).toBe("pending");
  gate.resolve({ output: "out", isError: false });
  const next = await bench.model.next();
  expect(next.request.messages.at(-1)).toMatchObject({
    role: "user",
    parts: [{ text: "Also this" }],
  });
  next.say("ok").finish();
  expect((await bench.settled(session, second)).turn?.members).toEqual([first, second]);
});

test("A retry retires what the failed attempt wrote and has a new identity", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Go");
  const failing = await bench.model.next();
  const block = failing.open("text");
  failing.delta(block, "half");
  const lost = await watch.until("text_delta");
  failing.fail(
    new ProviderError("rate_limited", "Slow down", { retryable: true, retryAfterMs: 3000 }),
  );
  const retry = await watch.until("retry");
  expect(retry).toMatchObject({
    message_id: lost.message_id,
    attempt: 1,
    code: "rate_limited",
    replaces_live_ids: [lost.live_id],
    replaces_all_live: true,
  });
  expect(retry.delay_ms).toBeGreaterThanOrEqual(3000);
  expect((await bench.watch(session).until("reset")).active_output.segments).toEqual([]);
  expect(bench.model.unseen).toBe(0);
  await bench.clock.advance(retry.delay_ms);
  (await bench.model.next()).say("whole").finish();
  await bench.settled(session, input);
  const found = await watch.until("assistant");
  expect(found.message_id).not.toBe(lost.message_id);
  expect(found.row.live_id).not.toBe(lost.live_id);
  expect(bench.history(session)).toEqual(["user: Go", "assistant: whole"]);
});

test("A stream that breaks off is tried again; one that cannot be mended fails the turn and leaves history alone", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Go");
  (await bench.model.next()).say("half").breakOff();
  const retry = await watch.until("retry");
  expect(retry.code).toBe("stream_broken");
  await bench.clock.advance(retry.delay_ms);
  const second = await bench.model.next();
  second.say("more").fail(
    new ProviderError("authentication", "The key sk-abcdefghijklmnop is bad", {
      retryable: false,
    }),
  );
  const done = await bench.settled(session, input);
  expect(done.turn).toMatchObject({ state: "failed", error: { code: "authentication" } });
  expect(done.turn?.error?.message).not.toContain("abcdefghijklmnop");
  expect((await watch.until("turn_finished")).replaces_all_live).toBe(true);
  expect(bench.history(session)).toEqual(["user: Go"]);
  expect(bench.resource(session).phase).toBe("idle");
  expect((await bench.watch(session).until("reset")).active_output.segments).toEqual([]);
});

test("Half a surrogate pair never reaches a reader or the store", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "Go");
  const exchange = await bench.model.next();
  const block = exchange.open("text");
  exchange.delta(block, "a\ud83d").delta(block, "\ude00b").delta(block, "\ud83d");
  exchange.send({ type: "block_ended", block }).finish();
  await bench.settled(session, input);
  const text = watch
    .drain()
    .events.map((event) => (event.kind === "text_delta" ? event.text : ""))
    .join("");
  expect(text).toBe("a😀b\ufffd");
  expect(bench.history(session)).toEqual(["user: Go", "assistant: a😀b\ufffd"]);
});

test("Commands wait their turn: what came before is consumed before, what came after after", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  await bench.send(session, "One");
  const exchange = await bench.model.next();
  await bench.send(session, "Two");
  const rename = await bench.submit(session, {
    kind: "command",
    name: "rename",
    arguments: "A title",
  });
  await bench.submit(session, { kind: "command", name: "model", arguments: "test/unknown" });
  await bench.submit(session, { kind: "command", name: "model", arguments: "test/other" });
  const last = await bench.send(session, "Three");
  expect(rename.status).toBe(202);
  exchange.say("1").finish();
  const second = await bench.model.next();
  expect(lastUserText(second.request)).toBe("Two");
  expect(bench.resource(session).title).toBeNull();
  second.say("2").finish();
  const third = await bench.other.next();
  expect(lastUserText(third.request)).toContain("Three");
  third.say("3").finish();
  await bench.settled(session, last);
  expect(bench.history(session)).toEqual([
    "user: One",
    "assistant: 1",
    "user: Two",
    "assistant: 2",
    "user: /rename A title",
    "user: /model test/unknown",
    "note: The model is not known",
    "user: /model test/other",
    "user: Three",
    "assistant: 3",
  ]);
  expect(bench.resource(session)).toMatchObject({ title: "A title", model: "test/other" });
  expect(watch.drain().events.filter(({ kind }) => kind === "session")).toMatchObject([
    { title: "A title", model: "test/scripted" },
    { title: "A title", model: "test/other" },
  ]);
});

test("A command alone is a turn that asks no model", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const reply = await bench.submit(session, { kind: "command", name: "rename", arguments: "T" });
  const { operationId } = JSON.parse(reply.body) as { operationId: string };
  const done = await bench.settled(session, operationId);
  expect(done).toMatchObject({ kind: "command", turn: { state: "completed" } });
  expect(bench.model.exchanges.length).toBe(0);
  expect(watch.kinds).toEqual([
    "input_accepted",
    "status",
    "session",
    "turn_started",
    "turn_members",
    "input_committed",
    "turn_finished",
    "status",
  ]);
  expect(bench.resource(session)).toMatchObject({ phase: "idle", title: "T" });
});

test("compact sums the transcript up; later requests start from the summary", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "Long story");
  const first = await bench.model.next();
  expect(await codeOfCommand(bench, session)).toBe("session_busy");
  first.say("Indeed").finish();
  await bench.settled(session, input);
  const watch = bench.watch(session).drain();
  expect(await bench.sessions.command(session, { name: "compact" })).toEqual({
    name: "compact",
    status: "started",
  });
  const summing = await bench.model.next();
  expect(summing.request.tools).toEqual([]);
  expect(lastUserText(summing.request)).toContain("Sum up the conversation");
  summing.say("A story was told").finish();
  await watch.until("turn_finished");
  expect((await watch.until("committed")).rows).toMatchObject([
    { role: "compaction", text: "A story was told" },
  ]);
  const next = await bench.send(session, "And now?");
  const exchange = await bench.model.next();
  const text = JSON.stringify(exchange.request.messages);
  expect(text).toContain("A story was told");
  expect(text).not.toContain("Long story");
  exchange.say("ok").finish();
  await bench.settled(session, next);
});

async function codeOfCommand(bench: SessionBench, session: string): Promise<string> {
  try {
    await bench.sessions.command(session, { name: "compact" });
    return "none";
  } catch (error) {
    return (error as { code: string }).code;
  }
}

test("compact as a durable input happens at its place", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  await bench.send(session, "Long story");
  const first = await bench.model.next();
  await bench.submit(session, { kind: "command", name: "compact", arguments: "" });
  const last = await bench.send(session, "And now?");
  first.say("Indeed").finish();
  const summing = await bench.model.next();
  summing.say("A story was told").finish();
  const next = await bench.model.next();
  const text = JSON.stringify(next.request.messages);
  expect(text).toContain("A story was told");
  expect(text).not.toContain("Long story");
  next.say("ok").finish();
  await bench.settled(session, last);
  expect(bench.history(session)).toEqual([
    "user: Long story",
    "assistant: Indeed",
    "user: /compact",
    "compaction: A story was told",
    "user: And now?",
    "assistant: ok",
  ]);
});

test("A turn whose commit fails for the disk's sake goes on when the disk does, and loses nothing", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "Go");
  const exchange = await bench.model.next();
  const commit = bench.store.conversation.commit.bind(bench.store.conversation);
  let failures = 2;
  bench.store.conversation.commit = (request, effect) => {
    if (failures === 0) return commit(request, effect);
    failures -= 1;
    return bench.store.database.write<never>(() => {
      throw new Error("disk I/O error");
    });
  };
  exchange.say("kept").finish();
  await until("the first failure", () => failures === 1);
  expect(bench.resource(session)).toMatchObject({ phase: "running" });
  await until("another try", async () => {
    await bench.clock.advance(1000);
    return failures === 0;
  });
  await until("the end", async () => {
    await bench.clock.advance(1000);
    return bench.input(session, input).turn?.state === "completed";
  });
  expect(bench.history(session)).toEqual(["user: Go", "assistant: kept"]);
});

test("A model that never stops talking leaves the event loop to others", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  let loops = 0;
  let running = true;
  const loop = (): void => {
    loops += 1;
    if (running) setImmediate(loop);
  };
  let during = 0;
  bench.model.stream = async function* stream() {
    const before = loops;
    yield { type: "block_started", block: "0", kind: "text" };
    for (let count = 0; count < 2000; count += 1) yield { type: "delta", block: "0", text: "x" };
    during = loops - before;
    yield { type: "finished", reason: "stop", usage: NO_USAGE };
  };
  setImmediate(loop);
  const input = await bench.send(session, "Go");
  await bench.settled(session, input);
  running = false;
  expect(during).toBeGreaterThan(20);
});

test("A stream that is not read to its end is let go of", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  let isLetGo = false;
  bench.model.stream = async function* stream() {
    try {
      for (;;) yield { type: "delta", block: "0", text: "x" };
    } finally {
      isLetGo = true;
    }
  };
  const input = await bench.send(session, "Go");
  await bench.phase(session, "running");
  await bench.sessions.interrupt(session);
  expect((await bench.settled(session, input)).turn?.state).toBe("interrupted");
  await until("the end of the stream", () => isLetGo);
});

test("What a step committed is no longer provisional while its tools run", async () => {
  const gate = Promise.withResolvers<ToolResult>();
  await using bench = new SessionBench({ tools: [tool("wait", () => gate.promise)] });
  const session = await bench.create();
  const input = await bench.send(session, "Go");
  (await bench.model.next()).say("Calling").call("c1", "wait").finish("tool_calls");
  await until("the call", () => bench.history(session).includes("tool_call"));
  const reset = await bench.watch(session).until("reset");
  expect(reset.active_output).toEqual({ segments: [], incomplete: false });
  expect(reset.history.map(({ role }) => role)).toEqual(["user", "assistant", "tool_call"]);
  gate.resolve({ output: "out", isError: false });
  (await bench.model.next()).say("ok").finish();
  await bench.settled(session, input);
});
