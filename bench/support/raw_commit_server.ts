import { Database } from "bun:sqlite";
import { join } from "node:path";

/**
 * What one durable request costs at least: a bare server that makes one raw SQLite commit for each, with the
 * daemon's own settings. Takes a directory, prints its port.
 */
const database = new Database(join(process.argv[2] ?? ".", "raw.db"));
database.run("PRAGMA journal_mode = WAL");
database.run("PRAGMA synchronous = FULL");
database.run("CREATE TABLE decisions (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT");
const begin = database.prepare("BEGIN IMMEDIATE");
const insert = database.prepare("INSERT INTO decisions (id, body) VALUES (?1, ?2)");
const commit = database.prepare("COMMIT");

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const text = await request.text();
    const body = JSON.parse(text) as { operationId?: string };
    const id = body.operationId ?? request.url.slice(-36);
    const reply = { operationId: id, sessionId: id, status: "accepted", acceptedAt: Date.now() };
    begin.run();
    insert.run(id, text);
    commit.run();
    return Response.json(reply, { status: request.method === "PUT" ? 202 : 201 });
  },
});
console.log(server.port);
