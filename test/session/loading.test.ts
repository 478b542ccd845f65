import { expect, setDefaultTimeout, test } from "bun:test";
import { ACTIVE_SESSION_MS } from "../../src/base/limits.ts";
import { codeOf, SessionBench } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: sessions.md, "Loaded sessions and unloading" and "Running observations". Method: the session floor on a real
 * store, a clock that stands still, sweeps that the test asks for.
 */
const HOUR_MS = 3_600_000;

function summary(bench: SessionBench, session: string) {
  return bench.sessions.list({ cursor: null, limit: 200 }).items.find(({ id }) => id === session);
}

test("Opening, watching and submitting load a session; history, lists, receipts and inputs never do", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const query = { before: null, after: null, limit: 10, direction: "backward" } as const;
  bench.sessions.historyPage(session, query);
  bench.sessions.list({ cursor: null, limit: 10 });
  await codeOf(Promise.resolve().then(() => bench.sessions.historyRow(session, 1)));
  await codeOf(Promise.resolve().then(() => bench.sessions.input(session, bench.ids.uuidv7())));
  await bench.sessions.interrupt(session);
  expect(bench.sessions.loadedCount).toBe(0);
  expect(summary(bench, session)).toMatchObject({ loaded: false, active: false, running: false });
  bench.resource(session);
  expect(bench.sessions.loadedCount).toBe(1);
  const other = await bench.create();
  bench.sessions.subscribe(other, null);
  expect(bench.sessions.loadedCount).toBe(2);
  const third = await bench.create();
  await bench.send(third, "One");
  expect(bench.sessions.loadedCount).toBe(3);
});

test("The list shows running, loaded and active without asking the session", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  expect(summary(bench, session)).toMatchObject({
    phase: "running",
    running: true,
    loaded: true,
    active: true,
    pending_count: 0,
  });
  const waiting = await bench.send(session, "Two");
  expect(summary(bench, session)).toMatchObject({ pending_count: 1 });
  await bench.sessions.cancel(session, waiting);
  exchange.say("1").finish();
  await bench.settled(session, input);
  expect(summary(bench, session)).toMatchObject({ phase: "idle", running: false, active: true });
  await bench.clock.advance(ACTIVE_SESSION_MS - 1);
  expect(summary(bench, session)?.active).toBe(true);
  await bench.clock.advance(1);
  expect(summary(bench, session)).toMatchObject({ loaded: true, active: false });
});

test("The list comes in pages, newest activity first, and refuses a cursor it did not give", async () => {
  await using bench = new SessionBench();
  const ids: string[] = [];
  for (let count = 0; count < 5; count += 1) {
    ids.unshift(await bench.create());
    await bench.clock.advance(1);
  }
  const first = bench.sessions.list({ cursor: null, limit: 2 });
  const second = bench.sessions.list({ cursor: first.next, limit: 2 });
  const third = bench.sessions.list({ cursor: second.next, limit: 2 });
  expect([...first.items, ...second.items, ...third.items].map(({ id }) => id)).toEqual(ids);
  expect(third.next).toBeNull();
  for (const cursor of ["", "x", "MS4y", Buffer.from("1.2").toString("base64url")]) {
    expect(() => bench.sessions.list({ cursor, limit: 2 })).toThrow("'cursor' is not one");
  }
});

test("A session is unloaded an hour after its last turn, and loaded again with another generation", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  const { generation } = bench.resource(session);
  await bench.clock.advance(HOUR_MS);
  expect((await bench.sessions.sweep()).unloaded).toBe(0);
  await bench.clock.advance(1);
  expect((await bench.sessions.sweep()).unloaded).toBe(1);
  expect(bench.sessions.loadedCount).toBe(0);
  expect(summary(bench, session)).toMatchObject({ loaded: false, phase: "idle" });
  const again = bench.resource(session);
  expect(again.generation).not.toBe(generation);
  expect(again.cursor).toBe(0);
  expect(bench.clock.waiting).toBe(0);
});

test("A session is not unloaded while its turn runs, while input waits, or while it is watched", async () => {
  await using bench = new SessionBench();
  const [running, waiting, watched] = [
    await bench.create(),
    await bench.create(),
    await bench.create(),
  ];
  await bench.send(running, "One");
  await bench.model.next();
  bench.models.unavailable.add(bench.model.id);
  await bench.send(waiting, "Two");
  await bench.phase(waiting, "blocked");
  const watch = bench.watch(watched).drain();
  await bench.clock.advance(2 * HOUR_MS);
  expect((await bench.sessions.sweep()).unloaded).toBe(0);
  watch.subscription.close();
  expect((await bench.sessions.sweep()).unloaded).toBe(1);
  expect(bench.sessions.loadedCount).toBe(2);
});

test("A session is not unloaded while a child, or a child's child, works", async () => {
  await using bench = new SessionBench();
  const parent = await bench.create();
  const child = await bench.create({ parentId: parent });
  const grandchild = await bench.create({ parentId: child });
  for (const session of [parent, child]) bench.resource(session);
  const input = await bench.send(grandchild, "Work");
  const exchange = await bench.model.next();
  await bench.clock.advance(2 * HOUR_MS);
  expect((await bench.sessions.sweep()).unloaded).toBe(0);
  exchange.say("done").finish();
  await bench.settled(grandchild, input);
  expect((await bench.sessions.sweep()).unloaded).toBe(2);
  await bench.clock.advance(2 * HOUR_MS);
  expect((await bench.sessions.sweep()).unloaded).toBe(1);
});

test("A submission to a session that was unloaded runs in a new lifetime", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  bench.resource(session);
  await bench.clock.advance(2 * HOUR_MS);
  await bench.sessions.sweep();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
});

test("A sweep forgets the replay window of a session that nobody watches; a reader that has seen all goes on", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  watch.drain();
  const { generation, cursor } = watch;
  await bench.sessions.sweep();
  // A watched session keeps its window: this reader may be cut off at any moment.
  const replay = bench.sessions.subscribe(session, { generation, seq: cursor - 1 });
  expect(replay.next()?.data).not.toContain('"kind":"reset"');
  replay.close();
  watch.subscription.close();
  await bench.sessions.sweep();
  const seen = bench.sessions.subscribe(session, { generation, seq: cursor }).next();
  expect(JSON.parse(seen?.data ?? "")).toEqual({ generation, cursor, events: [] });
  const behind = bench.sessions.subscribe(session, { generation, seq: cursor - 1 }).next();
  expect(behind?.data).toContain('"kind":"reset"');
});

test("A sweep removes expired receipts in batches, and keeps what waits", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  for (let count = 0; count < 150; count += 1) {
    await bench.submit(session, { kind: "command", name: "unknown", arguments: String(count) });
  }
  bench.models.unavailable.add(bench.model.id);
  const waiting = await bench.send(session, "Waits");
  await bench.clock.advance(8 * 24 * HOUR_MS);
  expect((await bench.sessions.sweep()).receipts).toBe(151);
  expect(bench.sessions.receipt(waiting).deliveryStatus).toBe("pending");
});

test("The running cache has a mark only while a turn is active", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  expect(bench.sessions.busy).toBe(false);
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  expect(bench.sessions.busy).toBe(true);
  exchange.say("1").finish();
  await bench.settled(session, input);
  await until("no mark", () => !bench.sessions.busy);
});
