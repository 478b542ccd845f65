import { Database as Sqlite } from "bun:sqlite";
import { chmodSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { BUSY_TIMEOUT_MS } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { Database, type FaultPoints } from "./database.ts";
import { createPrivateFile, DATABASE_FILE, type HomeLock, lockHome, prepareHome } from "./home.ts";
import { type Migration, migrate } from "./migrations.ts";
import { explainOpenFailure, StoreOpenError } from "./store_open_error.ts";
import { boundWal, type Wal, walBytes } from "./wal.ts";

/**
 * Owns the way from a directory to a database that can be trusted: private, ours alone, whole as far as a look can
 * tell, migrated. Nothing here scans: the start of a large store takes as long as that of an empty one.
 */
export interface OpenOptions {
  readonly home: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly points?: FaultPoints;
  /** How long a lock of another program is waited for. @default {BUSY_TIMEOUT_MS} */
  readonly busyTimeoutMs?: number;
  /** @default {MIGRATIONS} */
  readonly migrations?: readonly Migration[];
}

export interface OpenDatabase {
  readonly database: Database;
  readonly lock: HomeLock;
  readonly wal: Wal;
}

/** A file up to this is checked whole at the start, which takes a few milliseconds; a larger one only in places. */
const WHOLE_CHECK_PAGES_MAX = 512;
/** Pages kept in memory, in KiB. */
const CACHE_KIB = 4096;

/** @throws {StoreOpenError} */
export function openDatabase(options: OpenOptions): OpenDatabase {
  prepareHome(options.home);
  const lock = lockHome(options.home);
  try {
    return { ...connect(options), lock };
  } catch (error) {
    lock.release();
    throw error;
  }
}

function connect(options: OpenOptions): { database: Database; wal: Wal } {
  const path = join(options.home, DATABASE_FILE);
  const busyTimeoutMs = options.busyTimeoutMs ?? BUSY_TIMEOUT_MS;
  let database: Database | null = null;
  try {
    createPrivateFile(path);
    chmodSync(path, 0o600);
    const inheritedBytes = walBytes(path);
    const sqlite = new Sqlite(path, { readwrite: true, create: false });
    const { log, points, clock } = options;
    database = new Database(sqlite, { log, ...(points === undefined ? {} : { points }) });
    configure(database, path, busyTimeoutMs);
    const wal = boundWal(database, { path, inheritedBytes, busyTimeoutMs, clock, log });
    checkWritable(database);
    migrate(database, {
      path,
      now: clock.now(),
      ...(options.migrations === undefined ? {} : { migrations: options.migrations }),
    });
    checkWhole(database, path);
    database.shareReads();
    return { database, wal };
  } catch (error) {
    closeAfterFailure(database);
    throw explainOpenFailure(error, path);
  }
}

function configure(database: Database, path: string, busyTimeoutMs: number): void {
  database.execute(`PRAGMA busy_timeout = ${busyTimeoutMs}`);
  const journal = database.query<{ journal_mode: string }>("PRAGMA journal_mode = WAL").get();
  if (journal?.journal_mode !== "wal") {
    throw new StoreOpenError(
      "home_invalid",
      `The disk of "${path}" cannot hold a write-ahead log: set ALBEDO_HOME to a directory on a local disk`,
    );
  }
  database.execute("PRAGMA synchronous = FULL");
  database.execute("PRAGMA foreign_keys = ON");
  database.execute("PRAGMA trusted_schema = OFF");
  database.execute("PRAGMA temp_store = MEMORY");
  database.execute(`PRAGMA cache_size = -${CACHE_KIB}`);
}

/** A file that can only be read opens without a word; its first write would fail. */
function checkWritable(database: Database): void {
  database.execute("BEGIN IMMEDIATE");
  database.execute("ROLLBACK");
}

/** Looks at the first page of each table and index, and at everything where that is little. */
function checkWhole(database: Database, path: string): void {
  const pages = database.query<{ page_count: number }>("PRAGMA page_count").get()?.page_count ?? 0;
  const tables = database
    .query<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'")
    .all();
  for (const { name } of tables) database.execute(`SELECT 1 FROM "${name}" LIMIT 1`);
  if (pages > WHOLE_CHECK_PAGES_MAX) return;
  const found = database.query<{ quick_check: string }>("PRAGMA quick_check(1)").get();
  if (found?.quick_check === "ok") return;
  throw new StoreOpenError(
    "damaged",
    `The database "${path}" is damaged (${found?.quick_check ?? "no answer"}): move it away together with ` +
      'its "-wal" and "-shm" files, or put a backup in its place, then start again',
  );
}

function closeAfterFailure(database: Database | null): void {
  try {
    database?.close();
  } catch {
    // The reason of the failure is the one to report.
  }
}
