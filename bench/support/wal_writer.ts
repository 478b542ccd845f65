import { Database } from "bun:sqlite";
import { statSync } from "node:fs";

/** Writes rows into an albedo database until its log has so many bytes, then dies as if killed. Takes both. */
const [path = "", bytes = "0"] = process.argv.slice(2);
const SESSION = "019ad3c2-7b4e-7c1a-9f0e-3d0000000001";

const database = new Database(path, { readwrite: true, create: false });
database.run("PRAGMA synchronous = OFF");
database.run("PRAGMA wal_autocheckpoint = 0");
database.run("PRAGMA foreign_keys = OFF");
database
  .prepare(
    `INSERT INTO sessions (session_id, workspace, model, settings, phase, last_row_id, created_at, activity_at)
     VALUES (?1, '/tmp', 'bench/m', '{}', 'idle', 1000000, ?2, ?2)`,
  )
  .run(SESSION, Date.now());
const row = database.prepare(
  `INSERT INTO transcript_rows (session_id, row_id, role, text, created_at)
   VALUES (?1, ?2, 'assistant', ?3, ?4)`,
);
const text = "x".repeat(3000);
for (let id = 1; statSync(`${path}-wal`).size < Number(bytes);) {
  database.transaction(() => {
    for (const end = id + 200; id < end; id += 1) row.run(SESSION, id, text, Date.now());
  })();
}
process.kill(process.pid, "SIGKILL");
