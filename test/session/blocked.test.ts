import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, rmSync } from "node:fs";
import { CONSUME_RETRY_MS, FRAME_MS } from "../../src/base/limits.ts";
import { settle } from "../support/fake_clock.ts";
import { SessionBench } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: "The session retains blocked work and retries preparation at most once every 15 seconds while it remains
 * usable" (operations.md), "and at once when what blocked it changes" (contract.md). Method: workspaces that vanish,
 * models that cannot be had, a store that cannot write; a clock that stands still.
 */
async function blocked(bench: SessionBench, session: string, reason: string): Promise<void> {
  await until(`blocked by ${reason}`, () => {
    const { phase, blocking_reason } = bench.resource(session);
    return phase === "blocked" && blocking_reason === reason;
  });
}

test("A workspace that is gone blocks the queue: the input stays pending, with a reason, and nothing is written", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  rmSync(bench.workspace, { recursive: true });
  const input = await bench.send(session, "One");
  await blocked(bench, session, "workspace_missing");
  await until("the stored reason", () => bench.input(session, input).blocking_reason);
  expect(bench.input(session, input)).toMatchObject({
    state: "pending",
    blocking_reason: "workspace_missing",
  });
  expect(bench.sessions.receipt(input)).toMatchObject({
    deliveryStatus: "pending",
    blockingReason: "workspace_missing",
  });
  expect(bench.history(session)).toEqual([]);
  await watch.until("status", ({ blocking_reason }) => blocking_reason === "workspace_missing");
  const reset = await bench.watch(session).until("reset");
  expect(reset).toMatchObject({
    phase: "blocked",
    blocking_reason: "workspace_missing",
    pending_inputs: [{ id: input, blocking_reason: "workspace_missing" }],
  });
});

test("A blocked queue is tried again after exactly 15 s, and goes on when it can", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  bench.models.unavailable.add(bench.model.id);
  const input = await bench.send(session, "One");
  for (let tries = 1; tries <= 4; tries += 1) {
    await until("a try", () => bench.models.refusals === tries);
    await bench.clock.advance(CONSUME_RETRY_MS - 1);
    await settle(10);
    expect(bench.models.refusals).toBe(tries);
    await bench.clock.advance(1);
  }
  await until("the last try", () => bench.models.refusals === 5);
  bench.models.unavailable.clear();
  await bench.clock.advance(CONSUME_RETRY_MS);
  (await bench.model.next()).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
  expect(bench.input(session, input).blocking_reason).toBeUndefined();
  expect(bench.resource(session)).toMatchObject({ phase: "idle" });
  // What is left of the last frame ends by itself; no further try is planned.
  await bench.clock.advance(2 * FRAME_MS);
  expect(bench.clock.waiting).toBe(0);
});

test("A workspace that is back is a change: the queue goes on within a second, not after 15", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  rmSync(bench.workspace, { recursive: true });
  const input = await bench.send(session, "One");
  await blocked(bench, session, "workspace_missing");
  for (let looks = 0; looks < 3; looks += 1) {
    await bench.clock.advance(500);
    await settle(10);
    expect(bench.input(session, input).state).toBe("pending");
  }
  mkdirSync(bench.workspace);
  const asked = bench.model.next();
  const began = bench.clock.monotonic();
  await until("the workspace to be found", async () => {
    await bench.clock.advance(100);
    return bench.model.exchanges.length > 0;
  });
  expect(bench.clock.monotonic() - began).toBeLessThan(CONSUME_RETRY_MS / 2);
  (await asked).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
  await bench.clock.advance(1000);
  expect(bench.clock.waiting).toBe(0);
});

test("Another submission to a blocked session is accepted and is no reason to try again sooner", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  rmSync(bench.workspace, { recursive: true });
  await bench.send(session, "One");
  await blocked(bench, session, "workspace_missing");
  mkdirSync(bench.workspace);
  const second = await bench.send(session, "Two");
  await settle(10);
  expect(bench.input(session, second)).toMatchObject({
    state: "pending",
    blocking_reason: "workspace_missing",
  });
  await bench.clock.advance(CONSUME_RETRY_MS);
  (await bench.model.next()).say("both").finish();
  expect((await bench.settled(session, second)).turn?.members.length).toBe(2);
});

test("A model that cannot be had blocks; a change of the settings is followed at once", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  bench.models.unavailable.add(bench.model.id);
  const input = await bench.send(session, "One");
  await blocked(bench, session, "model_unavailable");
  bench.models.changed();
  await blocked(bench, session, "model_unavailable");
  bench.models.unavailable.clear();
  bench.models.changed();
  (await bench.model.next()).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
});

test("Choosing another model for a blocked session is followed at once", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  bench.models.unavailable.add(bench.model.id);
  const input = await bench.send(session, "One");
  await blocked(bench, session, "model_unavailable");
  await bench.sessions.patch(session, { model: bench.other.id }, null);
  (await bench.other.next()).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
});

test("A change that has nothing to do with what blocks is no reason to try again", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  rmSync(bench.workspace, { recursive: true });
  const input = await bench.send(session, "One");
  await blocked(bench, session, "workspace_missing");
  mkdirSync(bench.workspace);
  bench.models.changed();
  await bench.sessions.patch(session, { model: bench.other.id, title: "T" }, null);
  await settle(10);
  expect(bench.input(session, input).state).toBe("pending");
});

test("A consumption that the store fails leaves the input pending and no transcript row", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const { conversation, database } = bench.store;
  const consume = conversation.consume.bind(conversation);
  conversation.consume = () =>
    database.write<never>(() => {
      throw new Error("disk I/O error");
    });
  const input = await bench.send(session, "One");
  await blocked(bench, session, "storage_failure");
  expect(bench.input(session, input).state).toBe("pending");
  expect(bench.history(session)).toEqual([]);
  conversation.consume = consume;
  await bench.clock.advance(CONSUME_RETRY_MS);
  (await bench.model.next()).say("1").finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
});

test("A reason that could not be stored is stored with the next failed try", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const { conversation, database, operations } = bench.store;
  const fails = (): Promise<never> =>
    database.write<never>(() => {
      throw new Error("disk I/O error");
    });
  conversation.consume = fails;
  const setBlocking = operations.setBlocking.bind(operations);
  operations.setBlocking = fails;
  const input = await bench.send(session, "One");
  await until("the phase", () => bench.resource(session).phase === "blocked");
  await settle(10);
  expect(bench.sessions.receipt(input).blockingReason).toBeUndefined();
  operations.setBlocking = setBlocking;
  await bench.clock.advance(CONSUME_RETRY_MS);
  await until("the reason", () => bench.sessions.receipt(input).blockingReason !== undefined);
  expect(bench.sessions.receipt(input).blockingReason).toBe("storage_failure");
});

test("While a turn runs, input that cannot be taken waits, and the turn goes on; then the queue is blocked", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const first = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const second = await bench.send(session, "Two");
  rmSync(bench.workspace, { recursive: true });
  exchange.say("1").finish();
  expect((await bench.settled(session, first)).turn?.state).toBe("completed");
  await blocked(bench, session, "workspace_missing");
  mkdirSync(bench.workspace);
  await bench.clock.advance(CONSUME_RETRY_MS);
  (await bench.model.next()).say("2").finish();
  expect((await bench.settled(session, second)).turn?.members).toEqual([second]);
});

test("Cancelling or interrupting what is blocked empties the queue and ends the tries", async () => {
  await using bench = new SessionBench();
  for (const how of ["cancel", "interrupt"] as const) {
    const session = await bench.create();
    bench.models.unavailable.add(bench.model.id);
    const input = await bench.send(session, "One");
    await blocked(bench, session, "model_unavailable");
    await bench.sessions[how](session, input);
    expect(bench.input(session, input).state).toBe("cancelled");
    expect(bench.resource(session)).toMatchObject({ phase: "idle", pending_inputs: [] });
    bench.models.unavailable.clear();
    await bench.clock.advance(2 * CONSUME_RETRY_MS);
    const next = await bench.send(session, "Two");
    expect(bench.input(session, next).blocking_reason).toBeUndefined();
    (await bench.model.next()).say("2").finish();
    await bench.settled(session, next);
  }
});

test("A blocked session stays loaded and goes on by itself, unwatched, hours later", async () => {
  await using bench = new SessionBench({ unloadSeconds: 60 });
  const session = await bench.create();
  bench.models.unavailable.add(bench.model.id);
  const input = await bench.send(session, "One");
  await blocked(bench, session, "model_unavailable");
  for (let minutes = 0; minutes < 120; minutes += 10) {
    await bench.clock.advance(600_000);
    await bench.sessions.sweep();
  }
  expect(bench.sessions.loadedCount).toBe(1);
  bench.models.unavailable.clear();
  await bench.clock.advance(CONSUME_RETRY_MS);
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
});
