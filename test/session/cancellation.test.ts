import { expect, setDefaultTimeout, test } from "bun:test";
import type { Tool, ToolResult } from "../../src/agent/tool.ts";
import { settle } from "../support/fake_clock.ts";
import { codeOf, SessionBench } from "../support/session_bench.ts";
import { until } from "../support/until.ts";
import { PNG_BASE64 } from "../support/png.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: cancellation, interruption and deletion (contract.md, Pending inputs, turns and cancellation; What others'
 * users ran into). Method: the session floor on a real store, a scripted model.
 */
function hanging(signals: AbortSignal[] = []): Tool {
  return {
    name: "hang",
    description: "Never ends",
    parameters: { type: "object" },
    run: (_input, context) => {
      signals.push(context.signal);
      return new Promise<ToolResult>(() => undefined);
    },
  };
}

test("A waiting input is cancelled: receipt and queue change together, and it never reaches the model", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  const before = bench.store.database.writes;
  expect(await bench.sessions.cancel(session, second)).toMatchObject({
    result: "cancelled",
    input: { id: second, state: "cancelled" },
  });
  expect(bench.store.database.writes - before).toBe(1);
  expect(bench.sessions.receipt(second)).toMatchObject({ deliveryStatus: "cancelled" });
  expect((await watch.until("input_cancelled")).input_id).toBe(second);
  exchange.say("1").finish();
  await bench.settled(session, first);
  expect(bench.history(session)).toEqual(["user: One", "assistant: 1"]);
});

test("An input whose turn is its own is told to stop; what was provisional goes, what was committed stays", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  exchange.delta(exchange.open("text"), "half an ans");
  await watch.until("text_delta");
  expect(await bench.sessions.cancel(session, input)).toMatchObject({
    result: "interrupt_requested",
    input: { state: "committed", turn: { state: "running" } },
  });
  expect(exchange.aborted).toBe(true);
  const done = await bench.settled(session, input);
  expect(done.turn?.state).toBe("interrupted");
  expect((await watch.until("turn_finished")).replaces_all_live).toBe(true);
  expect(bench.history(session)).toEqual(["user: One"]);
  expect(bench.resource(session)).toMatchObject({ phase: "interrupted", running: false });
  const reset = await bench.watch(session).until("reset");
  expect(reset.active_output).toEqual({ segments: [], incomplete: false });
  await until("the stream to be let go", () => exchange.released);
});

test("A turn that others share goes on", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  exchange.say("1").finish();
  const steered = await bench.model.next();
  for (const id of [first, second]) {
    expect((await bench.sessions.cancel(session, id)).result).toBe("shared_running");
  }
  expect(steered.aborted).toBe(false);
  steered.say("2").finish();
  expect((await bench.settled(session, first)).turn?.state).toBe("completed");
});

test("A turn that is told to stop while it prepares what waits takes nobody's input along", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const image = { mimeType: "image/png", data: PNG_BASE64 };
  const reply = await bench.submit(session, { kind: "message", text: "Two", images: [image] });
  const { operationId: second } = JSON.parse(reply.body) as { operationId: string };
  // The model is looked up between the two halves of a preparation; the image takes a while after that.
  const resolve = bench.models.resolve.bind(bench.models);
  let cancelled: ReturnType<typeof bench.sessions.cancel> | null = null;
  bench.models.resolve = (id) => {
    cancelled ??= bench.sessions.cancel(session, first);
    return resolve(id);
  };
  exchange.say("1").finish();
  const next = await bench.model.next();
  expect((await cancelled!).result).toBe("interrupt_requested");
  expect((await bench.settled(session, first)).turn).toMatchObject({
    state: "interrupted",
    members: [first],
  });
  next.say("2").finish();
  expect((await bench.settled(session, second)).turn).toMatchObject({
    state: "completed",
    members: [second],
  });
});

test("A cancel that comes while input joins the turn finds a turn that is shared", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  const { conversation } = bench.store;
  const consume = conversation.consume.bind(conversation);
  let cancelled: ReturnType<typeof bench.sessions.cancel> | null = null;
  conversation.consume = (request, effect) => {
    const consumed = consume(request, effect);
    cancelled = bench.sessions.cancel(session, first);
    return consumed;
  };
  exchange.say("1").finish();
  const steered = await bench.model.next();
  conversation.consume = consume;
  expect((await cancelled!).result).toBe("shared_running");
  expect(steered.aborted).toBe(false);
  steered.say("2").finish();
  expect((await bench.settled(session, second)).turn).toMatchObject({
    state: "completed",
    members: [first, second],
  });
});

test("A submissionId speaks for every input it owns, waiting or running, and for no other", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const owner = bench.ids.uuidv7();
  const first = await bench.send(session, "One", { submissionId: owner });
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two", { submissionId: owner });
  const other = await bench.send(session, "Three");
  const { result, input } = await bench.sessions.cancel(session, owner);
  expect(result).toBe("interrupt_requested");
  expect(input).toMatchObject({ id: second, state: "cancelled" });
  expect(exchange.aborted).toBe(true);
  expect((await bench.settled(session, first)).turn?.state).toBe("interrupted");
  const next = await bench.model.next();
  next.say("3").finish();
  expect((await bench.settled(session, other)).turn).toMatchObject({
    state: "completed",
    members: [other],
  });
});

test("A cancellation of one of two inputs with one owner does not speak for the other", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const owner = bench.ids.uuidv7();
  const first = await bench.send(session, "One", { submissionId: owner });
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two", { submissionId: owner });
  exchange.say("1").finish();
  const steered = await bench.model.next();
  expect((await bench.sessions.cancel(session, first)).result).toBe("shared_running");
  expect((await bench.sessions.cancel(session, owner)).result).toBe("interrupt_requested");
  expect(steered.aborted).toBe(true);
  expect((await bench.settled(session, second)).turn?.state).toBe("interrupted");
});

test("Ten equal cancels get ten answers, while it waits, while it runs and when it is over", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const ten = (id: string): Promise<string[]> =>
    Promise.all(
      Array.from({ length: 10 }, async () => (await bench.sessions.cancel(session, id)).result),
    );
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const waiting = await bench.send(session, "Two");
  const answers = await ten(waiting);
  expect(answers.toSorted()).toEqual(["cancelled", ...Array(9).fill("not_pending")]);
  expect(await ten(first)).toEqual(Array(10).fill("interrupt_requested"));
  expect(exchange.aborted).toBe(true);
  await bench.settled(session, first);
  expect(await ten(first)).toEqual(Array(10).fill("not_pending"));
  expect(await ten(waiting)).toEqual(Array(10).fill("not_pending"));
});

test("A cancel that comes at once with the send finds the input", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const operationId = bench.ids.uuidv7();
  const sent = bench.send(session, "One", { operationId });
  const cancelled = bench.sessions.cancel(session, operationId);
  await sent;
  const { result } = await cancelled;
  expect(["cancelled", "interrupt_requested"]).toContain(result);
  await until("its end", () => {
    const input = bench.input(session, operationId);
    return input.state === "cancelled" || input.turn?.state === "interrupted";
  });
  expect(bench.history(session).filter((row) => row.startsWith("assistant"))).toEqual([]);
});

test("A cancellation never reaches a later turn or another session's input", async () => {
  await using bench = new SessionBench();
  const [session, elsewhere] = [await bench.create(), await bench.create()];
  const first = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, first);
  await bench.send(session, "Two");
  const exchange = await bench.model.next();
  expect((await bench.sessions.cancel(session, first)).result).toBe("not_pending");
  expect(await codeOf(bench.sessions.cancel(elsewhere, first))).toBe("input_not_found");
  expect(await codeOf(bench.sessions.cancel(session, bench.ids.uuidv7()))).toBe("input_not_found");
  expect(await codeOf(bench.sessions.cancel(bench.ids.uuidv7(), first))).toBe("session_not_found");
  expect(exchange.aborted).toBe(false);
  exchange.say("2").finish();
  await bench.phase(session, "idle");
});

test("interrupt stops the turn and cancels all that waits, in one transaction; the session is usable at once", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const [second, third] = [await bench.send(session, "Two"), await bench.send(session, "Three")];
  const answer = await bench.sessions.interrupt(session);
  expect(answer.cancelled).toEqual([second, third]);
  expect(answer.turn_id).toBe(bench.input(session, first).turn?.id ?? "none");
  expect(exchange.aborted).toBe(true);
  expect((await bench.settled(session, first)).turn?.state).toBe("interrupted");
  await watch.until("turn_finished");
  expect(bench.resource(session).phase).toBe("interrupted");
  const next = await bench.send(session, "Four");
  (await bench.model.next()).say("4").finish();
  expect((await bench.settled(session, next)).turn?.state).toBe("completed");
  expect(bench.resource(session).phase).toBe("idle");
  expect(bench.history(session)).toEqual(["user: One", "user: Four", "assistant: 4"]);
});

test("interrupt of a session that does nothing says so", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  expect(await bench.sessions.interrupt(session)).toEqual({ turn_id: null, cancelled: [] });
  expect(await codeOf(bench.sessions.interrupt(bench.ids.uuidv7()))).toBe("session_not_found");
  expect(bench.resource(session).phase).toBe("idle");
});

test("interrupt at once with a send: the input is cancelled or its turn is stopped, never left running", async () => {
  await using bench = new SessionBench();
  for (let round = 0; round < 20; round += 1) {
    const session = await bench.create();
    const operationId = bench.ids.uuidv7();
    const sent = bench.send(session, "One", { operationId });
    if (round % 2 === 0) await sent;
    if (round % 4 === 0) await settle(1);
    await Promise.all([sent, bench.sessions.interrupt(session)]);
    const input = bench.input(session, operationId);
    if (input.state === "pending") {
      // The interruption came first: what came after it is another's work and runs.
      const exchange = await bench.model.next();
      exchange.say("x").finish();
      await bench.settled(session, operationId);
    } else if (input.state === "committed") {
      await bench.settled(session, operationId);
      expect(bench.input(session, operationId).turn?.state).toBe("interrupted");
      if (bench.model.unseen > 0) await bench.model.next();
    }
  }
});

test("A tool that does not listen is left behind after its grace; its call gets an interrupted result", async () => {
  const signals: AbortSignal[] = [];
  await using bench = new SessionBench({ tools: [hanging(signals)] });
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("Calling").call("c1", "hang").finish("tool_calls");
  await until("the call", () => signals.length === 1);
  await bench.sessions.interrupt(session);
  expect(signals[0]?.aborted).toBe(true);
  await settle();
  expect(bench.resource(session).phase).toBe("running");
  await bench.clock.advance(2000);
  const done = await bench.settled(session, input);
  expect(done.turn?.state).toBe("interrupted");
  expect(await watch.until("tool_finished")).toMatchObject({
    tool_call_id: "c1",
    row: { tool_status: "interrupted" },
  });
  expect(bench.history(session)[3]).toStartWith("tool_result: interrupted");
  expect((await bench.watch(session).until("reset")).current_progress).toBeNull();
  const next = await bench.send(session, "Two");
  (await bench.model.next()).say("2").finish();
  expect((await bench.settled(session, next)).turn?.state).toBe("completed");
});

test("A provider that does not listen is not waited for, and what it says later is not heard", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  exchange.deaf = true;
  exchange.delta(exchange.open("text"), "early");
  await settle();
  await bench.sessions.interrupt(session);
  await bench.settled(session, input);
  const cursor = bench.resource(session).cursor ?? 0;
  exchange.say("late").finish();
  await bench.clock.advance(100);
  expect(bench.resource(session).cursor).toBe(cursor);
  expect(bench.history(session)).toEqual(["user: One"]);
});

test("interrupt during a retry's delay ends the turn at once", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "One");
  (await bench.model.next()).breakOff();
  await watch.until("retry");
  await bench.sessions.interrupt(session);
  expect((await bench.settled(session, input)).turn?.state).toBe("interrupted");
});

test("interrupt of a parent stops its children, their children, and what waits in them", async () => {
  await using bench = new SessionBench();
  const parent = await bench.create();
  const child = await bench.create({ parentId: parent });
  const grandchild = await bench.create({ parentId: child });
  const other = await bench.create();
  const [running, deep, free] = [
    await bench.send(child, "Child"),
    await bench.send(grandchild, "Grandchild"),
    await bench.send(other, "Other"),
  ];
  for (let count = 0; count < 3; count += 1) await bench.model.next();
  const waiting = await bench.send(child, "Waits");
  await bench.sessions.interrupt(parent);
  expect((await bench.settled(child, running)).turn?.state).toBe("interrupted");
  expect((await bench.settled(grandchild, deep)).turn?.state).toBe("interrupted");
  expect(bench.input(child, waiting).state).toBe("cancelled");
  expect(bench.input(other, free).turn?.state).toBe("running");
});

test("A child that is created and started while its parent stops is stopped too", async () => {
  await using bench = new SessionBench({ tools: [hanging()] });
  const parent = await bench.create();
  const input = await bench.send(parent, "Parent");
  (await bench.model.next()).call("c1", "hang").finish("tool_calls");
  await until("the call", () => bench.history(parent).includes("tool_call"));
  await bench.sessions.interrupt(parent);
  expect(bench.resource(parent).phase).toBe("running");
  const child = await bench.create({ parentId: parent });
  const late = await bench.send(child, "Late");
  const exchange = await bench.model.next();
  expect(exchange.aborted).toBe(false);
  await bench.clock.advance(2000);
  await bench.settled(parent, input);
  expect((await bench.settled(child, late)).turn?.state).toBe("interrupted");
  expect(exchange.aborted).toBe(true);
});

test("A cancellation stops no child: neither its turn nor what waits in it", async () => {
  await using bench = new SessionBench();
  const parent = await bench.create();
  const child = await bench.create({ parentId: parent });
  const input = await bench.send(parent, "Parent");
  await bench.model.next();
  const running = await bench.send(child, "Child");
  const exchange = await bench.model.next();
  const waiting = await bench.send(child, "Waits");
  expect((await bench.sessions.cancel(parent, input)).result).toBe("interrupt_requested");
  expect((await bench.settled(parent, input)).turn?.state).toBe("interrupted");
  await settle(10);
  expect(exchange.aborted).toBe(false);
  expect(bench.input(child, running).turn?.state).toBe("running");
  expect(bench.input(child, waiting).state).toBe("pending");
});

test("An interruption of a turn that a cancellation has told to stop reaches late children all the same", async () => {
  await using bench = new SessionBench({ tools: [hanging()] });
  const parent = await bench.create();
  const input = await bench.send(parent, "Parent");
  (await bench.model.next()).call("c1", "hang").finish("tool_calls");
  await until("the call", () => bench.history(parent).includes("tool_call"));
  await bench.sessions.cancel(parent, input);
  await bench.sessions.interrupt(parent);
  const child = await bench.create({ parentId: parent });
  const late = await bench.send(child, "Late");
  await bench.model.next();
  await bench.clock.advance(2000);
  await bench.settled(parent, input);
  expect((await bench.settled(child, late)).turn?.state).toBe("interrupted");
});

test("Deletion cancels what waits, ends the turn and its stream, and what is left behind is silent", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  watch.drain();
  const ended = watch.subscription.wait();
  await bench.sessions.remove(session, { recursive: false });
  await ended;
  watch.drain();
  expect(watch.subscription.ended).toBe(true);
  expect(watch.events.findLast(({ kind }) => kind === "input_cancelled")).toMatchObject({
    input_id: second,
  });
  expect(exchange.aborted).toBe(true);
  expect(bench.sessions.receipt(second).deliveryStatus).toBe("cancelled");
  expect(bench.sessions.receipt(first)).toMatchObject({ deliveryStatus: "committed" });
  expect(bench.sessions.receipt(first).expiresAt).toBeGreaterThan(0);
  exchange.say("late").finish();
  await settle();
  expect(() => bench.resource(session)).toThrow("There is no such session");
  expect(bench.sessions.busy).toBe(false);
  expect(bench.errors).toEqual([]);
  const retried = await bench.sessions.submit({
    operationId: first,
    sessionId: session,
    action: { kind: "message", text: "One", images: [] },
    clientId: null,
    submissionId: null,
  });
  expect([retried.status, retried.replayed]).toEqual([202, true]);
});

test("Deletion of a session with children asks for `recursive`, and then takes all of them", async () => {
  await using bench = new SessionBench();
  const parent = await bench.create();
  const child = await bench.create({ parentId: parent });
  const watch = bench.watch(child).drain();
  const input = await bench.send(child, "Child");
  const exchange = await bench.model.next();
  expect(await codeOf(bench.sessions.remove(parent, { recursive: false }))).toBe(
    "session_has_children",
  );
  expect(exchange.aborted).toBe(false);
  await bench.sessions.remove(parent, { recursive: true });
  expect(exchange.aborted).toBe(true);
  watch.drain();
  expect(watch.subscription.ended).toBe(true);
  expect(await codeOf(bench.sessions.cancel(child, input))).toBe("session_not_found");
  expect(await codeOf(bench.sessions.remove(parent, { recursive: true }))).toBe(
    "session_not_found",
  );
  expect(bench.sessions.loadedCount).toBe(0);
});
