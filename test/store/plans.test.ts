import { expect, test } from "bun:test";
import type { Database } from "../../src/store/database.ts";
import { admission, admit, createSession, openBench, runTurn } from "./support.ts";

/*
 * "With 1,000,000 receipts and 10,000 sessions stored: start to first answer within 1.5 times of an empty store" (issue 2).
 * Goal: no statement reads a whole table that grows. Method: everything the store can do is done once, each statement
 * is taken down on its way, and SQLite is asked for its plan.
 */
test("the store reads no growing table as a whole", async () => {
  await using bench = openBench();
  const seen = new Set<string>();
  const watch = (database: Database): void => {
    const query = database.query.bind(database);
    database.query = (sql) => {
      seen.add(sql);
      return query(sql);
    };
  };
  watch(bench.store.database);
  const image = { mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(9) };
  const sessionId = await createSession(bench);
  const child = await createSession(bench, { parentId: sessionId });
  const operationId = await admit(bench, sessionId, { images: [image] });
  await admit(bench, sessionId, { kind: "continue", submissionId: operationId });
  await bench.store.operations.admit(
    admission({ operationId: bench.ids.uuidv7(), sessionId: "none" }),
  );
  const { operations, conversation, sessions, turns, history, images } = bench.store;
  operations.receipt(operationId);
  operations.input(sessionId, operationId);
  operations.ownedBy(sessionId, operationId);
  await operations.setBlocking(sessionId, "x");
  const turnId = await runTurn(bench, sessionId);
  await conversation.commit({
    sessionId,
    turnId,
    rows: [
      { role: "tool_call", toolCallId: "c", toolName: "t", input: 1, messageId: null },
      { role: "compaction", text: "x" },
    ],
    end: { state: "completed" },
  });
  await admit(bench, child);
  await runTurn(bench, child);
  await admit(bench, child);
  await operations.cancelWaiting(
    child,
    operations.pending(child).map((input) => input.operationId),
  );
  await sessions.patch(child, { title: "x" }, null);
  const [listed] = sessions.list({ before: null, limit: 1 });
  sessions.list({ before: { activityAt: listed!.activityAt, sessionId: listed!.id }, limit: 1 });
  turns.latest(sessionId);
  turns.get(turnId);
  history.page(sessionId, { before: null, after: null });
  history.page(sessionId, { before: null, after: null, direction: "forward" });
  const [row] = history.page(sessionId, { before: 2, after: null }).items;
  images.get(sessionId, row?.images?.[0]?.image_id ?? "", "fitted");
  conversation.transcript(sessionId);
  operations.sessionsWithPending();
  conversation.recover();
  await conversation.remove(sessionId, { recursive: true });
  await operations.sweep(bench.clock.now() * 2);

  expect(seen.size).toBeGreaterThan(45);
  // A copy: asking for a plan is a statement too.
  const statements = Array.from(seen);
  const scans: string[] = [];
  for (const sql of statements) {
    if (/^\s*(BEGIN|COMMIT|SAVEPOINT|RELEASE|ROLLBACK|PRAGMA)/.test(sql)) continue;
    for (const { detail } of bench.store.database
      .query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
      .all()) {
      if (!detail.startsWith("SCAN ")) continue;
      // An index in the order that is asked for, read up to a limit; the few that run; what waits; the halves of a page.
      if (/USING (COVERING )?INDEX (sessions_by_activity|turns_running)/.test(detail)) continue;
      if (/^SCAN (pending_inputs|CONSTANT ROW|\(subquery)/.test(detail)) continue;
      scans.push(`${detail} in ${sql}`);
    }
  }
  expect(scans).toEqual([]);
});
