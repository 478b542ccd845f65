/** Named places in the code at which a test may let the process die. */
export interface FaultPoints {
  reached(name: string): void;
}

/** What the store needs of a log; `base/log.ts` fits. */
export interface StoreLog {
  info(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
}

export type StoreOpenCode =
  | "newer"
  | "changed"
  | "damaged"
  | "foreign"
  | "running"
  | "locked"
  | "read_only"
  | "disk_full"
  | "home_invalid";

/** Why the store cannot be opened; the message says what to do. */
export declare class StoreOpenError extends Error {
  readonly code: StoreOpenCode;
  constructor(code: StoreOpenCode, message: string, options?: { cause?: unknown });
}

export declare class Database {
  /** Transactions begun since the start; a replay does not move it. */
  get writes(): number;

  /**
   * Joins the next group commit. `run` may use nothing but the database and may run again when a neighbour took the
   * transaction along; `effect` runs once, synchronously, right after the commit.
   *
   * @throws {Problem} storage_unavailable; a `Problem` that `run` throws is passed on
   */
  write<T>(run: () => T, effect?: (value: T) => void): Promise<T>;

  /** Commits what is queued now. */
  flush(): void;
}
