import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, statfsSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createIds } from "../../src/base/ids.ts";
import { silentLog } from "../../src/base/log.ts";
import type { FaultPoints } from "../../src/store/database.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { StoreOpenError } from "../../src/store/store_open_error.ts";
import { Problem } from "../../src/wire/problem.ts";
import { fromCreation } from "../../src/wire/submission.ts";
import {
  admission,
  admit,
  assertConsistent,
  type Bench,
  createSession,
  openBench,
  runTurn,
} from "../store/support.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/*
 * Goal: "A failed one (disk full, constraint, bug) answers 503 alone, and leaves neither receipt nor mutation" (issue 2);
 * "A failed consumption transaction leaves the input pending and appends no transcript input" (operations.md).
 * Method: the disk gets full at the n-th page, a bug strikes at the n-th named point, for n = 0, 1, … until the
 * transaction gets through (SQLite, "How SQLite Is Tested" §3.1); before that everything is as it was, each time.
 */
const LARGE = 60_000;

/** All that the database holds, as text. */
function dump(store: Store): string {
  const tables = store.database
    .query<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    .all();
  const rows = tables.map(({ name }) => store.database.query(`SELECT * FROM ${name}`).all());
  return JSON.stringify(rows, (_key, value: unknown) =>
    value instanceof Uint8Array ? Bun.hash(value).toString() : value,
  );
}

async function refusal(promise: Promise<unknown>): Promise<Problem | null> {
  try {
    await promise;
    return null;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}

/** A transaction on a prepared bench, large enough to need pages. */
interface Case {
  readonly name: string;
  prepare(bench: Bench): Promise<() => Promise<unknown>>;
}

const CASES: readonly Case[] = [
  {
    name: "a creation",
    prepare: async (bench) => {
      const creation = fromCreation({
        operationId: bench.ids.uuidv7(),
        settings: { instructions: "x".repeat(LARGE) },
      });
      const decision = { sessionId: bench.ids.uuidv7(), workspace: "/w", model: "m/m" };
      return () => bench.store.conversation.create({ creation, fingerprint: "x", decision });
    },
  },
  {
    name: "an admission with an image",
    prepare: async (bench) => {
      const sessionId = await createSession(bench);
      const image = { mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(LARGE) };
      const operationId = bench.ids.uuidv7();
      return () =>
        bench.store.operations.admit(admission({ operationId, sessionId, images: [image] }));
    },
  },
  {
    name: "a consumption",
    prepare: async (bench) => {
      const sessionId = await createSession(bench);
      const image = { mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(10) };
      const first = await admit(bench, sessionId, { text: "x".repeat(LARGE), images: [image] });
      const second = await admit(bench, sessionId, { kind: "continue" });
      const fitted = { mimeType: "image/png", bytes: new Uint8Array(LARGE) };
      const turnId = bench.ids.uuidv7();
      return () =>
        bench.store.conversation.consume({
          sessionId,
          turnId,
          startsTurn: true,
          inputs: [
            { operationId: first, fittings: [fitted] },
            { operationId: second, fittings: [] },
          ],
        });
    },
  },
  {
    name: "a commit that ends its turn",
    prepare: async (bench) => {
      const sessionId = await createSession(bench);
      await admit(bench, sessionId);
      const turnId = await runTurn(bench, sessionId);
      const text = "x".repeat(LARGE);
      return () =>
        bench.store.conversation.commit({
          sessionId,
          turnId,
          rows: [
            { role: "assistant", text, messageId: "m", liveId: null },
            { role: "tool_call", toolCallId: "c", toolName: "t", input: text, messageId: "m" },
          ],
          session: { title: "new" },
          end: { state: "completed" },
        });
    },
  },
  {
    name: "a removal",
    prepare: async (bench) => {
      const sessionId = await createSession(bench);
      await admit(bench, sessionId);
      await runTurn(bench, sessionId);
      await admit(bench, sessionId);
      return () => bench.store.conversation.remove(sessionId, { recursive: true });
    },
  },
];

describe.each(CASES.map((made) => [made.name, made] as const))("%s", (_name, made) => {
  test("leaves nothing while the disk is full, and gets through when it is not", async () => {
    await using bench = openBench();
    const run = await made.prepare(bench);
    const { database } = bench.store;
    const pages = database.query<{ page_count: number }>("PRAGMA page_count").get()!.page_count;
    const before = dump(bench.store);
    let failures = 0;
    for (let more = 0; ; more += 1) {
      database.execute(`PRAGMA max_page_count = ${pages + more}`);
      const refused = await refusal(run());
      if (refused === null) break;
      failures += 1;
      expect(refused.code).toBe("storage_unavailable");
      expect(dump(bench.store)).toBe(before);
    }
    // A removal needs no room; the others do.
    if (made.name !== "a removal") expect(failures).toBeGreaterThan(5);
    database.execute("PRAGMA max_page_count = 1000000");
    assertConsistent(bench.store);
  });

  test("leaves nothing when a bug strikes at any point of it, and takes no neighbour along", async () => {
    let strikeAt = Number.POSITIVE_INFINITY;
    const points: FaultPoints = {
      reached(name) {
        // The points of the group belong to all of it.
        if (name.startsWith("group.")) return;
        strikeAt -= 1;
        if (strikeAt === 0) throw new Error(`a bug at ${name}`);
      },
    };
    await using bench = openBench({ points });
    const neighbour = await createSession(bench);
    const run = await made.prepare(bench);
    const before = bench.store.operations.pendingCount(neighbour);
    let struck = 0;
    for (let n = 1; ; n += 1) {
      const untouched = dump(bench.store);
      strikeAt = n;
      const running = refusal(run());
      const retitle = bench.store.sessions.patch(neighbour, { title: `title ${n}` }, null);
      const refused = await running;
      await retitle;
      strikeAt = Number.POSITIVE_INFINITY;
      expect(bench.store.sessions.get(neighbour)?.title).toBe(`title ${n}`);
      if (refused === null) break;
      struck += 1;
      expect(refused.code).toBe("storage_unavailable");
      expect(String(refused.cause)).toContain("a bug at");
      const title = n === 1 ? null : `title ${n - 1}`;
      await bench.store.sessions.patch(neighbour, { title }, null);
      expect(dump(bench.store)).toBe(untouched);
      await bench.store.sessions.patch(neighbour, { title: `title ${n}` }, null);
    }
    expect(struck).toBeGreaterThan(0);
    expect(bench.store.operations.pendingCount(neighbour)).toBe(before);
    assertConsistent(bench.store);
  });
});

describe("admissions in one group commit", () => {
  test("answer 202 beside one that a full disk refuses, which then has no receipt", async () => {
    await using bench = openBench();
    const sessionId = await createSession(bench);
    const { database, operations } = bench.store;
    const pages = database.query<{ page_count: number }>("PRAGMA page_count").get()!.page_count;
    database.execute(`PRAGMA max_page_count = ${pages + 8}`);
    const image = { mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(LARGE) };
    const sent = Array.from({ length: 9 }, (_, n) =>
      admission({
        operationId: bench.ids.uuidv7(),
        sessionId,
        images: n % 3 === 1 ? [image] : [],
      }),
    );
    const accepted: string[] = [];
    const results = await Promise.allSettled(
      sent.map((request) =>
        operations.admit(request, ({ operationId }) => accepted.push(operationId)),
      ),
    );
    const ids = sent.map(({ submission }) => submission.operationId);
    const kept = ids.filter((_id, n) => n % 3 !== 1);
    results.forEach((result, n) => {
      if (n % 3 !== 1)
        expect(result).toMatchObject({ status: "fulfilled", value: { status: 202 } });
      else expect(result).toMatchObject({ status: "rejected", reason: { status: 503 } });
    });
    expect(operations.pending(sessionId).map(({ operationId }) => operationId)).toEqual(kept);
    expect(accepted).toEqual(kept);
    for (const [n, id] of ids.entries()) expect(operations.find(id) === null).toBe(n % 3 === 1);
    database.execute("PRAGMA max_page_count = 1000000");
    // Nothing was decided, so the same request may come again.
    const again = await operations.admit(sent[1]!);
    expect([again.status, again.replayed]).toEqual([202, false]);
    assertConsistent(bench.store);
  });
});

/*
 * A real small disk, where this user may mount one. What SQLite says of a full one comes at another moment than with
 * `max_page_count`: when the log is written, at the commit.
 */
interface Disk {
  readonly path: string;
  remount(how: string): void;
}

const mounted: string[] = [];

function mountDisk(path: string, mib: number): Disk | null {
  mkdirSync(path);
  const size = `size=${mib}m`;
  const done = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", size, "tmpfs", path], {
    stderr: "ignore",
  });
  if (done.exitCode !== 0) return null;
  mounted.push(path);
  return {
    path,
    remount: (how) => void Bun.spawnSync(["mount", "-o", `remount,${how}`, path]),
  };
}

function canMount(): boolean {
  if (Bun.which("mount") === null) return false;
  using directory = tempDir();
  const disk = mountDisk(join(directory.path, "probe"), 1);
  if (disk !== null) unmount(disk.path);
  return disk !== null;
}

function unmount(path: string): void {
  Bun.spawnSync(["umount", path]);
  mounted.splice(mounted.indexOf(path), 1);
}

afterAll(() => mounted.forEach(unmount));

function open(home: string): Store {
  const clock = new FakeClock();
  return openStore({ home, clock, ids: createIds(clock), log: silentLog, busyTimeoutMs: 20 });
}

function openFailure(home: string): StoreOpenError {
  try {
    open(home);
  } catch (error) {
    if (error instanceof StoreOpenError) return error;
    throw error;
  }
  throw new Error("Opened all the same");
}

describe.skipIf(!canMount())("on a disk of its own", () => {
  test("a full one refuses what does not fit and keeps what does, commit by commit", async () => {
    using directory = tempDir();
    const disk = mountDisk(join(directory.path, "disk"), 8)!;
    const home = join(disk.path, "home");
    const ids = createIds(new FakeClock());
    const sessionId = ids.uuidv7();
    const store = open(home);
    const creation = fromCreation({ operationId: ids.uuidv7() });
    const decision = { sessionId, workspace: "/w", model: "m/m" };
    await store.conversation.create({ creation, fingerprint: "x", decision });
    const filler = join(disk.path, "filler");
    const { bavail, bsize } = statfsSync(disk.path);
    writeFileSync(filler, new Uint8Array(bavail * bsize - 400_000));

    const image = { mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(1_000_000) };
    const send = (images: (typeof image)[]) => {
      const request = admission({ operationId: ids.uuidv7(), sessionId, images });
      return { id: request.submission.operationId, answer: store.operations.admit(request) };
    };
    const small = [send([]), send([])];
    const large = send([image]);
    small.push(send([]));
    expect((await refusal(large.answer))?.status).toBe(503);
    for (const { answer } of small) expect((await answer).status).toBe(202);

    writeFileSync(filler, new Uint8Array(16), { flag: "a" });
    let kept = small.map(({ id }) => id);
    for (;;) {
      const next = send([]);
      if ((await refusal(next.answer)) !== null) break;
      const left = statfsSync(disk.path);
      if (left.bavail > 0)
        writeFileSync(filler, new Uint8Array(left.bavail * left.bsize), { flag: "a" });
      kept = [...kept, next.id];
      if (kept.length === 32)
        await store.conversation.interrupt([sessionId]).then(() => (kept = []));
    }
    expect(store.operations.find(large.id)).toBeNull();
    expect(store.operations.pending(sessionId).map(({ operationId }) => operationId)).toEqual(kept);
    assertConsistent(store);

    truncateSync(filler, 0);
    const after = send([]);
    expect((await after.answer).status).toBe(202);
    await store.close();
    const again = open(home);
    expect(again.operations.pendingCount(sessionId)).toBe(kept.length + 1);
    assertConsistent(again);
    await again.close();
    unmount(disk.path);
  });

  test("a full one stops the start with a message", () => {
    using directory = tempDir();
    const disk = mountDisk(join(directory.path, "disk"), 1)!;
    const { bavail, bsize } = statfsSync(disk.path);
    writeFileSync(join(disk.path, "filler"), new Uint8Array((bavail - 2) * bsize));
    const error = openFailure(join(disk.path, "home"));
    expect(["disk_full", "disk_failed"]).toContain(error.code);
    expect(error.message).toContain("space");
    unmount(disk.path);
  });

  test("a read-only one stops the start with a message, whether a store is there or not", async () => {
    using directory = tempDir();
    const disk = mountDisk(join(directory.path, "disk"), 4)!;
    const home = join(disk.path, "home");
    await open(home).close();
    const empty = join(disk.path, "empty");
    mkdirSync(empty, { mode: 0o700 });
    disk.remount("ro");
    for (const path of [home, empty, join(disk.path, "new")]) {
      const error = openFailure(path);
      expect([path, error.code]).toEqual([path, "read_only"]);
      expect(error.message).toContain("make the disk and the directory writable");
    }
    disk.remount("rw");
    await open(home).close();
    unmount(disk.path);
  });
});
