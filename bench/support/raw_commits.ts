import { Database } from "bun:sqlite";
import { join } from "node:path";

/** One row in one SQLite commit, with the daemon's own settings and nothing else. */
export function createRawCommits(directory: string): (id: string, body: string) => void {
  const database = new Database(join(directory, "raw.db"));
  database.run("PRAGMA journal_mode = WAL");
  database.run("PRAGMA synchronous = FULL");
  database.run("CREATE TABLE decisions (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT");
  const begin = database.prepare("BEGIN IMMEDIATE");
  const insert = database.prepare("INSERT INTO decisions (id, body) VALUES (?1, ?2)");
  const commit = database.prepare("COMMIT");
  return (id, body) => {
    begin.run();
    insert.run(id, body);
    commit.run();
  };
}
