import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { createIds } from "../../src/base/ids.ts";
import { RECEIPT_RETENTION_MS, RECEIPT_SWEEP_BATCH_MAX } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { Problem } from "../../src/wire/problem.ts";
import { admission, assertConsistent, idAt } from "../store/support.ts";
import { FAKE_EPOCH_MS, FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";
import { SCRIPT, script } from "./store_child.ts";

/*
 * Goal: "SIGKILL at any instant loses nothing accepted" (contract.md, Files, process, safety), and whatever was cut
 * short is either there whole or not at all (operations.md: "A failed consumption transaction leaves the input pending
 * and appends no transcript input").
 * Method: a child works and writes each promise down as soon as it has it. It is killed at its n-th named point for
 * n = 1, 2, … until it gets through (SQLite, "How SQLite Is Tested" §3.2), and from outside at random instants. A kill
 * of a process does not lose what the kernel has, so this says nothing about a power cut.
 */
const CHILD = join(import.meta.dir, "store_child.ts");

interface Life {
  readonly lines: readonly string[];
  readonly done: boolean;
  readonly lastPoint: string;
}

function facts(life: Life, word: string): string[][] {
  return life.lines
    .filter((line) => line.startsWith(`${word} `))
    .map((line) => line.split(" ").slice(1));
}

function parse(output: string): Life {
  // The last line may be half of one.
  const lines = output.split("\n").slice(0, -1);
  const points = lines.filter((line) => line.startsWith("point "));
  return {
    lines,
    done: lines.at(-1) === "done",
    lastPoint: points.at(-1)?.slice("point ".length) ?? "",
  };
}

function live(mode: string, home: string, hit: number): Life {
  const child = Bun.spawnSync([process.execPath, CHILD, mode, home, String(hit)], {
    stderr: "pipe",
  });
  const life = parse(child.stdout.toString());
  if (life.done) return life;
  if (child.signalCode !== "SIGKILL") throw new Error(child.stderr.toString());
  return life;
}

async function withStore(
  home: string,
  look: (store: Store) => void | Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const store = openStore({ home, clock, ids: createIds(clock), log: silentLog });
  try {
    await look(store);
  } finally {
    await store.close();
  }
}

/** Everything that was promised is there, to the byte, and nothing is half there. */
function assertKept(store: Store, life: Life): void {
  assertConsistent(store);
  for (const [id = "", status, ...body] of facts(life, "promised")) {
    const found = store.operations.find(id);
    expect([id, String(found?.httpStatus), found?.body]).toEqual([
      id,
      status ?? "",
      body.join(" "),
    ]);
  }
  for (const [id = ""] of facts(life, "consumed")) {
    expect([id, store.operations.find(id)?.deliveryStatus]).toEqual([id, "committed"]);
  }
  for (const [id = ""] of facts(life, "cancelled")) {
    expect([id, store.operations.find(id)?.deliveryStatus]).toEqual([id, "cancelled"]);
  }
  for (const [id = ""] of facts(life, "removed")) expect(store.sessions.get(id)).toBeNull();
  for (const [id = ""] of facts(life, "ended")) {
    expect([id, store.turns.get(id)?.state]).toEqual([id, "completed"]);
  }
}

describe("a store whose process is killed at a named point", () => {
  test("keeps every promise, and the same script then gets through, each action once", async () => {
    using directory = tempDir();
    const killedAt = new Set<string>();
    for (let hit = 1; ; hit += 1) {
      const home = join(directory.path, `home ${hit}`);
      const first = live("script", home, hit);
      await withStore(home, async (store) => {
        assertKept(store, first);
        // Startup ends what was left open; twice is as good as once.
        store.conversation.recover();
        store.conversation.recover();
        assertKept(store, first);
        const lines: string[] = [];
        const ids = createIds(new FakeClock());
        await script(
          (...words) => lines.push(words.join(" ")),
          store,
          () => ids.uuidv7(),
        );
        assertKept(store, { lines, done: true, lastPoint: "" });
        assertFinished(store);
      });
      if (first.done) break;
      killedAt.add(first.lastPoint);
    }
    expect([...killedAt].toSorted()).toEqual([
      "admit.after_pending",
      "cancel.after_receipt",
      "commit.after_rows",
      "consume.after_input",
      "consume.after_rows",
      "create.after_session",
      "group.after_commit",
      "group.before_commit",
      "migrate.after_statements",
      "operations.after_receipt",
      "remove.after_cancel",
    ]);
  }, 120_000);

  test("dies in its recovery too, and recovers from that", async () => {
    using directory = tempDir();
    const home = directory.path;
    await withStore(home, async (store) => {
      for (const sessionId of [SCRIPT.parent, idAt(FAKE_EPOCH_MS, 3)]) {
        await store.conversation.create({
          creation: {
            operationId: idAt(FAKE_EPOCH_MS, 50 + Number(sessionId.at(-1))),
            workspace: null,
            title: null,
            model: null,
            parentId: null,
            settings: {},
          },
          fingerprint: "x",
          decision: { sessionId, workspace: "/w", model: "m/m" },
        });
        const turnId = idAt(FAKE_EPOCH_MS, 60 + Number(sessionId.at(-1)));
        await store.conversation.consume({ sessionId, turnId, startsTurn: true, inputs: [] });
        const call = {
          role: "tool_call",
          toolCallId: "c",
          toolName: "bash",
          input: {},
          messageId: null,
        } as const;
        await store.conversation.commit({ sessionId, turnId, rows: [call] });
      }
    });
    for (const hit of [1, 2]) {
      const life = live("sweep", home, hit);
      expect([life.done, life.lastPoint]).toEqual([false, "recover.after_turn"]);
      await withStore(home, (store) => {
        assertConsistent(store);
        expect(store.turns.latest(SCRIPT.parent)?.state).toBe("running");
      });
    }
    expect(live("sweep", home, 0).done).toBe(true);
    await withStore(home, (store) => {
      expect(store.turns.latest(SCRIPT.parent)?.state).toBe("interrupted");
      expect(store.conversation.transcript(SCRIPT.parent).map(({ role }) => role)).toEqual([
        "tool_call",
        "tool_result",
      ]);
    });
  }, 60_000);

  test("never removes a receipt without raising the floor over it", async () => {
    using directory = tempDir();
    const count = RECEIPT_SWEEP_BATCH_MAX + 40;
    const ids = Array.from({ length: count }, (_, n) => idAt(FAKE_EPOCH_MS, 1000 + n));
    for (let hit = 1; ; hit += 1) {
      const home = join(directory.path, `home ${hit}`);
      await withStore(home, async (store) => {
        const nobody = idAt(FAKE_EPOCH_MS, 9);
        const sends = ids.map((operationId) =>
          store.operations.admit(admission({ operationId, sessionId: nobody })),
        );
        await Promise.all(sends);
      });
      const life = live("sweep", home, hit);
      await withStore(home, (store) => {
        assertConsistent(store);
        const left = ids.filter((id) => store.operations.find(id) !== null).length;
        const swept = life.lines.filter((line) => line === "swept").length;
        // A batch may have been committed whose promise was cut off.
        const batches = [count, count - RECEIPT_SWEEP_BATCH_MAX, 0];
        expect(batches.slice(swept, swept + 2)).toContain(left);
        const late = FAKE_EPOCH_MS + 2 * RECEIPT_RETENTION_MS;
        expect(store.operations.floor()).toBe(left === count ? 0 : late - RECEIPT_RETENTION_MS - 1);
        for (const id of ids) {
          if (store.operations.find(id) !== null) continue;
          expect(() => store.operations.receipt(id)).toThrow(Problem);
          expect(() => store.operations.assertAge(id, FAKE_EPOCH_MS)).toThrow("clock was ahead");
        }
      });
      if (life.done) break;
    }
  }, 60_000);
});

/** What the script wants, each once. */
function assertFinished(store: Store): void {
  const delivery = (id: string): string | null => store.operations.find(id)?.deliveryStatus ?? null;
  expect([SCRIPT.message, SCRIPT.again, SCRIPT.last].map(delivery)).toEqual(
    Array(3).fill("committed"),
  );
  expect([SCRIPT.regretted, SCRIPT.orphan].map(delivery)).toEqual(["cancelled", "cancelled"]);
  expect(store.operations.find(SCRIPT.refused)?.httpStatus).toBe(404);
  expect(store.sessions.list({ before: null, limit: 10 }).map(({ id }) => id)).toEqual([
    SCRIPT.parent,
  ]);
  const inputs = store.conversation
    .transcript(SCRIPT.parent)
    .map((row) => row.display?.operationId ?? row.operationId)
    .filter((id) => id !== null);
  expect(inputs).toEqual([SCRIPT.message, SCRIPT.again, SCRIPT.last]);
  for (const id of inputs) expect(store.turns.ofInput(id)?.state).not.toBe("running");
}

describe("a store whose process is killed at a random instant", () => {
  test("has every promise, each input at most once, and goes on", async () => {
    using directory = tempDir();
    const seed = Number(process.env["SEED"] ?? 1);
    const home = join(directory.path, "home");
    const promises: Life[] = [];
    for (let round = 0; round < 10; round += 1) {
      const child = Bun.spawn([process.execPath, CHILD, "load", home], { stdout: "pipe" });
      const wanted = 20 + ((seed * 7919 + round * 104_729) % 400);
      const life = await killAfter(child, wanted);
      promises.push(life);
      await withStore(home, (store) => {
        for (const earlier of promises) assertKept(store, earlier);
        for (const sessionId of store.operations.sessionsWithPending()) {
          const waiting = store.operations.pending(sessionId);
          expect(waiting.length).toBe(store.operations.pendingCount(sessionId));
          const order = waiting.map(({ decision }) => decision);
          expect(order).toEqual(order.toSorted((a, b) => a - b));
        }
      });
    }
    expect(promises.flatMap((life) => facts(life, "promised")).length).toBeGreaterThan(100);
  }, 120_000);
});

/** Reads what the child says, and kills it when it has said so much. */
async function killAfter(child: Bun.Subprocess<"ignore", "pipe">, lines: number): Promise<Life> {
  let output = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    output += decoder.decode(chunk, { stream: true });
    if (output.split("\n").length > lines) child.kill("SIGKILL");
  }
  await child.exited;
  expect(child.signalCode).toBe("SIGKILL");
  return parse(output);
}
