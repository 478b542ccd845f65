import { Database } from "bun:sqlite";
import { join } from "node:path";
import { systemClock } from "../../src/base/clock.ts";
import { MIB } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { openDatabase } from "../../src/store/open.ts";

/*
 * Leaves a log of the given size in a home, as a daemon whose checkpoints never came through would, and kills itself.
 */
const [, , home = "", mib = "0"] = process.argv;
const { database, lock } = openDatabase({ home, clock: systemClock, log: silentLog });
database.execute("CREATE TABLE probe (n INTEGER PRIMARY KEY, bytes BLOB) STRICT");
database.close();
lock.release();

const sqlite = new Database(join(home, "albedo.db"));
sqlite.run("PRAGMA synchronous = OFF");
sqlite.run("PRAGMA wal_autocheckpoint = 0");
const insert = sqlite.prepare("INSERT INTO probe (bytes) VALUES (?1)");
const bytes = new Uint8Array(MIB);
for (let n = 0; n < Number(mib); n += 1) insert.run(bytes.fill(n));
process.kill(process.pid, "SIGKILL");
