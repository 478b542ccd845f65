import { Database } from "bun:sqlite";
import { statSync } from "node:fs";
import { join } from "node:path";
import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { type Answer, drive } from "./support/http_client.ts";
import { promptFor } from "./support/model_plan.ts";
import { createSession, putMessage, sendMessage } from "./support/prompting.ts";
import { creationBody } from "./support/prompting.ts";
import { Report } from "./support/report.ts";

/**
 * That a replay writes nothing: a second connection sees no commit (`PRAGMA data_version`), and no file of the store
 * changes its size or its time.
 */
const CREATIONS = 500;
const MESSAGES = 31;
const REPLAYS = 4;

async function main(): Promise<void> {
  const report = new Report("replay", "what a replay writes");
  const model = await spawnHelper("model_server.ts");
  const daemon = await startDaemon({ modelPort: model.port });
  const requests = await admissions(daemon);
  const first = {
    creations: await send(daemon, requests.creations, 201),
    messages: await send(daemon, requests.messages, 202),
  };
  // What the turns and the creations still had to write is written.
  await Bun.sleep(500);
  const watch = new Watch(daemon.home);
  let different = 0;
  const began = performance.now();
  for (let number = 0; number < REPLAYS; number += 1) {
    different += differences(first.creations, await send(daemon, requests.creations, 201));
    different += differences(first.messages, await send(daemon, requests.messages, 202));
  }
  const seconds = (performance.now() - began) / 1000;
  const count = REPLAYS * (CREATIONS + MESSAGES);
  report.figure(`commits during ${count} replays`, watch.commits(), { atMost: 0, digits: 0 });
  report.figure("files of the store that changed", watch.changedFiles(), { atMost: 0, digits: 0 });
  report.figure("replays that differ from the first answer", different, { atMost: 0, digits: 0 });
  report.figure("replays a second at 64 connections", count / seconds, { digits: 0 });
  report.finish();
}

async function admissions(
  daemon: Daemon,
): Promise<{ creations: Uint8Array[]; messages: Uint8Array[] }> {
  const sessionId = await createSession(daemon);
  await sendMessage(daemon, sessionId, promptFor({ hold: true }));
  await Bun.sleep(300);
  return {
    creations: Array.from({ length: CREATIONS }, () =>
      daemon.encode({ method: "POST", path: "/sessions", body: creationBody(daemon.workspace) }),
    ),
    messages: Array.from({ length: MESSAGES }, () => putMessage(daemon, sessionId, "Go on.")),
  };
}

/** The answers by the operation they decide: they may come in any order. */
async function send(
  daemon: Daemon,
  requests: readonly Uint8Array[],
  status: number,
): Promise<Map<string, Answer>> {
  const { answers } = await drive({ port: daemon.port, connections: 64, requests, status });
  return new Map(
    answers.map((answer) => {
      const { operationId } = JSON.parse(answer.body.toString()) as { operationId: string };
      return [operationId, answer];
    }),
  );
}

function differences(
  first: ReadonlyMap<string, Answer>,
  again: ReadonlyMap<string, Answer>,
): number {
  let count = 0;
  for (const [id, answer] of first) {
    const replay = again.get(id);
    const same =
      replay !== undefined &&
      replay.body.equals(answer.body) &&
      /\r\nalbedo-replayed: true/i.test(replay.headers);
    if (!same) count += 1;
  }
  return count;
}

class Watch {
  readonly #database: Database;
  readonly #version: number;
  readonly #files: string;
  readonly #home: string;

  constructor(home: string) {
    this.#home = home;
    this.#database = new Database(join(home, "albedo.db"), { readonly: true });
    this.#version = this.#dataVersion();
    this.#files = this.#look().join();
  }

  commits(): number {
    return this.#dataVersion() - this.#version;
  }

  changedFiles(): number {
    const before = this.#files.split(",");
    return this.#look().filter((file, index) => file !== before[index]).length;
  }

  #look(): string[] {
    return ["albedo.db", "albedo.db-wal"].map((name) => {
      const { size, mtimeMs } = statSync(join(this.#home, name));
      return `${size}@${mtimeMs}`;
    });
  }

  #dataVersion(): number {
    const row = this.#database.query<{ data_version: number }, []>("PRAGMA data_version").get();
    return row?.data_version ?? Number.NaN;
  }
}

await main();
