import { Database } from "bun:sqlite";
import { cpSync, existsSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../src/base/clock.ts";
import { silentLog } from "../../src/base/log.ts";
import { MIGRATIONS } from "../../src/store/migrations.ts";
import { openDatabase } from "../../src/store/open.ts";
import { cacheDirectory } from "./paths.ts";

/**
 * Owns homes that are dear to fill: they are made once with the migrations of this commit, straight through SQL, and
 * kept in the cache as long as their ids are young.
 */
export const RECEIPTS = 1_000_000;
export const SESSIONS = 10_000;
const ROWS_PER_SESSION = 10;
const HOUR_MS = 3_600_000;
const SPREAD_MS = 6 * 24 * HOUR_MS;
const CACHE_MS_MAX = 20 * HOUR_MS;
/** Changes when what is generated here does. */
const GENERATOR = 3;

function cached(name: string, make: (directory: string) => void): string {
  const hash = new Bun.CryptoHasher("sha256");
  for (const { sql } of MIGRATIONS) hash.update(sql);
  const key = hash.digest("hex").slice(0, 12);
  const directory = join(cacheDirectory(), `${name}-${GENERATOR}-${key}`);
  const madeAt = statSync(directory, { throwIfNoEntry: false })?.mtimeMs;
  if (madeAt !== undefined && Date.now() - madeAt < CACHE_MS_MAX) return directory;
  rmSync(directory, { recursive: true, force: true });
  const aside = `${directory}.${process.pid}`;
  mkdirSync(aside, { mode: 0o700 });
  make(aside);
  renameSync(aside, directory);
  return directory;
}

/** Copies a cached home's database files into a home. */
function copyInto(cache: string, home: string): void {
  for (const file of ["albedo.db", "albedo.db-wal"]) {
    const from = join(cache, file);
    if (existsSync(from)) cpSync(from, join(home, file));
  }
}

/** An empty database with the schema of this commit. */
export function createEmpty(home: string): string {
  const { database, lock } = openDatabase({ home, clock: systemClock, log: silentLog });
  database.close();
  lock.release();
  return join(home, "albedo.db");
}

/** Puts a store with a million settled receipts and ten thousand sessions into a home. */
export function fillLarge(home: string): void {
  copyInto(cached("large", generateLarge), home);
}

/** Ids as a client would have made them at those times; the numbers make them distinct. */
function uuidv7(timestamp: number, kind: number, number: number): string {
  const time = Math.floor(timestamp).toString(16).padStart(12, "0");
  const tail = number.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${kind.toString(16).padStart(3, "0")}-8000-${tail}`;
}

function generateLarge(directory: string): void {
  const database = new Database(createEmpty(directory));
  database.run("PRAGMA synchronous = OFF");
  database.run("PRAGMA cache_size = -200000");
  database.run("PRAGMA foreign_keys = OFF");
  const now = Date.now();
  database.transaction(() => generateRows(database, now - SPREAD_MS - HOUR_MS))();
  database.run("PRAGMA wal_checkpoint(TRUNCATE)");
  database.run("PRAGMA journal_mode = DELETE");
  database.run("PRAGMA journal_mode = WAL");
  database.close();
}

function generateRows(database: Database, from: number): void {
  const operation = database.prepare(
    `INSERT INTO operations (operation_id, fingerprint, kind, target, created_at, admission, http_status, body,
       delivery_status, committed_at, settled_at, expires_at)
     VALUES (?1, ?2, ?3, ?4, ?5, 'accepted', ?6, ?7, ?8, ?9, ?10, ?11)`,
  );
  const session = database.prepare(
    `INSERT INTO sessions (session_id, title, workspace, model, settings, phase, last_row_id, created_at, activity_at)
     VALUES (?1, ?2, '/tmp', 'bench/m', '{}', 'idle', ?3, ?4, ?5)`,
  );
  const hex = "0123456789abcdef".repeat(4);
  const each = RECEIPTS / SESSIONS;
  const step = SPREAD_MS / RECEIPTS;
  for (let number = 0; number < RECEIPTS; number += 1) {
    // The receipts of all sessions are mixed, as they are when many work at once.
    const at = Math.floor(from + number * step);
    const owner = number % SESSIONS;
    const createdAt = Math.floor(from + owner * step);
    const sessionId = uuidv7(createdAt, 1, owner);
    const id = uuidv7(at, 2, number);
    const fingerprint = number.toString(16).padStart(8, "0") + hex.slice(8);
    const body = JSON.stringify({ operationId: id, sessionId, status: "accepted", acceptedAt: at });
    const creation = number < SESSIONS;
    operation.run(
      id,
      fingerprint,
      creation ? "session_create" : "message",
      sessionId,
      at,
      creation ? 201 : 202,
      body,
      creation ? null : "committed",
      creation ? null : at,
      at,
      at + 30 * 24 * HOUR_MS,
    );
    if (creation) {
      const activity = Math.floor(from + (owner + (each - 1) * SESSIONS) * step);
      session.run(sessionId, `Session ${owner}`, ROWS_PER_SESSION, at, activity);
    }
  }
  generateTranscripts(database, from, step);
}

function generateTranscripts(database: Database, from: number, step: number): void {
  const turn = database.prepare(
    `INSERT INTO turns (turn_id, session_id, state, row_floor, started_at, ended_at)
     VALUES (?1, ?2, 'completed', 0, ?3, ?3)`,
  );
  const row = database.prepare(
    `INSERT INTO transcript_rows (session_id, row_id, role, turn_id, text, created_at)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
  );
  const text =
    "What was said takes about as much room as this sentence does, a few times over. ".repeat(4);
  for (let owner = 0; owner < SESSIONS; owner += 1) {
    const at = Math.floor(from + owner * step);
    const sessionId = uuidv7(at, 1, owner);
    const turnId = uuidv7(at, 3, owner);
    turn.run(turnId, sessionId, at);
    for (let id = 1; id <= ROWS_PER_SESSION; id += 1) {
      row.run(sessionId, id, "assistant", turnId, text, at);
    }
  }
}

export const WAL_BYTES = 500_000_000;

/** Puts a store into a home that a killed program left with a write-ahead log of 500 MB. */
export function fillWithWal(home: string): void {
  copyInto(cached("wal", generateWal), home);
}

function generateWal(directory: string): void {
  const path = createEmpty(directory);
  const script = join(import.meta.dir, "wal_writer.ts");
  const writer = Bun.spawnSync([process.execPath, script, path, String(WAL_BYTES)], {
    stderr: "inherit",
  });
  if (writer.signalCode !== "SIGKILL") throw new Error("The writer of the log was not killed");
  // Only a process that shares memory with the dead one could use it.
  rmSync(`${path}-shm`, { force: true });
}
