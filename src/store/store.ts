import { sleep, type Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { Conversation } from "./conversation.ts";
import type { Database, FaultPoints } from "./database.ts";
import { History } from "./history.ts";
import { Images } from "./images.ts";
import { type OpenDatabase, openDatabase } from "./open.ts";
import { Operations } from "./operations.ts";
import { PendingInputs } from "./pending.ts";
import { Receipts } from "./receipts.ts";
import { SessionTable } from "./sessions.ts";
import { Transcript } from "./transcript.ts";
import { Turns } from "./turns.ts";

/**
 * Owns how the tables are put together: one connection, one owner for each table, one door for the floors above.
 */
export interface StoreOptions {
  /** An absolute path; made with mode 0700 where it is missing. */
  readonly home: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly points?: FaultPoints;
  /** How long a lock of another program is waited for. @default {BUSY_TIMEOUT_MS} */
  readonly busyTimeoutMs?: number;
}

export interface Store {
  readonly database: Database;
  readonly operations: Operations;
  readonly conversation: Conversation;
  readonly sessions: SessionTable;
  readonly turns: Turns;
  readonly history: History;
  readonly images: Images;
  /** `false` once the home was removed or replaced: what is stored from then on, nobody finds again. */
  isInPlace(): boolean;
  /** Commits what is queued, brings the log into the database, closes, and lets the home go. */
  close(): Promise<void>;
}

/** @throws {StoreOpenError} newer, damaged, locked, running, read_only, … */
export function openStore(options: StoreOptions): Store {
  const { clock, ids, log, home, points, busyTimeoutMs } = options;
  const opened = openDatabase({
    home,
    clock,
    log,
    ...(points === undefined ? {} : { points }),
    ...(busyTimeoutMs === undefined ? {} : { busyTimeoutMs }),
  });
  const { database } = opened;
  const images = new Images(database, ids);
  const sessions = new SessionTable(database);
  const turns = new Turns(database);
  const transcript = new Transcript(database, images);
  const pending = new PendingInputs(database, images);
  const receipts = new Receipts(database);
  const tables = { database, clock, receipts, pending, sessions, turns, images };
  const operations = new Operations(tables);
  return {
    database,
    operations,
    conversation: new Conversation(tables, operations, transcript),
    sessions,
    turns,
    history: new History(sessions, transcript),
    images,
    isInPlace: () => opened.lock.isInPlace(),
    close: () => close(opened, clock),
  };
}

/** What a close may spend on an inherited log; a graceful stop as a whole has five seconds. */
const CLOSE_WAIT_MS = 2_000;

async function close({ database, wal, lock }: OpenDatabase, clock: Clock): Promise<void> {
  if (database.closed) return;
  database.flush();
  // The last connection that closes brings the whole log in; a large one is better awaited than done twice.
  if (wal.inherited) await Promise.race([wal.settle(), sleep(clock, CLOSE_WAIT_MS)]);
  if (database.closed) return;
  try {
    if (wal.inherited) database.abandon();
    else database.close();
  } finally {
    lock.release();
  }
}
