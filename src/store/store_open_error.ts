/**
 * Owns the reasons why the store cannot be opened (contract.md, Files, process, safety). Each message says what to
 * do next; the process prints it and ends.
 */
export type StoreOpenCode =
  /** Written by a newer program. */
  | "newer"
  /** A migration that was applied is not the one this program knows. */
  | "changed"
  | "damaged"
  /** A database of something else. */
  | "foreign"
  /** Another daemon has this home. */
  | "running"
  /** Another program has the database. */
  | "locked"
  | "read_only"
  | "disk_full"
  /** The disk answered with an error. */
  | "disk_failed"
  /** The home is not a directory that can be used. */
  | "home_invalid";

export class StoreOpenError extends Error {
  override readonly name = "StoreOpenError";
  readonly code: StoreOpenCode;

  constructor(code: StoreOpenCode, message: string, options: { cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
  }
}

/** The `code` of an SQLite or a system error; the empty string for anything else. */
export function errorCode(error: unknown): string {
  if (typeof error !== "object" || error === null || !("code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}

/**
 * Says in words what a failed open means. An error that is no failure of the file comes back as it is.
 *
 * @param path the file or directory that was being opened
 */
export function explainOpenFailure(error: unknown, path: string): unknown {
  if (error instanceof StoreOpenError) return error;
  const code = errorCode(error);
  const cause = { cause: error };
  if (code === "SQLITE_NOTADB" || code.startsWith("SQLITE_CORRUPT")) {
    return new StoreOpenError(
      "damaged",
      `The database "${path}" is damaged: move it away together with its "-wal" and "-shm" files, ` +
        "or put a backup in its place, then start again",
      cause,
    );
  }
  if (code.startsWith("SQLITE_BUSY") || code.startsWith("SQLITE_LOCKED")) {
    return new StoreOpenError(
      "locked",
      `The database "${path}" is locked by another program: close what has it open, then start again`,
      cause,
    );
  }
  if (code === "SQLITE_FULL" || code === "ENOSPC" || code === "EDQUOT") {
    return new StoreOpenError(
      "disk_full",
      `There is no room on the disk of "${path}": free some space, then start again`,
      cause,
    );
  }
  if (/^(ENOTDIR|ENOENT|EEXIST|ENAMETOOLONG|ELOOP)$/.test(code)) {
    return new StoreOpenError(
      "home_invalid",
      `"${path}" cannot be used as a directory: set ALBEDO_HOME to another one, then start again`,
      cause,
    );
  }
  if (code.startsWith("SQLITE_IOERR") || code === "EIO") {
    return new StoreOpenError(
      "disk_failed",
      `The disk of "${path}" failed (${code}): check the disk and its free space, then start again`,
      cause,
    );
  }
  if (/^(SQLITE_(READONLY|CANTOPEN|PERM|AUTH)|EROFS$|EACCES$|EPERM$)/.test(code)) {
    return new StoreOpenError(
      "read_only",
      `"${path}" cannot be written (${code}): make the disk and the directory writable for this user, ` +
        "or set ALBEDO_HOME to another directory, then start again",
      cause,
    );
  }
  return error;
}
