import { Database } from "bun:sqlite";
import { join } from "node:path";

/** The floor of a start: the smallest server with a store in a file that Bun can be. Takes a port and a directory. */
const [port = "0", directory = "."] = process.argv.slice(2);
const database = new Database(join(directory, "floor.db"));
database.run("PRAGMA journal_mode = WAL");
database.run("PRAGMA synchronous = FULL");
database.run("CREATE TABLE IF NOT EXISTS floor (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT");
const count = database.query<{ n: number }, []>("SELECT count(*) AS n FROM floor");

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(port),
  fetch: () => Response.json({ status: "ok", rows: count.get()?.n ?? 0 }),
});
