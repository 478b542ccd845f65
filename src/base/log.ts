import {
  closeSync,
  fchmodSync,
  fstatSync,
  mkdirSync,
  openSync,
  renameSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { KIB, MIB } from "./limits.ts";
import { redactFields, scrub } from "./redact.ts";

/**
 * Owns the daemon's log: JSON lines in `<home>/logs/daemon.log`, rotated, mode 0600.
 *
 * I1 A line is handed to the kernel before `info` and its like return, so that a killed daemon has logged what
 *    it did; it is never synced, so that logging costs no disk.
 * I2 No token, key, header, body or prompt gets in: `redact.ts` drops fields by name and scrubs what is left.
 * I3 A log that cannot be written never fails the work it speaks of; what was lost is counted and said later.
 */
export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export type LogFields = Readonly<Record<string, unknown>>;

export interface Log {
  /** @param message a sentence that is the same at every call; what varies goes in `fields` */
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface LogFile extends Log {
  readonly path: string;
  close(): void;
}

export const LOG_FILE_NAME = "daemon.log";

const FILE_BYTES_MAX = 4 * MIB;
const FILES_MAX = 5;
const LINE_CHARS_MAX = 16 * KIB;

/** Says nothing. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Opens the log for appending.
 *
 * @param options.fileBytesMax a file that would grow past this is set aside first
 * @throws when the directory cannot be made or the file not opened
 */
export function createLog(options: {
  readonly directory: string;
  readonly level: LogLevel;
  readonly clock: { now(): number };
  readonly fileBytesMax?: number;
}): LogFile {
  mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  const path = join(options.directory, LOG_FILE_NAME);
  const file = new RotatingFile(path, options.fileBytesMax ?? FILE_BYTES_MAX);
  const lowest = LOG_LEVELS.indexOf(options.level);
  const write = (level: LogLevel, message: string, fields: LogFields): void => {
    if (LOG_LEVELS.indexOf(level) < lowest) return;
    file.append(formatLine(options.clock.now(), level, message, fields));
  };
  return {
    path,
    debug: (message, fields = {}) => write("debug", message, fields),
    info: (message, fields = {}) => write("info", message, fields),
    warn: (message, fields = {}) => write("warn", message, fields),
    error: (message, fields = {}) => write("error", message, fields),
    close: () => file.close(),
  };
}

/** One line of the log. Fields cannot take the place of `time`, `level` and `message`. */
export function formatLine(
  now: number,
  level: LogLevel,
  message: string,
  fields: LogFields,
): string {
  const fixed = { time: new Date(now).toISOString(), level, message: scrub(message) };
  let line: string;
  try {
    line = JSON.stringify({ ...fixed, ...redactFields(fields), ...fixed });
  } catch {
    line = JSON.stringify({ ...fixed, fields: "could not be written down" });
  }
  if (line.length > LINE_CHARS_MAX) {
    line = JSON.stringify({ ...fixed, fields: `left out: ${line.length} characters` });
  }
  return `${line}\n`;
}

/** An append-only file; the older ones are `.1` (newest) to `.4`. */
class RotatingFile {
  readonly #path: string;
  readonly #bytesMax: number;
  #descriptor: number | null;
  #bytes = 0;
  #lost = 0;

  constructor(path: string, bytesMax: number) {
    this.#path = path;
    this.#bytesMax = bytesMax;
    this.#descriptor = this.#open();
  }

  append(line: string): void {
    try {
      this.#descriptor ??= this.#open();
      const bytes = new TextEncoder().encode(line);
      if (this.#bytes > 0 && this.#bytes + bytes.length > this.#bytesMax) this.#rotate();
      if (this.#lost > 0) this.#write(new TextEncoder().encode(`{"lost":${this.#lost}}\n`));
      this.#lost = 0;
      this.#write(bytes);
    } catch {
      this.#lost += 1;
      this.close();
    }
  }

  close(): void {
    if (this.#descriptor === null) return;
    const descriptor = this.#descriptor;
    this.#descriptor = null;
    closeSync(descriptor);
  }

  #open(): number {
    const descriptor = openSync(this.#path, "a", 0o600);
    // The file may be there from a time when it was readable to others.
    fchmodSync(descriptor, 0o600);
    this.#bytes = fstatSync(descriptor).size;
    return descriptor;
  }

  #write(bytes: Uint8Array): void {
    if (this.#descriptor === null) return;
    let written = 0;
    while (written < bytes.length) {
      written += writeSync(this.#descriptor, bytes, written);
    }
    this.#bytes += bytes.length;
  }

  #rotate(): void {
    this.close();
    for (let age = FILES_MAX - 1; age >= 1; age -= 1) {
      const older = age === 1 ? this.#path : `${this.#path}.${age - 1}`;
      try {
        renameSync(older, `${this.#path}.${age}`);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    }
    this.#descriptor = this.#open();
  }
}
