import { Database as Sqlite } from "bun:sqlite";
import {
  chmodSync,
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { isAlive } from "../base/process_alive.ts";
import { errorCode, explainOpenFailure, StoreOpenError } from "./store_open_error.ts";

/**
 * Owns the home directory: its modes, and the lock that lets one daemon at a time have it (contract.md, Files,
 * process, safety).
 *
 * The lock is an SQLite file held in an exclusive transaction: a kernel lock, so that a SIGKILL frees it, and one
 * that works alike on every platform.
 */
const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_FILE = 0o600;
const STICKY = 0o1000;
/** What a person may put into the home before a daemon has ever started there. */
const BEFORE_FIRST_START: ReadonlySet<string> = new Set(["config.toml", "skills"]);

export const DATABASE_FILE = "albedo.db";
const LOCK_FILE = "daemon.lock";
const DISCOVERY_FILE = "daemon.json";

export interface HomeLock {
  /** `false` once the file that is locked is not the one in the home any more: the home was removed or replaced. */
  isInPlace(): boolean;
  release(): void;
}

/**
 * Makes the home where it is missing and keeps it private.
 *
 * @throws {StoreOpenError} home_invalid, read_only, disk_full
 */
export function prepareHome(home: string): void {
  try {
    mkdirSync(home, { recursive: true, mode: PRIVATE_DIRECTORY });
    const { mode } = statSync(home);
    // Closing a directory that everybody shares would break others' programs. A file system that was mounted to be
    // the home looks like one, but holds nothing of others.
    if ((mode & STICKY) !== 0 && readdirSync(home).some((name) => !BEFORE_FIRST_START.has(name))) {
      throw new StoreOpenError(
        "home_invalid",
        `"${home}" is shared by all users: set ALBEDO_HOME to a directory of its own, then start again`,
      );
    }
    if ((mode & 0o777) !== PRIVATE_DIRECTORY) chmodSync(home, PRIVATE_DIRECTORY);
  } catch (error) {
    throw explainOpenFailure(error, home);
  }
}

/**
 * Creates a private file unless it is there. A file that is there is left alone: opening and closing it would drop
 * the locks that this process has on it.
 */
export function createPrivateFile(path: string): void {
  try {
    closeSync(openSync(path, "wx", PRIVATE_FILE));
  } catch (error) {
    if (errorCode(error) !== "EEXIST") throw error;
  }
}

/** @throws {StoreOpenError} running, read_only, … */
export function lockHome(home: string): HomeLock {
  const path = join(home, LOCK_FILE);
  let lock: Sqlite | null = null;
  try {
    createPrivateFile(path);
    lock = new Sqlite(path, { readwrite: true, create: false });
    // Nothing is ever written, so no journal shall lie about in the home.
    lock.run("PRAGMA journal_mode = MEMORY");
    lock.run("PRAGMA busy_timeout = 0");
    lock.run("BEGIN EXCLUSIVE");
  } catch (error) {
    lock?.close();
    if (errorCode(error).startsWith("SQLITE_BUSY")) throw alreadyRunning(home, error);
    throw explainOpenFailure(error, path);
  }
  const held = lock;
  const mark = markOf(path);
  return { isInPlace: () => isMarked(path, mark), release: () => held.close() };
}

function markOf(path: string): string | null {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? null : `${stat.dev}:${stat.ino}`;
}

function isMarked(path: string, mark: string | null): boolean {
  try {
    return markOf(path) === mark;
  } catch {
    // A disk that does not answer has not been taken away.
    return true;
  }
}

function alreadyRunning(home: string, cause: unknown): StoreOpenError {
  const who = readDiscovery(join(home, DISCOVERY_FILE));
  return new StoreOpenError(
    "running",
    `Another daemon${who} has the home "${home}": use it or stop it, or set ALBEDO_HOME to another directory`,
    { cause },
  );
}

/** Who runs, in words; the file may be missing or half of another version. */
function readDiscovery(path: string): string {
  try {
    const found: unknown = JSON.parse(readFileSync(path, "utf8"));
    if (typeof found !== "object" || found === null) return "";
    const parts: string[] = [];
    if ("pid" in found && typeof found.pid === "number") {
      // A daemon that was killed leaves its file until the next one listens.
      if (!isAlive(found.pid)) return "";
      parts.push(`process ${found.pid}`);
    }
    if ("url" in found && typeof found.url === "string") parts.push(`at ${found.url}`);
    return parts.length === 0 ? "" : ` (${parts.join(" ")})`;
  } catch {
    // It only makes the message better.
    return "";
  }
}
