import { expect, setDefaultTimeout, test } from "bun:test";
import type { Tool, ToolResult } from "../../src/agent/tool.ts";
import { WAITING_INPUTS_MAX } from "../../src/base/limits.ts";
import { settle } from "../support/fake_clock.ts";
import { codeOf, SessionBench } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: what a daemon that died or stopped leaves behind, and how the next one goes on (operations.md, Ownership and
 * atomicity; contract.md 4, 9 and 10). Method: the store of a bench is closed under its sessions and opened again;
 * real kills are in test/fault.
 */
const hang: Tool = {
  name: "hang",
  description: "Never ends",
  parameters: { type: "object" },
  run: () => new Promise<ToolResult>(() => undefined),
};

test("After a crash the open turn is interrupted, its members settled, its calls answered; the session is usable at once", async () => {
  await using bench = new SessionBench({ tools: [hang] });
  const session = await bench.create();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("Calling").call("c1", "hang").finish("tool_calls");
  await until("the call", () => bench.history(session).includes("tool_call"));
  const before = bench.resource(session).generation;
  await bench.crash();
  expect(bench.input(session, input).turn).toMatchObject({ state: "interrupted" });
  expect(bench.sessions.receipt(input).expiresAt).toBeGreaterThan(0);
  expect(bench.history(session)[3]).toStartWith("tool_result: interrupted");
  expect(bench.sessions.list({ cursor: null, limit: 10 }).items).toMatchObject([
    { id: session, phase: "interrupted", running: false, loaded: false, active: false },
  ]);
  const resource = bench.resource(session);
  expect(resource).toMatchObject({ phase: "interrupted", running: false });
  expect(resource.generation).not.toBe(before);
  const next = await bench.send(session, "Two");
  (await bench.model.next()).say("2").finish();
  expect((await bench.settled(session, next)).turn?.state).toBe("completed");
  expect(bench.resource(session).phase).toBe("idle");
});

test("What waited when the daemon died runs by itself, also in a session whose last turn was idle", async () => {
  await using bench = new SessionBench();
  const [busy, blocked] = [await bench.create(), await bench.create()];
  await bench.send(busy, "One");
  await bench.model.next();
  const waiting = await bench.send(busy, "Two");
  bench.models.unavailable.add(bench.model.id);
  const idle = await bench.send(blocked, "Three");
  await bench.phase(blocked, "blocked");
  await bench.crash();
  expect(bench.input(busy, waiting).state).toBe("pending");
  expect(bench.sessions.loadedCount).toBe(2);
  await bench.phase(busy, "blocked");
  bench.models.unavailable.clear();
  bench.models.changed();
  for (let count = 0; count < 2; count += 1) (await bench.model.next()).say("ok").finish();
  expect((await bench.settled(busy, waiting)).turn).toMatchObject({
    state: "completed",
    members: [waiting],
  });
  expect((await bench.settled(blocked, idle)).turn?.state).toBe("completed");
  expect(bench.history(busy)).toEqual(["user: One", "user: Two", "assistant: ok"]);
});

test("More than 32 restored inputs are all there; new ones are refused until the queue is below the limit", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  bench.models.unavailable.add(bench.model.id);
  const ids: string[] = [];
  for (let count = 0; count < WAITING_INPUTS_MAX; count += 1) {
    ids.push(await bench.send(session, `Text ${count}`));
  }
  const refused = await bench.submit(session, { kind: "continue" });
  expect(refused.status).toBe(429);
  // As an older daemon with another limit may have left it: further rows that wait.
  const { database } = bench.store;
  const extra = Array.from({ length: 8 }, () => bench.ids.uuidv7());
  await database.write(() => {
    for (const id of extra) {
      database.execute(`INSERT INTO operations (operation_id, fingerprint, kind, target, created_at, admission,
        http_status, body, delivery_status) VALUES ('${id}', 'f', 'message', '${session}', 1, 'accepted', 202, '{}',
        'pending')`);
      database.execute(`INSERT INTO pending_inputs (session_id, decision, operation_id, kind, source, display_text,
        model_text, submission_id, accepted_at) SELECT '${session}', decision, '${id}', 'message', 'user', 'Extra',
        'Extra', '${id}', 1 FROM operations WHERE operation_id = '${id}'`);
    }
  });
  await bench.crash();
  const all = [...ids, ...extra];
  expect(bench.resource(session).pending_inputs.map(({ id }) => id)).toEqual(all);
  expect((await bench.submit(session, { kind: "continue" })).status).toBe(429);
  const reset = await bench.watch(session).until("reset");
  expect(reset.pending_inputs.map(({ id }) => id)).toEqual(all);
  bench.models.unavailable.clear();
  bench.models.changed();
  const exchange = await bench.model.next();
  expect(bench.input(session, extra[7] ?? "").turn?.members).toEqual(all);
  expect((await bench.submit(session, { kind: "continue" })).status).toBe(202);
  exchange.say("ok").finish();
  (await bench.model.next()).say("ok").finish();
  await bench.phase(session, "idle");
});

test("Events of a later generation begin with a reset that has all that was committed", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  watch.drain();
  const position = { generation: watch.generation, seq: watch.cursor };
  await bench.restart();
  const frame = bench.sessions.subscribe(session, position).next();
  const batch = JSON.parse(frame?.data ?? "{}") as {
    events: { kind: string; history: unknown[] }[];
  };
  expect(batch.events[0]).toMatchObject({
    kind: "reset",
    history: [{ role: "user" }, { role: "assistant" }],
  });
  expect(frame?.generation).not.toBe(watch.generation);
});

test("stop refuses admissions, interrupts turns, leaves waiting input for the next start, and ends streams cleanly", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  const stopped = bench.sessions.stop(4000);
  expect(await codeOf(bench.send(session, "Three"))).toBe("daemon_stopping");
  expect(await codeOf(bench.create())).toBe("daemon_stopping");
  await stopped;
  expect(exchange.aborted).toBe(true);
  watch.drain();
  expect(watch.subscription.ended).toBe(true);
  expect(watch.events.findLast(({ kind }) => kind === "turn_finished")).toMatchObject({
    turn: { state: "interrupted", members: [first] },
  });
  expect(watch.events.some(({ kind }) => kind === "input_cancelled")).toBe(false);
  expect(bench.input(session, second).state).toBe("pending");
  expect(() => bench.sessions.subscribe(session, null)).toThrow("The daemon is stopping");
  expect(bench.sessions.receipt(second).deliveryStatus).toBe("pending");
  await bench.restart();
  (await bench.model.next()).say("2").finish();
  expect((await bench.settled(session, second)).turn?.members).toEqual([second]);
});

test("A replay is refused while the daemon stops like any admission; after the start it is answered", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const operationId = bench.ids.uuidv7();
  await bench.send(session, "One", { operationId });
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, operationId);
  await bench.sessions.stop(4000);
  expect(await codeOf(bench.send(session, "One", { operationId }))).toBe("daemon_stopping");
  await bench.restart();
  const again = await bench.submit(
    session,
    { kind: "message", text: "One", images: [] },
    { operationId },
  );
  expect([again.status, again.replayed]).toEqual([202, true]);
});

test("stop ends within its deadline though a tool hangs and a provider stalls", async () => {
  await using bench = new SessionBench({ tools: [hang] });
  const [one, two] = [await bench.create(), await bench.create()];
  const first = await bench.send(one, "One");
  (await bench.model.next()).call("c1", "hang").finish("tool_calls");
  await until("the call", () => bench.history(one).includes("tool_call"));
  const second = await bench.send(two, "Two");
  (await bench.model.next()).deaf = true;
  let done = false;
  const stopped = bench.sessions.stop(4000).then(() => (done = true));
  await settle(10);
  expect(bench.input(two, second).turn?.state).toBe("interrupted");
  expect(done).toBe(false);
  await bench.clock.advance(2000);
  await until("the stop", () => done);
  await stopped;
  expect(bench.input(one, first).turn?.state).toBe("interrupted");
  expect(bench.clock.waiting).toBe(0);
});

test("stop gives up at its deadline when the store does not answer; the next start ends what is left", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  await bench.model.next();
  bench.store.conversation.commit = () => new Promise(() => undefined);
  let done = false;
  const stopped = bench.sessions.stop(4000).then(() => (done = true));
  await bench.clock.advance(3999);
  expect(done).toBe(false);
  await bench.clock.advance(1);
  await stopped;
  await bench.crash();
  expect(bench.input(session, input).turn?.state).toBe("interrupted");
});

test("An admission that is under way when the stop begins is decided: accepted and waiting, or refused", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const ids = Array.from({ length: 8 }, () => bench.ids.uuidv7());
  const sends = ids.map((operationId) =>
    bench.submit(session, { kind: "message", text: "x", images: [] }, { operationId }).then(
      ({ status }) => status,
      () => 503,
    ),
  );
  await bench.sessions.stop(4000);
  const statuses = await Promise.all(sends);
  await bench.restart();
  for (const [index, status] of statuses.entries()) {
    const known = bench.store.operations.find(ids[index] ?? "");
    expect(known === null).toBe(status === 503);
  }
});

test("Spilled output of a daemon that died is gone after the start", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  await bench.send(session, "One");
  const exchange = await bench.model.next();
  exchange.delta(exchange.open("text"), "x".repeat(100_000));
  const reset = await until("a spilled segment", async () => {
    const event = await bench.watch(session).until("reset");
    return event.active_output.segments[0]?.content === undefined ? null : event;
  });
  const content = reset.active_output.segments[0]?.content;
  await bench.crash();
  const read = bench.sessions.activeOutput(session, content?.content_id ?? "", {
    snapshot: content?.snapshot ?? "",
    next: null,
  });
  expect(await codeOf(read)).toBe("active_output_expired");
});
