import { statSync } from "node:fs";
import type { Clock } from "../base/clock.ts";
import { MIB } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { Database } from "./database.ts";

/**
 * Owns how large the write-ahead log may get (contract.md, What others' users ran into).
 *
 * In daily work a commit checkpoints every `CHECKPOINT_PAGES`: a few milliseconds. A log that a kill left behind can
 * be far larger, and the first commit would then copy all of it and block for seconds. So a large inherited log is
 * brought in by a worker with a connection of its own, while the daemon works, and only then the bound applies.
 */
const CHECKPOINT_PAGES = 1000;
const WAL_BYTES_MAX = 8 * MIB;
/** A log up to this is checkpointed by the first commit, within about a tenth of a second. */
const INHERITED_BYTES_MAX = 16 * MIB;

/** The start of the daemon shall not compete with a checkpoint for the disk. */
const CHECKPOINT_DELAY_MS = 1000;

/**
 * Plain text in JavaScript, so that it needs no file of its own in a compiled executable. The second pass takes what
 * was written during the first.
 */
const WORKER_SOURCE = `
import { Database } from "bun:sqlite";
self.onmessage = ({ data }) => {
  let failure = null;
  try {
    const database = new Database(data.path, { readwrite: true, create: false });
    database.run("PRAGMA busy_timeout = " + data.busyTimeoutMs);
    database.run("PRAGMA synchronous = FULL");
    for (let pass = 0; pass < 2; pass += 1) database.query("PRAGMA wal_checkpoint(PASSIVE)").get();
    database.close();
  } catch (error) {
    failure = String(error && error.message);
  }
  postMessage(failure);
};
`;

export interface Wal {
  /** Whether a large inherited log is still to be brought in. */
  readonly inherited: boolean;
  /** Brings an inherited log in now, if that has not begun; resolves when none is left. */
  settle(): Promise<void>;
}

/** The size of the log beside the database, 0 where there is none. */
export function walBytes(path: string): number {
  return statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
}

/** Bounds the log from here on; to be called before the first write. */
export function boundWal(
  database: Database,
  options: { path: string; inheritedBytes: number; busyTimeoutMs: number; clock: Clock; log: Log },
): Wal {
  const { path, inheritedBytes, busyTimeoutMs, clock, log } = options;
  const bound = (): void => {
    database.execute(`PRAGMA journal_size_limit = ${WAL_BYTES_MAX}`);
    database.execute(`PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  };
  if (inheritedBytes <= INHERITED_BYTES_MAX) {
    bound();
    return { inherited: false, settle: () => Promise.resolve() };
  }
  database.execute("PRAGMA wal_autocheckpoint = 0");
  log.info("A large write-ahead log is brought in aside", { bytes: inheritedBytes });
  let inherited = true;
  let running: Promise<void> | null = null;
  const run = async (): Promise<void> => {
    timer.cancel();
    const failure = await checkpointAside(path, busyTimeoutMs);
    inherited = false;
    if (failure !== null) log.error("The checkpoint aside failed", { error: failure });
    // Also after a failure: the log must not grow for ever, so the next commit takes its turn.
    if (!database.closed) bound();
  };
  const settle = (): Promise<void> => (running ??= run());
  const timer = clock.timer(CHECKPOINT_DELAY_MS, () => void settle());
  return {
    get inherited() {
      return inherited;
    },
    settle,
  };
}

/** The value is what went wrong, or `null`. */
function checkpointAside(path: string, busyTimeoutMs: number): Promise<string | null> {
  const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
  return new Promise<string | null>((resolve) => {
    const worker = new Worker(url);
    const finish = (failure: string | null): void => {
      worker.terminate();
      URL.revokeObjectURL(url);
      resolve(failure);
    };
    worker.addEventListener("message", ({ data }) =>
      finish(typeof data === "string" ? data : null),
    );
    worker.addEventListener("error", ({ message }) => finish(message));
    worker.postMessage({ path, busyTimeoutMs });
  });
}
