import { writeSync } from "node:fs";
import { createIds } from "../../src/base/ids.ts";
import { RECEIPT_RETENTION_MS } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import type { FaultPoints } from "../../src/store/database.ts";
import type { Reply } from "../../src/store/operations.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { fromCreation } from "../../src/wire/submission.ts";
import { admission, idAt } from "../store/support.ts";
import { FAKE_EPOCH_MS, FakeClock } from "../support/fake_clock.ts";

/*
 * A process that works on a store and tells what it was promised, each promise in a line, written before anything else
 * happens. `script` does a fixed list of intended actions, each once, however often it is started again; `load` admits
 * and consumes without an end; `sweep` removes receipts. With a hit count it kills itself at that point.
 */
const [, , mode = "", home = "", hit = "0"] = process.argv;

/** The ids of the script, the same in every life. */
export const SCRIPT = {
  parent: idAt(FAKE_EPOCH_MS, 1),
  child: idAt(FAKE_EPOCH_MS, 2),
  createParent: idAt(FAKE_EPOCH_MS, 11),
  createChild: idAt(FAKE_EPOCH_MS, 12),
  refused: idAt(FAKE_EPOCH_MS, 13),
  message: idAt(FAKE_EPOCH_MS, 21),
  again: idAt(FAKE_EPOCH_MS, 22),
  orphan: idAt(FAKE_EPOCH_MS, 23),
  regretted: idAt(FAKE_EPOCH_MS, 24),
  last: idAt(FAKE_EPOCH_MS, 25),
} as const;

/** Takes down a promise. */
export type Say = (...words: string[]) => void;

const sayAloud: Say = (...words) => {
  writeSync(1, `${words.join(" ")}\n`);
};

function pointsFrom(hitCount: number): FaultPoints {
  let hits = 0;
  return {
    reached(name) {
      sayAloud("point", name);
      hits += 1;
      if (hits === hitCount) process.kill(process.pid, "SIGKILL");
    },
  };
}

function promised(say: Say, operationId: string, reply: Reply): void {
  say("promised", operationId, String(reply.status), reply.body);
}

async function create(
  say: Say,
  store: Store,
  operationId: string,
  sessionId: string,
  parentId: string | null,
): Promise<void> {
  const creation = fromCreation({ operationId, parent_id: parentId });
  const decision = { sessionId, workspace: "/w", model: "m/m" };
  promised(
    say,
    operationId,
    await store.conversation.create({ creation, fingerprint: "create", decision }),
  );
}

async function admit(
  say: Say,
  store: Store,
  operationId: string,
  sessionId: string,
  text: string,
): Promise<void> {
  const kind = text === "" ? "continue" : "message";
  const images =
    text === "look"
      ? [{ mimeType: "image/png", width: 1, height: 1, bytes: new Uint8Array(20_000) }]
      : [];
  promised(
    say,
    operationId,
    await store.operations.admit(admission({ operationId, sessionId, kind, text, images })),
  );
}

/** Consumes what waits in one turn, with a tool call that its second commit answers. */
async function runTurn(say: Say, store: Store, sessionId: string, turnId: string): Promise<void> {
  const inputs = store.operations.pending(sessionId).map(({ operationId, images }) => ({
    operationId,
    fittings: images.map(() => ({ mimeType: "image/png", bytes: new Uint8Array(10_000) })),
  }));
  if (inputs.length === 0) return;
  const { consumed } = await store.conversation.consume({
    sessionId,
    turnId,
    startsTurn: true,
    inputs,
  });
  for (const id of consumed) say("consumed", id);
  const call = { toolCallId: turnId, toolName: "bash" };
  await store.conversation.commit({
    sessionId,
    turnId,
    rows: [{ role: "tool_call", ...call, input: {}, messageId: null }],
  });
  await store.conversation.commit({
    sessionId,
    turnId,
    rows: [{ role: "tool_result", ...call, text: "ok", status: "ok" }],
    end: { state: "completed" },
  });
  say("ended", turnId);
}

export async function script(say: Say, store: Store, newId: () => string): Promise<void> {
  const { operations, conversation } = store;
  await create(say, store, SCRIPT.createParent, SCRIPT.parent, null);
  if (
    operations.pending(SCRIPT.parent).some(({ operationId }) => operationId === SCRIPT.regretted)
  ) {
    await operations.cancelWaiting(SCRIPT.parent, [SCRIPT.regretted]);
  }
  await create(say, store, SCRIPT.createChild, SCRIPT.child, SCRIPT.parent);
  // These share one group commit.
  await Promise.all([
    admit(say, store, SCRIPT.message, SCRIPT.parent, "look"),
    admit(say, store, SCRIPT.refused, idAt(FAKE_EPOCH_MS, 99), "nobody"),
    admit(say, store, SCRIPT.again, SCRIPT.parent, ""),
    admit(say, store, SCRIPT.orphan, SCRIPT.child, "orphan"),
  ]);
  await runTurn(say, store, SCRIPT.parent, newId());
  await admit(say, store, SCRIPT.regretted, SCRIPT.parent, "no");
  const cancelled = await operations.cancelWaiting(SCRIPT.parent, [SCRIPT.regretted]);
  for (const id of cancelled) say("cancelled", id);
  if (store.sessions.get(SCRIPT.child) !== null) {
    await conversation.remove(SCRIPT.child, { recursive: false });
    say("removed", SCRIPT.child);
  }
  await admit(say, store, SCRIPT.last, SCRIPT.parent, "last");
  await runTurn(say, store, SCRIPT.parent, newId());
}

/** Many clients at once, for ever. */
async function load(say: Say, store: Store, newId: () => string): Promise<void> {
  const sessions = Array.from({ length: 4 }, () => newId());
  for (const sessionId of sessions) await create(say, store, newId(), sessionId, null);
  const client = async (sessionId: string, n: number): Promise<never> => {
    for (;;) {
      const operationId = newId();
      await admit(say, store, operationId, sessionId, n === 0 ? "" : `text ${n}`);
      if (n === 1) await runTurn(say, store, sessionId, newId());
      if (n === 2) {
        const cancelled = await store.operations.cancelWaiting(sessionId, [operationId]);
        for (const id of cancelled) say("cancelled", id);
      }
    }
  };
  await Promise.all(sessions.flatMap((sessionId) => [0, 1, 2, 3].map((n) => client(sessionId, n))));
}

async function sweep(say: Say, store: Store): Promise<void> {
  const late = FAKE_EPOCH_MS + 2 * RECEIPT_RETENTION_MS;
  while ((await store.operations.sweep(late)) > 0) say("swept");
}

if (import.meta.main) {
  const clock = new FakeClock();
  const ids = createIds(clock);
  const store = openStore({ home, clock, ids, log: silentLog, points: pointsFrom(Number(hit)) });
  store.conversation.recover();
  if (mode === "script") await script(sayAloud, store, () => ids.uuidv7());
  else if (mode === "sweep") await sweep(sayAloud, store);
  else await load(sayAloud, store, () => ids.uuidv7());
  await store.close();
  sayAloud("done");
}
