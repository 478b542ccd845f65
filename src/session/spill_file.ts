import { closeSync, constants, lstatSync, openSync, writeSync } from "node:fs";
import { open } from "node:fs/promises";
import { SPILL_PAGE_BYTES_MAX, SPILL_WRITE_BYTES } from "../base/limits.ts";

/**
 * Owns one file of spilled output: buffered appends, and reads of a prefix (sessions.md, Stream failures and
 * recovery).
 *
 * I1 The file on disk is a prefix of what was appended, or the file has failed for good. A file that was removed,
 *    cut or replaced from outside is noticed and counts as failed: it is never made again with a part of its content.
 * I2 No descriptor stays open between two calls, so that any number of files costs none.
 * I3 Writes are synchronous and at most a little over `SPILL_WRITE_BYTES` unless one append is longer.
 */
export interface SpillFileOptions {
  readonly sessionId: string;
  readonly contentId: string;
  readonly path: string;
}

export interface SpillRead {
  readonly text: string;
  /** The offset behind the last byte read. */
  readonly end: number;
}

/** Longest UTF-8 sequence less its first byte: how far a cut may have to go back. */
const UTF8_CONTINUATION_MAX = 3;

export class SpillFile {
  readonly sessionId: string;
  readonly contentId: string;
  readonly path: string;
  /** Its run is over. */
  retired = false;
  /** When its last reference ends; milliseconds since the epoch, 0 without one. */
  expiresAt = 0;
  #pending: string[] = [];
  #pendingBytes = 0;
  #written = 0;
  #failed = false;

  constructor(options: SpillFileOptions) {
    this.sessionId = options.sessionId;
    this.contentId = options.contentId;
    this.path = options.path;
  }

  /** Bytes that were appended. */
  get bytes(): number {
    return this.#written + this.#pendingBytes;
  }

  get failed(): boolean {
    return this.#failed;
  }

  /** Gives up the content: nothing is added any more. */
  fail(): void {
    this.#failed = true;
    this.#pending = [];
  }

  /** @returns whether all of the content is kept */
  append(text: string, bytes: number): boolean {
    if (this.#failed) return false;
    this.#pending.push(text);
    this.#pendingBytes += bytes;
    if (this.#pendingBytes >= SPILL_WRITE_BYTES) this.#writePending();
    return !this.#failed;
  }

  /** Writes what is buffered; the value is the file's length, or `null` when the content could not be kept. */
  flush(): number | null {
    if (!this.#failed && this.#pendingBytes > 0) this.#writePending();
    if (this.#failed) return null;
    try {
      // Not through a link, which a read does not follow either.
      const found = lstatSync(this.path);
      if (!found.isFile() || found.size !== this.#written) this.fail();
    } catch {
      this.fail();
    }
    return this.#failed ? null : this.#written;
  }

  /**
   * A page of the first `cutoff` bytes, cut between characters. What was captured before the content failed stays
   * readable.
   *
   * @returns `null` when the file cannot be read whole, `misplaced` when the offset is inside of a character
   */
  async read(offset: number, cutoff: number): Promise<SpillRead | "misplaced" | null> {
    const wanted = Math.min(SPILL_PAGE_BYTES_MAX, cutoff - offset);
    const buffer = Buffer.allocUnsafe(wanted);
    try {
      const file = await open(this.path, constants.O_RDONLY | constants.O_NOFOLLOW);
      try {
        let filled = 0;
        while (filled < wanted) {
          const { bytesRead } = await file.read(buffer, filled, wanted - filled, offset + filled);
          if (bytesRead === 0) return null;
          filled += bytesRead;
        }
      } finally {
        await file.close();
      }
    } catch {
      return null;
    }
    if (wanted > 0 && isContinuation(buffer[0])) return "misplaced";
    const end = offset + wanted === cutoff ? wanted : characterBoundary(buffer);
    return { text: buffer.toString("utf8", 0, end), end: offset + end };
  }

  #writePending(): void {
    const bytes = Buffer.from(this.#pending.join(""));
    this.#pending = [];
    try {
      // Made once: where it has gone, a later write must not begin it again. `flush` looks at its length.
      const first = this.#written === 0;
      const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW;
      const descriptor = openSync(
        this.path,
        first ? flags | constants.O_CREAT | constants.O_EXCL : flags,
        0o600,
      );
      try {
        for (let done = 0; done < bytes.length;) done += writeSync(descriptor, bytes, done);
      } finally {
        closeSync(descriptor);
      }
      this.#written += bytes.length;
      this.#pendingBytes = 0;
    } catch {
      // Whatever the reason, the content is not whole any more; the segment says so.
      this.fail();
    }
  }
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** The end of the last whole character of a buffer that was cut anywhere. */
function characterBoundary(buffer: Uint8Array): number {
  for (let back = 1; back <= UTF8_CONTINUATION_MAX + 1 && back <= buffer.length; back += 1) {
    const byte = buffer[buffer.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length <= back ? buffer.length : buffer.length - back;
  }
  return buffer.length;
}
