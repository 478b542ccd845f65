import { createApp } from "../../src/http/app.ts";
import { listen } from "../../src/http/listener.ts";
import { originRules } from "../../src/http/origins.ts";
import { silentLog } from "../../src/base/log.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { Reply, Sessions } from "../../src/session/sessions.ts";
import { createRawCommits } from "./raw_commits.ts";

/**
 * The daemon's own HTTP floor over a session floor that decides nothing and stores nothing: the same routes, the
 * same gate, the same validation, one constant answer. Takes a token, and prints its port. With a directory each
 * answer waits for one raw SQLite commit.
 */
const [token = "", directory] = process.argv.slice(2);
const commit = directory === undefined ? () => undefined : createRawCommits(directory);
const BODY = JSON.stringify({
  operationId: "019ad3c2-7b4e-7c1a-9f0e-3d0000000001",
  sessionId: "019ad3c2-7b4e-7c1a-9f0e-3d0000000002",
  status: "accepted",
  acceptedAt: 1_796_000_000_000,
});

function reply(status: number, location: string | null): Reply {
  return { status, body: BODY, contentType: "application/json", location, replayed: false };
}

const created = reply(201, "/sessions/019ad3c2-7b4e-7c1a-9f0e-3d0000000002");
const submitted = reply(202, null);
const calls: Pick<Sessions, "create" | "submit"> = {
  create: async ({ operationId }) => {
    commit(operationId, BODY);
    return created;
  },
  submit: async ({ operationId }) => {
    commit(operationId, BODY);
    return submitted;
  },
};

const app = createApp({
  sessions: calls as Sessions,
  models: { list: () => [] },
  skills: { list: () => [] },
  info: {
    name: "albedo",
    version: "0.0.0",
    protocol: 1,
    instance_id: "019ad3c2-7b4e-7c1a-9f0e-3d0000000003",
    pid: process.pid,
    started_at: 0,
    capabilities: {},
    limits: {},
  },
  rules: originRules("127.0.0.1", []),
  token,
  clock: systemClock,
  log: silentLog,
  shutdown: () => undefined,
});
console.log(listen(app, { host: "127.0.0.1", port: 0 }).port);
