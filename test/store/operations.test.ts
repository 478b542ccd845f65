import { describe, expect, test } from "bun:test";
import {
  OPERATION_AGE_MS_MAX,
  OPERATION_FUTURE_MS_MAX,
  RECEIPT_RETENTION_MS,
  RECEIPT_SWEEP_BATCH_MAX,
  WAITING_INPUTS_MAX,
} from "../../src/base/limits.ts";
import type { PendingRecord } from "../../src/store/rows.ts";
import { Problem } from "../../src/wire/problem.ts";
import {
  admission,
  admit,
  assertConsistent,
  type Bench,
  code,
  createSession,
  idAt,
  openBench,
  runTurn,
} from "./support.ts";

/*
 * Admission, receipts, retention (operations.md; contract.md, Identity and time, Admission and receipts). Orders of
 * these are in model.test.ts; here is each rule by itself, at its limit.
 */
async function problem(run: () => unknown): Promise<string> {
  try {
    await run();
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return "none";
}

function send(bench: Bench, operationId: string, sessionId: string, text = "hello") {
  return bench.store.operations.admit(admission({ operationId, sessionId, text }));
}

async function fill(bench: Bench, sessionId: string, count: number): Promise<string[]> {
  return Promise.all(Array.from({ length: count }, () => admit(bench, sessionId)));
}

describe("Operations.admit", () => {
  test("accepts with a receipt and a waiting input that holds the whole submission", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const accepted: PendingRecord[] = [];
    const bytes = new Uint8Array([1, 2, 3]);
    const reply = await bench.store.operations.admit(
      admission({
        operationId,
        sessionId,
        text: "look",
        clientId: "echo",
        images: [{ mimeType: "image/png", width: 3, height: 4, bytes }],
      }),
      (record) => accepted.push(record),
    );
    const now = bench.clock.now();
    expect(reply).toEqual({
      status: 202,
      body: JSON.stringify({ operationId, sessionId, status: "accepted", acceptedAt: now }),
      contentType: "application/json",
      location: null,
      replayed: false,
    });
    expect(accepted).toEqual(bench.store.operations.pending(sessionId));
    expect(accepted).toMatchObject([
      {
        operationId,
        sessionId,
        kind: "message",
        source: "user",
        submissionId: operationId,
        clientId: "echo",
        displayText: "look",
        modelText: "look",
        name: null,
        images: [{ mimeType: "image/png", width: 3, height: 4, byteCount: 3 }],
        acceptedAt: now,
      },
    ]);
    const imageId = accepted[0]?.images[0]?.imageId ?? "";
    expect(bench.store.images.get(sessionId, imageId)?.bytes).toEqual(bytes);
    const receipt = bench.store.operations.receipt(operationId);
    expect(receipt).toMatchObject({
      operationId,
      kind: "message",
      target: sessionId,
      createdAt: now,
      admission: "accepted",
      httpStatus: 202,
      result: JSON.parse(reply.body),
      deliveryStatus: "pending",
    });
    expect(receipt).not.toHaveProperty("settledAt");
    expect(receipt).not.toHaveProperty("expiresAt");
  });

  test("replays an identical retry to the byte, also after a restart, and lets it wait once", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const first = await send(bench, operationId, sessionId);
    await bench.clock.advance(1000);
    const second = await send(bench, operationId, sessionId);
    await bench.restart();
    const third = await send(bench, operationId, sessionId);
    expect(second).toEqual({ ...first, replayed: true });
    expect(third).toEqual(second);
    expect(bench.store.operations.pendingCount(sessionId)).toBe(1);
  });

  test("decides 48 concurrent sends of one id once", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const replies = await Promise.all(
      Array.from({ length: 48 }, () => send(bench, operationId, sessionId)),
    );
    expect(replies.filter(({ replayed }) => !replayed)).toHaveLength(1);
    expect(new Set(replies.map(({ body }) => body)).size).toBe(1);
    expect(bench.store.operations.pendingCount(sessionId)).toBe(1);
  });

  test("answers a changed request under the same id with a conflict and keeps the decision", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const first = await send(bench, operationId, sessionId, "one");
    expect(await problem(() => send(bench, operationId, sessionId, "two"))).toBe(
      "operation_conflict",
    );
    expect(bench.store.operations.pending(sessionId)[0]?.displayText).toBe("one");
    expect((await send(bench, operationId, sessionId, "one")).body).toBe(first.body);
  });

  test("gives a replay without a write", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const first = await send(bench, operationId, sessionId);
    const { fingerprint } = admission({ operationId, sessionId });
    const { writes } = bench.store.database;
    const { operations } = bench.store;
    expect(operations.replay(operationId, fingerprint)).toEqual({ ...first, replayed: true });
    expect(operations.replay(bench.ids.uuidv7(), fingerprint)).toBeNull();
    expect(await problem(() => operations.replay(operationId, "other"))).toBe("operation_conflict");
    expect(bench.store.database.writes).toBe(writes);
  });

  test("records a rejection, and replays it when its cause has gone", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const request = admission({ operationId, sessionId, kind: "skill", name: "none" });
    const rejection = { code: "skill_unknown", detail: "No such skill" } as const;
    const { operations } = bench.store;
    const first = await operations.admit({ ...request, prepared: null, rejection });
    expect(first).toMatchObject({
      status: 422,
      contentType: "application/problem+json",
      replayed: false,
    });
    expect(JSON.parse(first.body)).toMatchObject({ code: "skill_unknown", status: 422 });
    expect(await operations.admit(request)).toEqual({ ...first, replayed: true });
    expect(operations.receipt(operationId)).toMatchObject({
      admission: "rejected",
      httpStatus: 422,
      error: JSON.parse(first.body),
      settledAt: bench.clock.now(),
      expiresAt: bench.clock.now() + RECEIPT_RETENTION_MS,
    });
    expect(operations.receipt(operationId)).not.toHaveProperty("deliveryStatus");
    expect(operations.input(sessionId, operationId)).toBeNull();
  });

  test("records that the session was not there, and replays that", async () => {
    await using bench = openBench();
    const sessionId = bench.ids.uuidv7();
    const operationId = bench.ids.uuidv7();
    const first = await send(bench, operationId, sessionId);
    expect([first.status, code(first)]).toEqual([404, "session_not_found"]);
    expect(await send(bench, operationId, sessionId)).toEqual({ ...first, replayed: true });
  });

  test("lets 32 inputs wait, and records a rejection of the 33rd that replays after the queue drained", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const ids = await fill(bench, sessionId, WAITING_INPUTS_MAX);
    const late = bench.ids.uuidv7();
    const refused = await send(bench, late, sessionId);
    expect([refused.status, code(refused)]).toEqual([429, "queue_full"]);
    expect((await send(bench, ids[0] ?? "", sessionId)).replayed).toBe(true);
    const elsewhere = await createSession(bench);
    await admit(bench, elsewhere);
    await runTurn(bench, sessionId, { state: "completed" });
    expect(await send(bench, late, sessionId)).toEqual({ ...refused, replayed: true });
    await admit(bench, sessionId);
    assertConsistent(bench.store);
  });

  test("restores a queue over the limit whole, and takes nothing until it is below", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const other = await createSession(bench);
    const first = await fill(bench, sessionId, WAITING_INPUTS_MAX);
    const second = await fill(bench, other, 3);
    // An older daemon with a larger limit would leave this behind.
    bench.store.database.execute(`UPDATE pending_inputs SET session_id = '${sessionId}'`);
    bench.store.database.execute(
      `UPDATE operations SET target = '${sessionId}' WHERE target = '${other}'`,
    );
    await bench.restart();
    const waiting = bench.store.operations.pending(sessionId).map(({ operationId }) => operationId);
    expect(waiting).toEqual([...first, ...second]);
    for (const gone of [waiting[0], waiting[1], waiting[2]]) {
      expect(code(await send(bench, bench.ids.uuidv7(), sessionId))).toBe("queue_full");
      await bench.store.operations.cancelWaiting(sessionId, [gone ?? ""]);
    }
    expect(code(await send(bench, bench.ids.uuidv7(), sessionId))).toBe("queue_full");
    await bench.store.operations.cancelWaiting(sessionId, [waiting[3] ?? ""]);
    expect((await send(bench, bench.ids.uuidv7(), sessionId)).status).toBe(202);
  });

  test("keeps the order of acceptance, whatever the ids say", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const now = bench.clock.now();
    const ids = [now, now - 5000, now + 5000, now - 1].map((time, n) => idAt(time, n));
    for (const operationId of ids) await admit(bench, sessionId, { operationId });
    const order = (): string[] =>
      bench.store.operations.pending(sessionId).map(({ operationId }) => operationId);
    expect(order()).toEqual(ids);
    await bench.restart();
    expect(order()).toEqual(ids);
  });

  test("stores text well-formed", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId, { text: "a\ud83d", clientId: "\udc00" });
    expect(bench.store.operations.pending(sessionId)).toMatchObject([
      { displayText: "a\ufffd", modelText: "a\ufffd", clientId: "\ufffd" },
    ]);
  });

  test("keeps what a skill and a command were given", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId, { kind: "skill", name: "review", text: "it" });
    await admit(bench, sessionId, { kind: "command", name: "rename", text: "new" });
    await admit(bench, sessionId, { kind: "continue", text: "" });
    expect(bench.store.operations.pending(sessionId)).toMatchObject([
      { kind: "skill", source: "skill", name: "review", arguments: "it", modelText: "it" },
      { kind: "command", source: "command", name: "rename", arguments: "new", modelText: null },
      { kind: "continue", name: null, arguments: null, modelText: null },
    ]);
  });
});

describe("Operations: age", () => {
  test("takes an id of seven days, refuses one a millisecond older, and records neither refusal", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const now = bench.clock.now();
    const oldest = idAt(now - OPERATION_AGE_MS_MAX);
    const older = idAt(now - OPERATION_AGE_MS_MAX - 1);
    const newest = idAt(now + OPERATION_FUTURE_MS_MAX);
    const newer = idAt(now + OPERATION_FUTURE_MS_MAX + 1);
    expect((await send(bench, oldest, sessionId)).status).toBe(202);
    expect((await send(bench, newest, sessionId)).status).toBe(202);
    expect(await problem(() => send(bench, older, sessionId))).toBe("operation_expired");
    expect(await problem(() => send(bench, newer, sessionId))).toBe("operation_future");
    expect(bench.store.operations.find(older)).toBeNull();
    await bench.clock.advance(1);
    expect((await send(bench, newer, sessionId)).status).toBe(202);
  });

  test("looks for the receipt before it looks at the age", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const first = await send(bench, operationId, sessionId);
    await bench.clock.advance(30 * OPERATION_AGE_MS_MAX);
    expect(await send(bench, operationId, sessionId)).toEqual({ ...first, replayed: true });
    expect(bench.store.operations.receipt(operationId).deliveryStatus).toBe("pending");
  });

  test("answers for an unknown id by its age", async () => {
    await using bench = openBench();
    const now = bench.clock.now();
    const ask = (timestamp: number): Promise<string> =>
      problem(() => bench.store.operations.receipt(idAt(timestamp)));
    expect(await ask(now)).toBe("operation_unknown");
    expect(await ask(now - OPERATION_AGE_MS_MAX)).toBe("operation_unknown");
    expect(await ask(now - OPERATION_AGE_MS_MAX - 1)).toBe("operation_expired");
    expect(await ask(now + OPERATION_FUTURE_MS_MAX)).toBe("operation_unknown");
    expect(await ask(now + OPERATION_FUTURE_MS_MAX + 1)).toBe("operation_future");
  });
});

describe("Operations.sweep", () => {
  test("removes a receipt when seven days have passed since it settled, not before", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = await admit(bench, sessionId);
    await runTurn(bench, sessionId, { state: "completed" });
    const { operations } = bench.store;
    const { expiresAt } = operations.receipt(operationId);
    expect(expiresAt).toBe(bench.clock.now() + RECEIPT_RETENTION_MS);
    expect(await operations.sweep(expiresAt ?? 0)).toBe(0);
    expect(await operations.sweep((expiresAt ?? 0) + 1)).toBe(2);
    expect(operations.find(operationId)).toBeNull();
  });

  test("keeps a receipt seven days over its id's own time: an id ahead cannot run twice", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const ahead = bench.clock.now() + OPERATION_FUTURE_MS_MAX;
    const operationId = idAt(ahead);
    await admit(bench, sessionId, { operationId });
    await runTurn(bench, sessionId, { state: "completed" });
    const { operations } = bench.store;
    expect(operations.receipt(operationId).expiresAt).toBe(ahead + RECEIPT_RETENTION_MS);
    await bench.clock.advance(RECEIPT_RETENTION_MS + OPERATION_FUTURE_MS_MAX);
    await operations.sweep(bench.clock.now());
    expect((await send(bench, operationId, sessionId)).replayed).toBe(true);
    await bench.clock.advance(1);
    await operations.sweep(bench.clock.now());
    expect(await problem(() => send(bench, operationId, sessionId))).toBe("operation_expired");
  });

  test("never takes an input that waits or whose turn runs", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const running = await admit(bench, sessionId);
    await runTurn(bench, sessionId);
    const waiting = await admit(bench, sessionId);
    await bench.clock.advance(100 * RECEIPT_RETENTION_MS);
    // The creation's receipt goes.
    expect(await bench.store.operations.sweep(bench.clock.now())).toBe(1);
    expect(bench.store.operations.receipt(running).deliveryStatus).toBe("committed");
    expect(bench.store.operations.receipt(waiting).deliveryStatus).toBe("pending");
  });

  test("takes 128 at a time, the longest expired first, and writes nothing when none is left", async () => {
    await using bench = openBench();
    const sessionId = bench.ids.uuidv7();
    const ids: string[] = [];
    for (let n = 0; n <= RECEIPT_SWEEP_BATCH_MAX; n += 1) {
      const operationId = bench.ids.uuidv7();
      ids.push(operationId);
      await send(bench, operationId, sessionId);
      await bench.clock.advance(1);
    }
    const { operations, database } = bench.store;
    await bench.clock.advance(RECEIPT_RETENTION_MS + 1);
    expect(await operations.sweep(bench.clock.now())).toBe(RECEIPT_SWEEP_BATCH_MAX);
    expect(operations.find(ids.at(-1) ?? "")).not.toBeNull();
    expect(operations.find(ids.at(-2) ?? "")).toBeNull();
    expect(await operations.sweep(bench.clock.now())).toBe(1);
    const { writes } = database;
    expect(await operations.sweep(bench.clock.now())).toBe(0);
    expect(database.writes).toBe(writes);
  });

  test("raises a floor that holds when the clock is set back, also after a restart", async () => {
    await using bench = openBench();
    const start = bench.clock.now();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    await admit(bench, sessionId, { operationId });
    await runTurn(bench, sessionId, { state: "completed" });
    await bench.clock.advance(RECEIPT_RETENTION_MS + 1000);
    await bench.store.operations.sweep(bench.clock.now());
    const floor = bench.clock.now() - RECEIPT_RETENTION_MS - 1;
    expect(bench.store.operations.floor()).toBe(floor);
    bench.clock.setWall(start);
    await bench.restart();
    expect(bench.store.operations.floor()).toBe(floor);
    expect(await problem(() => send(bench, operationId, sessionId))).toBe("operation_expired");
    expect(await problem(() => bench.store.operations.receipt(operationId))).toBe(
      "operation_expired",
    );
    expect(await problem(() => send(bench, idAt(floor), sessionId))).toBe("operation_expired");
    // The id is young by this clock, and the refusal does not call it old.
    const refusal = await send(bench, idAt(floor), sessionId).catch((error: Error) => error);
    expect((refusal as Error).message).toContain("while this machine's clock was ahead");
    expect((await send(bench, idAt(floor + 1), sessionId)).status).toBe(202);
  });

  test("never lowers the floor, although the next batch is swept at an earlier time", async () => {
    await using bench = openBench();
    const start = bench.clock.now();
    const sessionId = bench.ids.uuidv7();
    for (let n = 0; n <= RECEIPT_SWEEP_BATCH_MAX; n += 1) {
      await send(bench, bench.ids.uuidv7(), sessionId);
    }
    const late = start + 10 * RECEIPT_RETENTION_MS;
    expect(await bench.store.operations.sweep(late)).toBe(RECEIPT_SWEEP_BATCH_MAX);
    expect(await bench.store.operations.sweep(start + RECEIPT_RETENTION_MS + 1)).toBe(1);
    expect(bench.store.operations.floor()).toBe(late - RECEIPT_RETENTION_MS - 1);
  });

  test("holds for what shares its commit, and for nothing where that commit fails", async () => {
    let failing = false;
    const reached = (name: string): void => {
      if (failing && name === "group.before_commit") throw new Error("planted");
    };
    await using bench = openBench({ points: { reached } });
    const { operations } = bench.store;
    const sessionId = bench.ids.uuidv7();
    await send(bench, bench.ids.uuidv7(), sessionId);
    const late = bench.clock.now() + RECEIPT_RETENTION_MS + 1000;
    const floor = late - RECEIPT_RETENTION_MS - 1;
    const [swept, below, above] = [idAt(floor - 1), idAt(floor), idAt(floor + 1)];
    const sendTogether = (ids: readonly string[]) => [
      problem(() => operations.sweep(late)),
      ...ids.map((id) => problem(() => send(bench, id, sessionId))),
    ];

    failing = true;
    const refused = await Promise.all(sendTogether([above]));
    expect(refused).toEqual(["storage_unavailable", "storage_unavailable"]);
    expect(operations.floor()).toBe(0);
    failing = false;
    expect((await send(bench, swept, sessionId)).replayed).toBe(false);

    const [done, old, fresh] = await Promise.all([
      operations.sweep(late),
      problem(() => send(bench, below, sessionId)),
      send(bench, above, sessionId),
    ]);
    expect([done, old, fresh.replayed]).toEqual([2, "operation_expired", false]);
    expect(operations.floor()).toBe(floor);
  });

  test("refuses nobody for a floor that was rolled back, also where the group is taken apart", async () => {
    const full = Object.assign(new Error("planted"), { code: "SQLITE_FULL" });
    // The commit of all fails, and then the sweep alone.
    const faults = new Map([
      ["group.before_commit", 1],
      ["sweep.after_delete", 2],
    ]);
    let armed = false;
    const reached = (name: string): void => {
      const left = (armed ? (faults.get(name) ?? 0) : 0) - 1;
      if (left >= 0) faults.set(name, left);
      if (left === 0) throw full;
    };
    await using bench = openBench({ points: { reached } });
    const { operations } = bench.store;
    const sessionId = bench.ids.uuidv7();
    const start = bench.clock.now();
    await send(bench, bench.ids.uuidv7(), sessionId);
    const [before, after] = [idAt(start + 10), idAt(start + 20)];
    armed = true;
    const answers = await Promise.all([
      problem(() => send(bench, before, sessionId)),
      problem(() => operations.sweep(start + RECEIPT_RETENTION_MS + 5000)),
      problem(() => send(bench, after, sessionId)),
    ]);
    expect(answers).toEqual(["none", "storage_unavailable", "none"]);
    expect(operations.floor()).toBe(0);
    expect((await send(bench, before, sessionId)).replayed).toBe(true);
  });
});

describe("Operations.cancelWaiting", () => {
  test("cancels what waits, in acceptance order, and forgets its images", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const images = [{ mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(9) }];
    const [a, b, c] = [
      await admit(bench, sessionId, { images }),
      await admit(bench, sessionId, { images }),
      await admit(bench, sessionId, { images }),
    ];
    const { operations } = bench.store;
    const imageIds = operations.pending(sessionId).map((input) => input.images[0]?.imageId ?? "");
    const effects: string[][] = [];
    const done = await operations.cancelWaiting(sessionId, [c, bench.ids.uuidv7(), a], (ids) =>
      effects.push(ids),
    );
    expect(done).toEqual([a, c]);
    expect(effects).toEqual([[a, c]]);
    expect(operations.pending(sessionId).map(({ operationId }) => operationId)).toEqual([b]);
    expect(operations.receipt(a)).toMatchObject({
      deliveryStatus: "cancelled",
      settledAt: bench.clock.now(),
    });
    expect(imageIds.map((id) => bench.store.images.get(sessionId, id) !== null)).toEqual([
      false,
      true,
      false,
    ]);
    assertConsistent(bench.store);
  });

  test("cancels once: ten equal cancels and a retry change nothing more", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = await admit(bench, sessionId);
    const { operations } = bench.store;
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => operations.cancelWaiting(sessionId, [operationId])),
    );
    expect(answers.flat()).toEqual([operationId]);
    const retry = await send(bench, operationId, sessionId);
    expect([retry.status, retry.replayed]).toEqual([202, true]);
    expect(operations.pendingCount(sessionId)).toBe(0);
    expect(operations.receipt(operationId).deliveryStatus).toBe("cancelled");
  });

  test("touches no other session's input and none that is committed", async () => {
    await using bench = openBench();
    const [one, two] = [await createSession(bench), await createSession(bench)];
    const other = await admit(bench, two);
    const consumed = await admit(bench, one);
    await runTurn(bench, one);
    expect(await bench.store.operations.cancelWaiting(one, [other, consumed])).toEqual([]);
    expect(bench.store.operations.receipt(other).deliveryStatus).toBe("pending");
    expect(bench.store.operations.receipt(consumed).deliveryStatus).toBe("committed");
  });
});

describe("Operations: inputs", () => {
  test("shows a waiting, a committed and a settled input, with its turn, over restarts", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const [a, b] = [
      await admit(bench, sessionId),
      await admit(bench, sessionId, { kind: "continue" }),
    ];
    const accepted = { session_id: sessionId, accepted_at: bench.clock.now() };
    expect(bench.store.operations.input(sessionId, a)).toEqual({
      ...accepted,
      id: a,
      kind: "message",
      state: "pending",
    });
    await bench.clock.advance(10);
    const started = bench.clock.now();
    const turnId = await runTurn(bench, sessionId);
    await bench.restart();
    const turn = { id: turnId, members: [a, b], started_at: started };
    const committed = { ...accepted, state: "committed", committed_at: started };
    expect(bench.store.operations.input(sessionId, b)).toEqual({
      ...committed,
      id: b,
      kind: "continuation",
      turn: { ...turn, state: "running" },
    } as never);
    await bench.clock.advance(10);
    const error = { code: "overloaded", message: "Too much" };
    await bench.store.conversation.commit({
      sessionId,
      turnId,
      rows: [],
      end: { state: "failed", error },
    });
    await bench.restart();
    expect(bench.store.operations.input(sessionId, a)).toEqual({
      ...committed,
      id: a,
      kind: "message",
      turn: { ...turn, state: "failed", ended_at: bench.clock.now(), error },
    } as never);
  });

  test("knows an input under its own session only, and no creation", async () => {
    await using bench = openBench();
    const [one, two] = [await createSession(bench), await createSession(bench)];
    const operationId = await admit(bench, one);
    const { operations } = bench.store;
    expect(operations.input(two, operationId)).toBeNull();
    expect(operations.input(one, bench.ids.uuidv7())).toBeNull();
    const creation = bench.store.database
      .query<{ id: string }>("SELECT operation_id AS id FROM operations WHERE target = ?1")
      .get(two);
    expect(operations.input(two, creation?.id ?? "")).toBeNull();
  });

  test("says why an input waits, in the receipt and in the input, until it is consumed", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const first = await admit(bench, sessionId);
    const { operations } = bench.store;
    await operations.setBlocking(sessionId, "workspace_missing");
    const second = await admit(bench, sessionId);
    await bench.restart();
    for (const id of [first, second]) {
      expect(bench.store.operations.receipt(id).blockingReason).toBe("workspace_missing");
      expect(bench.store.operations.input(sessionId, id)?.blocking_reason).toBe(
        "workspace_missing",
      );
    }
    await bench.store.operations.cancelWaiting(sessionId, [second]);
    expect(bench.store.operations.receipt(second)).not.toHaveProperty("blockingReason");
    await runTurn(bench, sessionId);
    expect(bench.store.operations.receipt(first)).not.toHaveProperty("blockingReason");
    expect(bench.store.sessions.get(sessionId)?.blockingReason).toBeNull();
  });

  test("forgets why the queue waited when the last input is cancelled", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = await admit(bench, sessionId);
    await bench.store.operations.setBlocking(sessionId, "model_unavailable");
    await bench.store.operations.cancelWaiting(sessionId, [operationId]);
    expect(bench.store.sessions.get(sessionId)?.blockingReason).toBeNull();
  });

  test("keeps no reason for an empty queue, also where the reason comes after the cancellation", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = await admit(bench, sessionId);
    const { operations } = bench.store;
    await Promise.all([
      operations.cancelWaiting(sessionId, [operationId]),
      operations.setBlocking(sessionId, "model_unavailable"),
    ]);
    const next = await admit(bench, sessionId);
    expect(operations.receipt(next)).not.toHaveProperty("blockingReason");
  });

  test("finds what an id names or owns, in acceptance order, and no rejected one", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const owner = bench.ids.uuidv7();
    const a = await admit(bench, sessionId, { submissionId: owner });
    const own = await admit(bench, sessionId);
    const b = await admit(bench, sessionId, { submissionId: owner, text: "more" });
    const under = await admit(bench, sessionId, { submissionId: own });
    const rejection = { code: "skill_unknown" } as const;
    await bench.store.operations.admit(
      admission({ operationId: bench.ids.uuidv7(), sessionId, submissionId: owner, rejection }),
    );
    const { operations } = bench.store;
    expect(operations.ownedBy(sessionId, owner)).toEqual([a, b]);
    expect(operations.ownedBy(sessionId, a)).toEqual([a]);
    expect(operations.ownedBy(sessionId, own)).toEqual([own, under]);
    expect(operations.ownedBy(await createSession(bench), owner)).toEqual([]);
  });

  test("lists the sessions that have waiting inputs", async () => {
    await using bench = openBench();
    const [one, two] = [await createSession(bench), await createSession(bench)];
    await createSession(bench);
    await fill(bench, two, 3);
    await fill(bench, one, 1);
    expect(bench.store.operations.sessionsWithPending()).toEqual([one, two].toSorted());
  });
});
