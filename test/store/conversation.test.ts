import { describe, expect, test } from "bun:test";
import type { Cancelled, Consumption } from "../../src/store/conversation.ts";
import { renderRow } from "../../src/store/render.ts";
import type { NewRow, StoredRow } from "../../src/store/rows.ts";
import { Problem } from "../../src/wire/problem.ts";
import { fromCreation } from "../../src/wire/submission.ts";
import {
  admission,
  admit,
  assertConsistent,
  code,
  createSession,
  openBench,
  runTurn,
} from "./support.ts";

/*
 * The transactions on a conversation (operations.md, Ownership and atomicity; contract.md, Pending inputs, turns and
 * cancellation). What a failure in the middle leaves behind is in test/fault/store_io.test.ts.
 */
async function problem(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return "none";
}

function says(text: string, messageId = "m1"): NewRow {
  return { role: "assistant", text, messageId, liveId: `${messageId}:0` };
}

function calls(toolCallId: string): NewRow {
  return {
    role: "tool_call",
    toolCallId,
    toolName: "bash",
    input: { command: "ls" },
    messageId: "m1",
  };
}

function results(toolCallId: string, text = "done"): NewRow {
  return { role: "tool_result", toolCallId, toolName: "bash", text, status: "ok" };
}

function shapes(rows: readonly StoredRow[]): string[] {
  return rows.map(({ rowId, role, text }) => `${rowId} ${role} ${text ?? "-"}`);
}

describe("Conversation.create", () => {
  test("creates a session together with its receipt, which replays after the session is deleted", async () => {
    await using bench = openBench();
    const operationId = bench.ids.uuidv7();
    const sessionId = bench.ids.uuidv7();
    const creation = fromCreation({
      operationId,
      title: "T\ud800",
      settings: { thinking: "low", instructions: "\udc00" },
    });
    const request = {
      creation,
      fingerprint: "same",
      decision: { sessionId, workspace: "/w", model: "a/b" },
    };
    const first = await bench.store.conversation.create(request);
    const now = bench.clock.now();
    expect(first).toEqual({
      status: 201,
      body: JSON.stringify({ operationId, sessionId, status: "accepted", acceptedAt: now }),
      contentType: "application/json",
      location: `/sessions/${sessionId}`,
      replayed: false,
    });
    expect(bench.store.sessions.get(sessionId)).toEqual({
      id: sessionId,
      parentId: null,
      title: "T\ufffd",
      workspace: "/w",
      model: "a/b",
      settings: { thinking: "low", instructions: "\ufffd" },
      phase: "idle",
      blockingReason: null,
      lastRowId: 0,
      compactionRowId: null,
      createdAt: now,
      activityAt: now,
    });
    await bench.store.conversation.remove(sessionId, { recursive: false });
    await bench.restart();
    // A retry is decided anew by whoever asks: another id of a session must not win.
    const decision = { ...request.decision, sessionId: bench.ids.uuidv7() };
    const again = await bench.store.conversation.create({ ...request, decision });
    expect(again).toEqual({ ...first, replayed: true });
    expect(bench.store.sessions.list({ before: null, limit: 10 })).toEqual([]);
    expect(bench.store.operations.receipt(operationId)).toMatchObject({
      kind: "session_create",
      target: sessionId,
      settledAt: now,
    });
    expect(bench.store.operations.receipt(operationId)).not.toHaveProperty("deliveryStatus");
    const changed = bench.store.conversation.create({ ...request, fingerprint: "other" });
    expect(await problem(changed)).toBe("operation_conflict");
  });

  test("records a rejection without a target", async () => {
    await using bench = openBench();
    const operationId = bench.ids.uuidv7();
    const request = {
      creation: fromCreation({ operationId }),
      fingerprint: "same",
      decision: { rejection: { code: "workspace_invalid", detail: "Not a directory" } },
    } as const;
    const first = await bench.store.conversation.create(request);
    expect([first.status, code(first), first.location]).toEqual([422, "workspace_invalid", null]);
    const decision = { sessionId: bench.ids.uuidv7(), workspace: "/w", model: "a/b" };
    expect(await bench.store.conversation.create({ ...request, decision })).toEqual({
      ...first,
      replayed: true,
    });
    expect(bench.store.operations.receipt(operationId).target).toBeNull();
  });

  test("rejects a child of a session that is not there, on record", async () => {
    await using bench = openBench();
    const parentId = await createSession(bench);
    const child = await createSession(bench, { parentId });
    expect(bench.store.sessions.get(child)?.parentId).toBe(parentId);
    const operationId = bench.ids.uuidv7();
    const reply = await bench.store.conversation.create({
      creation: fromCreation({ operationId, parent_id: bench.ids.uuidv7() }),
      fingerprint: "x",
      decision: { sessionId: bench.ids.uuidv7(), workspace: "/w", model: "a/b" },
    });
    expect([reply.status, code(reply)]).toEqual([422, "parent_invalid"]);
    expect(bench.store.operations.receipt(operationId).admission).toBe("rejected");
  });

  test("takes one of two creations under one id that come together", async () => {
    await using bench = openBench();
    const operationId = bench.ids.uuidv7();
    const replies = await Promise.all(
      [bench.ids.uuidv7(), bench.ids.uuidv7()].map((sessionId) =>
        bench.store.conversation.create({
          creation: fromCreation({ operationId }),
          fingerprint: "x",
          decision: { sessionId, workspace: "/w", model: "a/b" },
        }),
      ),
    );
    expect(replies.map(({ replayed }) => replayed)).toEqual([false, true]);
    expect(replies[0]?.body).toBe(replies[1]?.body ?? "");
    expect(bench.store.sessions.list({ before: null, limit: 10 })).toHaveLength(1);
  });
});

describe("Conversation.consume", () => {
  test("moves what waits into the transcript: rows, display, images, delivery, membership", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const original = new Uint8Array(10).fill(1);
    const fitted = new Uint8Array(5).fill(2);
    const image = { mimeType: "image/png", width: 30, height: 40, bytes: original };
    const message = await admit(bench, sessionId, {
      text: "look",
      clientId: "echo",
      images: [image, { ...image, width: 50 }],
    });
    const again = await admit(bench, sessionId, { kind: "continue", clientId: "go on" });
    const skill = await admit(bench, sessionId, { kind: "skill", name: "review", text: "it" });
    await bench.clock.advance(5);
    const effects: Consumption[] = [];
    const turnId = bench.ids.uuidv7();
    const done = await bench.store.conversation.consume(
      {
        sessionId,
        turnId,
        startsTurn: true,
        inputs: [
          { operationId: message, fittings: [{ mimeType: "image/webp", bytes: fitted }, null] },
          { operationId: again, fittings: [] },
          { operationId: skill, fittings: [] },
        ],
      },
      (value) => effects.push(value),
    );
    const now = bench.clock.now();
    expect(effects).toEqual([done]);
    expect(done.consumed).toEqual([message, again, skill]);
    expect(done.turn).toEqual({
      id: turnId,
      state: "running",
      members: [message, again, skill],
      started_at: now,
    });
    expect(shapes(done.rows)).toEqual(["1 user look", "2 continuation -", "3 user it"]);
    const [first, second, third] = done.rows.map(renderRow);
    const [imageId, otherId] = first?.images?.map(({ image_id }) => image_id) ?? [];
    const size = { mime_type: "image/png", height: 40, bytes: 10 };
    expect(first).toEqual({
      id: 1,
      role: "user",
      display_text: "look",
      source: "user",
      operation_id: message,
      client_id: "echo",
      turn_id: turnId,
      images: [
        { ...size, width: 30, image_id: imageId ?? "" },
        { ...size, width: 50, image_id: otherId ?? "" },
      ],
      created_at: now,
    });
    expect(second).toEqual({
      id: 2,
      role: "continuation",
      operation_id: again,
      client_id: "go on",
      turn_id: turnId,
      created_at: now,
    });
    expect(third).toMatchObject({
      display_text: "/review it",
      source: "skill",
      operation_id: skill,
    });
    const { images } = bench.store;
    const bytes = (id: string | undefined, variant: "original" | "fitted") =>
      images.get(sessionId, id ?? "", variant);
    expect(bytes(imageId, "original")).toEqual({ mimeType: "image/png", bytes: original });
    expect(bytes(imageId, "fitted")).toEqual({ mimeType: "image/webp", bytes: fitted });
    expect(bytes(otherId, "fitted")).toEqual({ mimeType: "image/png", bytes: original });
    expect(bench.store.operations.pendingCount(sessionId)).toBe(0);
    expect(bench.store.operations.receipt(message)).toMatchObject({ deliveryStatus: "committed" });
    expect(bench.store.operations.receipt(message)).not.toHaveProperty("settledAt");
    expect(bench.store.sessions.get(sessionId)).toMatchObject({
      phase: "running",
      activityAt: now,
      lastRowId: 3,
    });
    await bench.restart();
    expect(bench.store.conversation.transcript(sessionId)).toEqual([...done.rows]);
    assertConsistent(bench.store);
  });

  test("keeps no image content, image reference or model text in the display metadata", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const bytes = new TextEncoder().encode("CONTENT");
    const request = admission({
      operationId: bench.ids.uuidv7(),
      sessionId,
      text: "DISPLAY",
      images: [{ mimeType: "image/png", width: 1, height: 2, bytes }],
    });
    await bench.store.operations.admit({
      ...request,
      prepared: { ...request.prepared!, modelText: "MODEL" },
    });
    await runTurn(bench, sessionId);
    const [row] = bench.store.conversation.transcript(sessionId);
    expect(row?.text).toBe("MODEL");
    const stored = JSON.stringify(bench.store.database.query("SELECT * FROM input_display").all());
    expect(stored).toContain("DISPLAY");
    expect(stored).toContain('\\"width\\":1');
    for (const secret of ["MODEL", "CONTENT", row?.display?.images[0]?.image_id ?? "none"]) {
      expect(stored).not.toContain(secret);
    }
    expect(JSON.stringify(renderRow(row!))).not.toContain("MODEL");
  });

  test("lets queued input join the running turn", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const first = await admit(bench, sessionId);
    const turnId = await runTurn(bench, sessionId);
    const second = await admit(bench, sessionId, { text: "and this" });
    const done = await bench.store.conversation.consume({
      sessionId,
      turnId,
      startsTurn: false,
      inputs: [{ operationId: second, fittings: [] }],
    });
    expect(done.turn?.members).toEqual([first, second]);
    expect(shapes(done.rows)).toEqual(["2 user and this"]);
  });

  test("leaves out what was cancelled meanwhile, and writes nothing when nothing is left", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const [a, b] = [await admit(bench, sessionId), await admit(bench, sessionId)];
    const turnId = bench.ids.uuidv7();
    const inputs = [a, b].map((operationId) => ({ operationId, fittings: [] }));
    const request = { sessionId, turnId, startsTurn: true, inputs };
    // Both are asked for in one turn of the event loop, so they share a transaction.
    const [, done] = await Promise.all([
      bench.store.operations.cancelWaiting(sessionId, [a]),
      bench.store.conversation.consume(request),
    ]);
    expect(done.consumed).toEqual([b]);
    expect(done.turn?.members).toEqual([b]);
    const late = await bench.store.conversation.consume({
      ...request,
      turnId: bench.ids.uuidv7(),
    });
    expect(late).toEqual({ consumed: [], rows: [], turn: null });
    expect(bench.store.turns.latest(sessionId)?.id).toBe(turnId);
    assertConsistent(bench.store);
  });

  test("refuses to pass over the head of the queue", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const head = await admit(bench, sessionId);
    const behind = await admit(bench, sessionId);
    const jump = bench.store.conversation.consume({
      sessionId,
      turnId: bench.ids.uuidv7(),
      startsTurn: true,
      inputs: [{ operationId: behind, fittings: [] }],
    });
    expect(await problem(jump)).toBe("storage_unavailable");
    const waiting = bench.store.operations.pending(sessionId);
    expect(waiting.map(({ operationId }) => operationId)).toEqual([head, behind]);
  });

  test("runs one turn of a session at a time", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId);
    const first = await runTurn(bench, sessionId);
    await admit(bench, sessionId);
    expect(await problem(runTurn(bench, sessionId))).toBe("storage_unavailable");
    expect(bench.store.turns.latest(sessionId)?.id).toBe(first);
  });

  test("executes a command in one transaction: its row, its note, the change, the end of its turn", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = await admit(bench, sessionId, { kind: "command", text: "New" });
    const turnId = bench.ids.uuidv7();
    const { writes } = bench.store.database;
    const done = await bench.store.conversation.consume({
      sessionId,
      turnId,
      startsTurn: true,
      inputs: [{ operationId, fittings: [] }],
      rows: [{ role: "note", text: "Renamed" }],
      session: { title: "New" },
      end: { state: "completed" },
    });
    expect(bench.store.database.writes - writes).toBe(1);
    expect(shapes(done.rows)).toEqual(["1 user -", "2 note Renamed"]);
    expect(renderRow(done.rows[0]!)).toMatchObject({
      source: "command",
      display_text: "/rename New",
    });
    expect(done.turn).toMatchObject({ state: "completed", members: [operationId] });
    expect(bench.store.sessions.get(sessionId)).toMatchObject({ title: "New", phase: "idle" });
    expect(bench.store.operations.receipt(operationId).settledAt).toBe(bench.clock.now());
    assertConsistent(bench.store);
  });

  test("starts a turn without inputs, such as a compaction", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const turnId = await runTurn(bench, sessionId);
    expect(bench.store.turns.get(turnId)).toMatchObject({ state: "running", members: [] });
  });

  test("answers 404 where the session has gone", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId);
    await bench.store.conversation.remove(sessionId, { recursive: false });
    expect(await problem(runTurn(bench, sessionId))).toBe("session_not_found");
  });
});

describe("Conversation.commit", () => {
  test("appends rows of every kind, as a later read finds them", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId);
    const turnId = await runTurn(bench, sessionId);
    const rows: NewRow[] = [
      {
        role: "thinking",
        text: "hm\ud800",
        messageId: "m1",
        liveId: "m1:0",
        metadata: { signature: "s\udc00" },
      },
      says("hello"),
      {
        role: "tool_call",
        toolCallId: "c1",
        toolName: "edit",
        input: "not json \ud800",
        messageId: "m1",
        metadata: undefined,
      },
      {
        role: "tool_call",
        toolCallId: "c2",
        toolName: "bash",
        input: { a: [1, null, "x"] },
        messageId: "m1",
      },
      { role: "tool_result", toolCallId: "c1", toolName: "edit", text: "bad", status: "error" },
      results("c2"),
      { role: "note", text: "a note", metadata: { usage: 3 } },
    ];
    const done = await bench.store.conversation.commit({ sessionId, turnId, rows });
    expect(done.turn?.state).toBe("running");
    expect(done.rows.map(({ rowId }) => rowId)).toEqual([2, 3, 4, 5, 6, 7, 8]);
    await bench.restart();
    expect(bench.store.conversation.transcript(sessionId).slice(1)).toEqual([...done.rows]);
    expect(done.rows[0]).toMatchObject({ text: "hm\ufffd", metadata: { signature: "s\ufffd" } });
    expect(done.rows[2]?.toolInput).toBe("not json \ufffd");
    expect(renderRow(done.rows[3]!)).toEqual({
      id: 5,
      role: "tool_call",
      turn_id: turnId,
      message_id: "m1",
      tool_call_id: "c2",
      tool_name: "bash",
      tool_input: { a: [1, null, "x"] },
      created_at: bench.clock.now(),
    });
    expect(renderRow(done.rows[4]!)).toMatchObject({ text: "bad", tool_status: "error" });
    expect(JSON.stringify(done.rows.map(renderRow))).not.toContain("signature");
  });

  test.each([
    ["completed", "idle"],
    ["failed", "idle"],
    ["interrupted", "interrupted"],
  ] as const)(
    "ends a turn as %s with its last rows, settles its members, leaves the session %s",
    async (state, phase) => {
      await using bench = openBench();
      const sessionId = await createSession(bench);
      const [a, b] = [await admit(bench, sessionId), await admit(bench, sessionId)];
      const turnId = await runTurn(bench, sessionId);
      const waiting = await admit(bench, sessionId);
      await bench.clock.advance(7);
      const { writes } = bench.store.database;
      const done = await bench.store.conversation.commit({
        sessionId,
        turnId,
        rows: [says("bye")],
        end: { state },
      });
      expect(bench.store.database.writes - writes).toBe(1);
      expect(done.turn).toMatchObject({ state, members: [a, b], ended_at: bench.clock.now() });
      for (const member of [a, b]) {
        expect(bench.store.operations.receipt(member).settledAt).toBe(bench.clock.now());
      }
      expect(bench.store.operations.receipt(waiting)).not.toHaveProperty("settledAt");
      expect(bench.store.sessions.get(sessionId)).toMatchObject({
        phase,
        activityAt: bench.clock.now(),
      });
      const after = bench.store.conversation.commit({ sessionId, turnId, rows: [says("late")] });
      expect(await problem(after)).toBe("storage_unavailable");
      await runTurn(bench, sessionId);
      assertConsistent(bench.store);
    },
  );

  test("gives open tool calls an interrupted result when the turn ends, the others none", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    // An open call of another turn is not this turn's business, even under the same id.
    await admit(bench, sessionId);
    const before = await runTurn(bench, sessionId);
    await bench.store.conversation.commit({
      sessionId,
      turnId: before,
      rows: [calls("c2")],
      end: { state: "interrupted" },
    });
    const turnId = await runTurn(bench, sessionId);
    await bench.store.conversation.commit({
      sessionId,
      turnId,
      rows: [calls("c1"), calls("c2"), calls("c3"), results("c1")],
    });
    const done = await bench.store.conversation.commit({
      sessionId,
      turnId,
      rows: [results("c3")],
      end: { state: "interrupted" },
    });
    expect(
      done.rows.map(({ role, toolCallId, toolStatus }) => [role, toolCallId, toolStatus]),
    ).toEqual([
      ["tool_result", "c3", "ok"],
      ["tool_result", "c2", "interrupted"],
    ]);
  });

  test("starts the model's transcript at the last compaction, and keeps all of the history", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    await admit(bench, sessionId, { text: "one" });
    const turnId = await runTurn(bench, sessionId);
    const rows: NewRow[] = [says("two"), { role: "compaction", text: "sum" }, says("three")];
    await bench.store.conversation.commit({ sessionId, turnId, rows });
    await bench.restart();
    const kept = bench.store.conversation.transcript(sessionId);
    expect(shapes(kept)).toEqual(["3 compaction sum", "4 assistant three"]);
    const history = bench.store.history.page(sessionId, { before: null, after: null });
    expect(history.items.map(({ id }) => id)).toEqual([1, 2, 3, 4]);
  });

  test("takes a note outside of a turn, which is no activity", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const created = bench.clock.now();
    await bench.clock.advance(5);
    const done = await bench.store.conversation.commit({
      sessionId,
      turnId: null,
      rows: [{ role: "note", text: "hello" }],
      session: { model: "other/model" },
    });
    expect(done.turn).toBeNull();
    expect(bench.store.sessions.get(sessionId)).toMatchObject({
      model: "other/model",
      activityAt: created,
      phase: "idle",
    });
  });
});

describe("Conversation.interrupt", () => {
  test("cancels everything that waits in each of the sessions, and no committed input", async () => {
    await using bench = openBench();
    const [one, two] = [await createSession(bench), await createSession(bench)];
    const committed = await admit(bench, one);
    await runTurn(bench, one);
    const a = await admit(bench, one);
    const b = await admit(bench, two);
    const c = await admit(bench, one);
    const gone = bench.ids.uuidv7();
    const effects: Cancelled[][] = [];
    const done = await bench.store.conversation.interrupt([one, two, gone], (value) =>
      effects.push(value),
    );
    expect(done).toEqual([
      { sessionId: one, cancelled: [a, c] },
      { sessionId: two, cancelled: [b] },
      { sessionId: gone, cancelled: [] },
    ]);
    expect(effects).toEqual([done]);
    expect(bench.store.operations.receipt(committed).deliveryStatus).toBe("committed");
    expect(bench.store.turns.latest(one)?.state).toBe("running");
    assertConsistent(bench.store);
  });
});

describe("Conversation.remove", () => {
  test("cancels what waits, settles what ran, and takes everything of the session but its receipts", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const images = [{ mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(9) }];
    const settled = await admit(bench, sessionId);
    await runTurn(bench, sessionId, { state: "completed" });
    const settledAt = bench.clock.now();
    const running = await admit(bench, sessionId, { images });
    await admit(bench, sessionId, { kind: "continue" });
    const turnId = await runTurn(bench, sessionId);
    await bench.store.conversation.commit({ sessionId, turnId, rows: [says("x"), calls("c")] });
    const waiting = await admit(bench, sessionId, { images });
    await bench.clock.advance(3);
    const done = await bench.store.conversation.remove(sessionId, { recursive: false });
    expect(done).toEqual([{ sessionId, cancelled: [waiting] }]);
    const { operations, database } = bench.store;
    expect(operations.receipt(settled)).toMatchObject({ deliveryStatus: "committed", settledAt });
    expect(operations.receipt(running)).toMatchObject({
      deliveryStatus: "committed",
      settledAt: bench.clock.now(),
    });
    expect(operations.receipt(waiting)).toMatchObject({
      deliveryStatus: "cancelled",
      settledAt: bench.clock.now(),
    });
    for (const table of [
      "sessions",
      "pending_inputs",
      "turns",
      "turn_members",
      "transcript_rows",
      "input_display",
      "continuation_markers",
      "images",
      "image_contents",
    ]) {
      expect([table, database.query(`SELECT count(*) AS n FROM ${table}`).get()]).toEqual([
        table,
        { n: 0 },
      ]);
    }
    expect(operations.input(sessionId, running)).toMatchObject({ state: "committed" });
    expect(operations.input(sessionId, running)).not.toHaveProperty("turn");
    assertConsistent(bench.store);
    // A retry resurrects nothing.
    const retry = await operations.admit(admission({ operationId: waiting, sessionId, images }));
    expect([retry.status, retry.replayed]).toEqual([202, true]);
    const fresh = await operations.admit(admission({ operationId: bench.ids.uuidv7(), sessionId }));
    expect(code(fresh)).toBe("session_not_found");
  });

  test("takes children along only when it is told to", async () => {
    await using bench = openBench();
    const root = await createSession(bench);
    const child = await createSession(bench, { parentId: root });
    const grandchild = await createSession(bench, { parentId: child });
    const other = await createSession(bench);
    const waiting = await admit(bench, grandchild);
    const refused = bench.store.conversation.remove(root, { recursive: false });
    expect(await problem(refused)).toBe("session_has_children");
    expect(bench.store.operations.receipt(waiting).deliveryStatus).toBe("pending");
    expect(await bench.store.conversation.remove(root, { recursive: true })).toEqual([
      { sessionId: grandchild, cancelled: [waiting] },
      { sessionId: child, cancelled: [] },
      { sessionId: root, cancelled: [] },
    ]);
    const left = bench.store.sessions.list({ before: null, limit: 10 });
    expect(left.map(({ id }) => id)).toEqual([other]);
    expect(await problem(bench.store.conversation.remove(root, { recursive: true }))).toBe(
      "session_not_found",
    );
  });

  test("leaves no session to an admission or a child that came together with it", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const operationId = bench.ids.uuidv7();
    const [, late] = await Promise.all([
      bench.store.conversation.remove(sessionId, { recursive: false }),
      bench.store.operations.admit(admission({ operationId, sessionId })),
    ]);
    expect(code(late)).toBe("session_not_found");
    expect((await createSession(bench, { parentId: sessionId }).catch(String)) as string).toContain(
      "parent_invalid",
    );
  });
});

describe("Conversation.recover", () => {
  test("interrupts what a dead daemon left running, and keeps what waits, once", async () => {
    await using bench = openBench();
    const [broken, whole] = [await createSession(bench), await createSession(bench)];
    const member = await admit(bench, broken);
    const turnId = await runTurn(bench, broken);
    await bench.store.conversation.commit({
      sessionId: broken,
      turnId,
      rows: [says("half"), calls("c1"), calls("c2"), results("c1")],
    });
    const activityAt = bench.clock.now();
    await admit(bench, whole);
    await runTurn(bench, whole, { state: "completed" });
    const waiting = [await admit(bench, broken), await admit(bench, broken)];
    await bench.clock.advance(60_000);
    await bench.restart();
    expect(bench.store.conversation.recover()).toEqual({
      interrupted: [{ sessionId: broken, turnId }],
    });
    expect(bench.store.turns.get(turnId)).toMatchObject({
      state: "interrupted",
      members: [member],
      ended_at: bench.clock.now(),
      error: { code: "daemon_died" },
    });
    expect(bench.store.operations.receipt(member).settledAt).toBe(bench.clock.now());
    expect(bench.store.sessions.get(broken)).toMatchObject({ phase: "interrupted", activityAt });
    expect(bench.store.sessions.get(whole)?.phase).toBe("idle");
    const rows = bench.store.conversation.transcript(broken);
    expect(shapes(rows).slice(1)).toEqual([
      "2 assistant half",
      "3 tool_call -",
      "4 tool_call -",
      "5 tool_result done",
      "6 tool_result Interrupted before it finished.",
    ]);
    expect(rows.at(-1)).toMatchObject({ toolCallId: "c2", toolStatus: "interrupted", turnId });
    expect(bench.store.operations.sessionsWithPending()).toEqual([broken]);
    const queue = bench.store.operations.pending(broken).map(({ operationId }) => operationId);
    expect(queue).toEqual(waiting);
    assertConsistent(bench.store);
    const { writes } = bench.store.database;
    expect(bench.store.conversation.recover()).toEqual({ interrupted: [] });
    expect(bench.store.database.writes - writes).toBeLessThanOrEqual(1);
    await runTurn(bench, broken, { state: "completed" });
    expect(bench.store.sessions.get(broken)?.phase).toBe("idle");
  });
});
