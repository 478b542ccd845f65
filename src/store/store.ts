import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Conversation } from "./conversation.ts";
import type { Database, FaultPoints, StoreLog } from "./database.ts";
import type { History } from "./history.ts";
import type { Images } from "./images.ts";
import type { Operations } from "./operations.ts";
import type { SessionTable } from "./sessions.ts";
import type { Turns } from "./turns.ts";

export interface StoreOptions {
  /** An absolute path; made with mode 0700 where it is missing. */
  readonly home: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: StoreLog;
  readonly points?: FaultPoints;
  /** @default {BUSY_TIMEOUT_MS} */
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
  /** Commits what is queued, checkpoints, closes and lets the home go. */
  close(): Promise<void>;
}

/** @throws {StoreOpenError} newer, damaged, locked, read-only, … */
export declare function openStore(options: StoreOptions): Store;
