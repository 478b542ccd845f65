import { Database } from "bun:sqlite";
import { join } from "node:path";
import { spawnHelper } from "./support/child.ts";
import { type Daemon, makeHome, startDaemon } from "./support/daemon.ts";
import { Connection } from "./support/http_client.ts";
import { promptFor } from "./support/model_plan.ts";
import { createSession, creationBody, putMessage, turnEnded } from "./support/prompting.ts";
import { Report } from "./support/report.ts";

/**
 * Prompts and creations that were acknowledged before a SIGKILL under load, asked for again after the next start;
 * and whether those that still waited run by themselves. SIGKILL shows what the program loses, not what a disk does.
 */
const ROUNDS = 6;
const CONNECTIONS = 32;
/** The instant of the kill, from the start of the load: another one each round. */
const KILL_AFTER_MS = [20, 60, 110, 170, 240, 320] as const;

interface Acknowledged {
  readonly id: string;
  readonly sessionId: string;
  readonly kind: "session_create" | "message";
}

async function main(): Promise<void> {
  const report = new Report("kill", "acknowledged and lost");
  const model = await spawnHelper("model_server.ts");
  const home = makeHome(model.port);
  let acknowledged = 0;
  let lost = 0;
  let stuck = 0;
  let damaged = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const daemon = await startDaemon({ home });
    const taken = await loadUntilKilled(daemon, KILL_AFTER_MS[round] ?? 100);
    acknowledged += taken.length;
    damaged += integrityFaults(home);
    const next = await startDaemon({ home });
    lost += await lostOf(next, taken);
    stuck += await stuckOf(next, taken);
    await next.kill();
  }
  report.figure(`acknowledged in ${ROUNDS} rounds`, acknowledged, { digits: 0 });
  report.figure("lost after SIGKILL", lost, { atMost: 0, digits: 0 });
  report.figure("acknowledged prompts that did not run by themselves", stuck, {
    atMost: 0,
    digits: 0,
  });
  report.figure("faults that PRAGMA integrity_check finds", damaged, { atMost: 0, digits: 0 });
  report.finish();
}

async function loadUntilKilled(daemon: Daemon, afterMs: number): Promise<Acknowledged[]> {
  const sessionIds: string[] = [];
  for (let each = 0; each < CONNECTIONS / 2; each += 1)
    sessionIds.push(await createSession(daemon));
  const taken: Acknowledged[] = [];
  const work = async (number: number): Promise<void> => {
    const connection = await Connection.open(daemon.port);
    const sessionId = sessionIds[number % sessionIds.length] ?? "";
    try {
      for (;;) {
        const message = number % 2 === 0;
        const request = message
          ? putMessage(daemon, sessionId, promptFor({ deltas: 3 }))
          : daemon.encode({
              method: "POST",
              path: "/sessions",
              body: creationBody(daemon.workspace),
            });
        const answer = await connection.send(request);
        // A full queue is a decision too, but nothing that could be lost.
        if (answer.status === 429) continue;
        if (answer.status >= 400) throw new Error(answer.body.toString());
        const body = JSON.parse(answer.body.toString()) as {
          operationId: string;
          sessionId: string;
        };
        taken.push({
          id: body.operationId,
          sessionId: body.sessionId,
          kind: message ? "message" : "session_create",
        });
      }
    } catch {
      // The daemon is dead.
    }
  };
  const all = Promise.all(Array.from({ length: CONNECTIONS }, (_, number) => work(number)));
  await Bun.sleep(afterMs);
  await daemon.kill();
  await all;
  return taken;
}

function integrityFaults(home: string): number {
  const database = new Database(join(home, "albedo.db"));
  const found = database.query<{ integrity_check: string }, []>("PRAGMA integrity_check").all();
  database.close();
  return found.filter((row) => row.integrity_check !== "ok").length;
}

async function lostOf(daemon: Daemon, taken: readonly Acknowledged[]): Promise<number> {
  let lost = 0;
  const connection = await Connection.open(daemon.port);
  for (const { id, sessionId, kind } of taken) {
    const path = `/operations/${id}`;
    const answer = await connection.send(daemon.encode({ method: "GET", path }));
    const receipt = JSON.parse(answer.body.toString()) as Record<string, unknown>;
    const kept =
      answer.status === 200 &&
      receipt.admission === "accepted" &&
      receipt.kind === kind &&
      receipt.target === sessionId;
    if (!kept) lost += 1;
  }
  connection.close();
  return lost;
}

async function stuckOf(daemon: Daemon, taken: readonly Acknowledged[]): Promise<number> {
  let stuck = 0;
  for (const { id, sessionId, kind } of taken) {
    if (kind !== "message") continue;
    try {
      await turnEnded(daemon, sessionId, id);
    } catch {
      stuck += 1;
    }
  }
  return stuck;
}

await main();
