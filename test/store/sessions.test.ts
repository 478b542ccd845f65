import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type SessionCursor, sessionEtag } from "../../src/store/sessions.ts";
import { Problem } from "../../src/wire/problem.ts";
import { admit, type Bench, createSession, openBench, runTurn } from "./support.ts";

async function problem(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
  return "none";
}

/** Walks the list page by page. */
function walk(bench: Bench, limit: number): string[] {
  const ids: string[] = [];
  let before: SessionCursor | null = null;
  for (;;) {
    const page = bench.store.sessions.list({ before, limit });
    ids.push(...page.map(({ id }) => id));
    const last = page.at(-1);
    if (last === undefined) return ids;
    before = { activityAt: last.activityAt, sessionId: last.id };
  }
}

describe("SessionTable.list", () => {
  test("shows the newest activity first, with how many inputs wait", async () => {
    await using bench = openBench();
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      ids.push(await createSession(bench));
      await bench.clock.advance(1);
    }
    const [a, b, c] = ids as [string, string, string];
    await admit(bench, a);
    await admit(bench, a);
    expect(walk(bench, 10)).toEqual([c, b, a]);
    await runTurn(bench, b, { state: "completed" });
    expect(walk(bench, 10)).toEqual([b, c, a]);
    const listed = bench.store.sessions.list({ before: null, limit: 10 });
    expect(listed.map(({ pendingCount }) => pendingCount)).toEqual([0, 0, 2]);
    expect(listed[2]).toEqual({ ...bench.store.sessions.get(a)!, pendingCount: 2 });
  });

  test("gives each session once over pages of any size, also with equal times", async () => {
    await using bench = openBench();
    const steps = fc.array(fc.nat(1), { minLength: 0, maxLength: 12 });
    for (const step of fc.sample(steps, { numRuns: 1, seed: 7 })[0] ?? []) {
      await createSession(bench);
      await bench.clock.advance(step);
    }
    for (let n = 0; n < 9; n += 1) await createSession(bench);
    const all = walk(bench, 1000);
    expect(new Set(all).size).toBe(all.length);
    for (const limit of [1, 2, 3, 5]) expect(walk(bench, limit)).toEqual(all);
  });

  test("reads an index, never the whole table", async () => {
    await using bench = openBench();
    const plan = bench.store.database
      .query<{ detail: string }>(
        `EXPLAIN QUERY PLAN SELECT title FROM sessions WHERE (activity_at, session_id) < (1, 'a')
         ORDER BY activity_at DESC, session_id DESC LIMIT 5`,
      )
      .all()
      .map(({ detail }) => detail);
    expect(plan).toEqual([expect.stringContaining("USING INDEX sessions_by_activity")]);
  });
});

describe("SessionTable.family", () => {
  test("has parents before children, and nothing of others", async () => {
    await using bench = openBench();
    const root = await createSession(bench);
    const a = await createSession(bench, { parentId: root });
    await bench.clock.advance(1);
    const b = await createSession(bench, { parentId: root });
    const c = await createSession(bench, { parentId: a });
    await createSession(bench);
    expect(bench.store.sessions.family(root)).toEqual([root, a, b, c]);
    expect(bench.store.sessions.family(a)).toEqual([a, c]);
    expect(bench.store.sessions.children(root)).toEqual([a, b]);
    expect(bench.store.sessions.family(bench.ids.uuidv7())).toEqual([]);
  });
});

describe("SessionTable.patch", () => {
  test("changes what is given and leaves the rest", async () => {
    await using bench = openBench();
    const id = await createSession(bench, { title: "old" });
    const { sessions } = bench.store;
    const before = sessions.get(id)!;
    const seen: unknown[] = [];
    await sessions.patch(id, { model: "x/y" }, null, (record) => seen.push(record));
    expect(sessions.get(id)).toEqual({ ...before, model: "x/y" });
    expect(seen).toEqual([sessions.get(id)]);
    await sessions.patch(id, { title: null, settings: { thinking: "high" } }, null);
    await sessions.patch(id, { title: "lone \ud800" }, null);
    expect(sessions.get(id)).toMatchObject({
      title: "lone \ufffd",
      model: "x/y",
      settings: { thinking: "high" },
    });
    await sessions.patch(id, { settings: { max_output_tokens: 5 } }, null);
    expect(sessions.get(id)?.settings).toEqual({ max_output_tokens: 5 });
  });

  test("holds If-Match, and lets one of two that read the same win", async () => {
    await using bench = openBench();
    const id = await createSession(bench);
    const { sessions } = bench.store;
    const etag = sessionEtag(sessions.get(id)!);
    expect(etag).toMatch(/^"[0-9a-f]{32}"$/);
    const results = await Promise.allSettled([
      sessions.patch(id, { title: "one" }, etag),
      sessions.patch(id, { title: "two" }, etag),
    ]);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    expect(results[1]).toMatchObject({ reason: { code: "precondition_failed" } });
    expect(sessions.get(id)?.title).toBe("one");
    const now = sessionEtag(sessions.get(id)!);
    expect(now).not.toBe(etag);
    expect(await problem(sessions.patch(id, { title: "x" }, `W/${now}`))).toBe(
      "precondition_failed",
    );
    await sessions.patch(id, { title: "a" }, `"other", ${now}`);
    await sessions.patch(id, { title: "b" }, "*");
    expect(await problem(sessions.patch(bench.ids.uuidv7(), {}, "*"))).toBe("session_not_found");
  });

  test("has a tag that only the writable part moves", async () => {
    await using bench = openBench();
    const id = await createSession(bench);
    const { sessions } = bench.store;
    const etag = sessionEtag(sessions.get(id)!);
    await admit(bench, id);
    await runTurn(bench, id, { state: "completed" });
    expect(sessionEtag(sessions.get(id)!)).toBe(etag);
    await bench.restart();
    expect(sessionEtag(bench.store.sessions.get(id)!)).toBe(etag);
    const record = bench.store.sessions.get(id)!;
    const one = { ...record, settings: { thinking: "low", max_output_tokens: 1 } as const };
    const two = { ...record, settings: { max_output_tokens: 1, thinking: "low" } as const };
    expect(sessionEtag(one)).toBe(sessionEtag(two));
  });
});
