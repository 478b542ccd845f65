import { Database as Sqlite, type SQLQueryBindings, type Statement } from "bun:sqlite";
import { assert } from "../base/assert.ts";
import type { Log } from "../base/log.ts";
import { Problem } from "../wire/problem.ts";
import { errorCode } from "./store_open_error.ts";

/**
 * Owns the one connection that writes, and the group commit (contract.md, Admission and receipts).
 *
 * I1  Every write transaction of the running daemon is begun and ended in `flush` or `transaction`, synchronously:
 *     nothing that runs between two turns of the event loop can see rows that are not committed.
 * I2  Writes take effect in the order in which they were asked for.
 * I3  A write that fails takes no other with it and leaves nothing behind.
 * I4  An effect runs once, after the commit that it belongs to is on disk, and before anything later is written.
 */

/** Named places in the code at which a test may let the process die. */
export interface FaultPoints {
  reached(name: string): void;
}

export const noPoints: FaultPoints = { reached: () => undefined };

/** So many writes share one transaction at most; more are taken in the next one. */
const GROUP_WRITES_MAX = 256;

interface Job {
  readonly run: () => unknown;
  readonly effect: ((value: unknown) => void) | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

interface Settled {
  readonly job: Job;
  readonly value: unknown;
}

interface Failed {
  readonly job: Job;
  readonly error: unknown;
}

/** What became of one try to commit a group. */
interface Outcome {
  readonly committed: readonly Settled[];
  readonly failed: readonly Failed[];
  /** Jobs that lost their transaction, perhaps through no fault of their own. */
  readonly again: readonly Job[];
  /** Whether each of them gets a transaction of its own. */
  readonly apart: boolean;
}

export class Database {
  readonly points: FaultPoints;
  readonly #sqlite: Sqlite;
  readonly #log: Log;
  readonly #statements = new Map<string, Statement<unknown, SQLQueryBindings[]>>();
  #queue: Job[] = [];
  #scheduled = false;
  #sharesReads = false;
  /** Whether a transaction is open that the reads of this turn of the event loop share. */
  #reading = false;
  #closed = false;
  #writes = 0;

  constructor(sqlite: Sqlite, options: { log: Log; points?: FaultPoints }) {
    this.#sqlite = sqlite;
    this.#log = options.log;
    this.points = options.points ?? noPoints;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Transactions begun since the start; a replay does not move it. */
  get writes(): number {
    return this.#writes;
  }

  /** A prepared statement, kept for the next call with the same text. It is to be run at once. */
  query<Row>(sql: string): Statement<Row, SQLQueryBindings[]> {
    if (this.#sharesReads) this.#beginReads();
    return this.#prepared<Row>(sql);
  }

  #prepared<Row>(sql: string): Statement<Row, SQLQueryBindings[]> {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#sqlite.prepare<unknown, SQLQueryBindings[]>(sql);
      this.#statements.set(sql, statement);
    }
    return statement as Statement<Row, SQLQueryBindings[]>;
  }

  /** Runs statements that are not worth keeping. */
  execute(sql: string): void {
    this.#endReads();
    this.#sqlite.run(sql);
  }

  /**
   * Joins the next group commit. Writes that were asked for in the same turn of the event loop share one
   * transaction and one sync, each in a savepoint of its own.
   *
   * `run` is synchronous and uses nothing but the database: it may run again when a neighbour took the transaction
   * along. `effect` runs once, synchronously, right after the commit.
   *
   * @throws {Problem} storage_unavailable; a `Problem` that `run` throws is passed on as it is
   */
  write<T>(run: () => T, effect?: (value: T) => void): Promise<T> {
    if (this.#closed)
      return Promise.reject(new Problem("storage_unavailable", "The store is closed"));
    return new Promise<T>((resolve, reject) => {
      this.#queue.push({
        run,
        effect: effect as ((value: unknown) => void) | undefined,
        resolve: resolve as (value: unknown) => void,
        reject,
      });
      this.#schedule();
    });
  }

  /** Commits what is queued now. */
  flush(): void {
    this.#endReads();
    assert(!this.#sqlite.inTransaction, "A flush inside of a transaction");
    while (this.#queue.length > 0) this.#commit(this.#queue.splice(0, GROUP_WRITES_MAX));
  }

  /**
   * Runs one transaction at once, for the start of the process.
   *
   * @throws whatever `run` or the database throws; nothing is left behind then
   */
  transaction<T>(run: () => T): T {
    this.flush();
    this.#begin();
    try {
      const value = run();
      this.#sqlite.run("COMMIT");
      return value;
    } catch (error) {
      this.#rollback();
      throw error;
    }
  }

  /** Commits what is queued and closes the connection; SQLite then brings the WAL into the file and removes it. */
  close(): void {
    if (this.#closed) return;
    this.flush();
    this.#endReads();
    this.#closed = true;
    for (const statement of this.#statements.values()) statement.finalize();
    this.#statements.clear();
    this.#sqlite.close(true);
  }

  /** Takes no more writes and leaves the connection to the end of the process. */
  abandon(): void {
    this.flush();
    this.#endReads();
    this.#closed = true;
  }

  /**
   * From here on the reads of one turn of the event loop share a transaction: they see the same rows anyway, and
   * each alone would take and give back a lock of its own.
   */
  shareReads(): void {
    this.#sharesReads = true;
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    // After the requests that arrived together have all been read, before the loop waits for more.
    setImmediate(() => {
      this.#scheduled = false;
      if (!this.#closed) this.flush();
    });
  }

  #beginReads(): void {
    if (this.#reading || this.#closed || this.#sqlite.inTransaction) return;
    this.#prepared("BEGIN").run();
    this.#reading = true;
    setImmediate(() => this.#endReads());
  }

  #endReads(): void {
    if (!this.#reading) return;
    this.#reading = false;
    try {
      this.#prepared("COMMIT").run();
    } catch {
      // An error may have ended it, or a statement still be read from. Nothing was written.
      this.#rollback();
    }
  }

  #commit(group: readonly Job[]): void {
    let jobs = group;
    // Each round settles a job or takes the group apart, so this ends.
    while (jobs.length > 0) {
      const outcome = this.#attempt(jobs);
      for (const done of outcome.committed) this.#runEffect(done);
      for (const { job, value } of outcome.committed) job.resolve(value);
      for (const { job, error } of outcome.failed) job.reject(this.#refusal(error));
      if (outcome.apart) {
        for (const job of outcome.again) this.#commit([job]);
        return;
      }
      assert(outcome.again.length < jobs.length, "A group commit got nowhere");
      jobs = outcome.again;
    }
  }

  #attempt(jobs: readonly Job[]): Outcome {
    try {
      this.#begin();
    } catch (error) {
      return failure(jobs, error);
    }
    // One job alone needs no savepoint: the transaction is its own.
    const alone = jobs.length === 1;
    const committed: Settled[] = [];
    const failed: Failed[] = [];
    for (const job of jobs) {
      try {
        committed.push({ job, value: alone ? runSync(job) : this.#runInSavepoint(job) });
      } catch (error) {
        // A full disk or an I/O error ends the whole transaction by itself (SQLite, "Response To Errors Within A
        // Transaction"). The neighbours are innocent: they get another one.
        if (!this.#sqlite.inTransaction) {
          const again = jobs.filter((other) => other !== job);
          return { committed: [], failed: [{ job, error }], again, apart: false };
        }
        failed.push({ job, error });
      }
    }
    if (committed.length === 0) {
      this.#rollback();
      return { committed, failed, again: [], apart: false };
    }
    return this.#end(jobs, committed, failed);
  }

  #runInSavepoint(job: Job): unknown {
    this.#prepared("SAVEPOINT job").run();
    try {
      const value = runSync(job);
      this.#prepared("RELEASE job").run();
      return value;
    } catch (error) {
      if (this.#sqlite.inTransaction) {
        this.#prepared("ROLLBACK TO job").run();
        this.#prepared("RELEASE job").run();
      }
      throw error;
    }
  }

  #end(jobs: readonly Job[], committed: readonly Settled[], failed: readonly Failed[]): Outcome {
    try {
      this.points.reached("group.before_commit");
      this.#prepared("COMMIT").run();
    } catch (error) {
      this.#rollback();
      // What does not fit on the disk may be one of them alone.
      if (errorCode(error) === "SQLITE_FULL" && jobs.length > 1) {
        return { committed: [], failed: [], again: jobs, apart: true };
      }
      return failure(jobs, error);
    }
    this.points.reached("group.after_commit");
    return { committed, failed, again: [], apart: false };
  }

  #begin(): void {
    this.#endReads();
    assert(!this.#sqlite.inTransaction, "A transaction inside of a transaction");
    this.#prepared("BEGIN IMMEDIATE").run();
    this.#writes += 1;
  }

  #rollback(): void {
    // SQLite may have rolled back by itself.
    if (this.#sqlite.inTransaction) this.#sqlite.run("ROLLBACK");
  }

  #runEffect({ job, value }: Settled): void {
    try {
      job.effect?.(value);
    } catch (error) {
      // The commit stands whatever its effect did; the fault is the program's.
      this.#log.error("The effect of a commit failed", { error: describe(error) });
    }
  }

  #refusal(error: unknown): Problem {
    if (error instanceof Problem) return error;
    this.#log.error("A write failed", { error: describe(error), code: errorCode(error) });
    return new Problem("storage_unavailable", undefined, { cause: error });
  }
}

function failure(jobs: readonly Job[], error: unknown): Outcome {
  return { committed: [], failed: jobs.map((job) => ({ job, error })), again: [], apart: false };
}

function runSync(job: Job): unknown {
  const value = job.run();
  assert(!(value instanceof Promise), "A write must be synchronous");
  return value;
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : "not an error";
}
