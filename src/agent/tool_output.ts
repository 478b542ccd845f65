import { type FileHandle, open } from "node:fs/promises";
import { KIB, MIB } from "../base/limits.ts";

/**
 * Owns what a model gets of a long output: its beginning and its end, how much is left out between them, and the
 * file that holds all of it (contract.md, Turns, models, tools).
 */
export const TOOL_OUTPUT_BYTES_MAX = 48 * KIB;
/** What is kept in the file at most. */
export const OVERFLOW_BYTES_MAX = 64 * MIB;

const HALF_BYTES = TOOL_OUTPUT_BYTES_MAX / 2;

/** Takes an output piece by piece; memory stays bounded whatever comes. */
export class OutputCollector {
  readonly #path: string;
  readonly #overflowBytesMax: number;
  #head: Uint8Array[] = [];
  #headBytes = 0;
  #tail: Uint8Array[] = [];
  #tailBytes = 0;
  #totalBytes = 0;
  #file: FileHandle | null = null;
  #fileBytes = 0;
  #hasFailed = false;

  /** @param path where the whole output goes when it does not fit; nothing is there yet */
  constructor(path: string, overflowBytesMax: number = OVERFLOW_BYTES_MAX) {
    this.#path = path;
    this.#overflowBytesMax = overflowBytesMax;
  }

  get totalBytes(): number {
    return this.#totalBytes;
  }

  async add(piece: Uint8Array): Promise<void> {
    if (this.#totalBytes + piece.length > TOOL_OUTPUT_BYTES_MAX) await this.#keep(piece);
    this.#totalBytes += piece.length;
    const room = HALF_BYTES - this.#headBytes;
    if (room > 0) {
      const first = piece.subarray(0, room);
      this.#head.push(first.slice());
      this.#headBytes += first.length;
    }
    if (piece.length > room) this.#addToTail(piece.subarray(Math.max(0, room)).slice());
  }

  /** The newest text, for a look at what goes on. */
  newest(charsMax: number): string {
    const last = (this.#tail.length > 0 ? this.#tail : this.#head).slice(-4);
    return decode(Buffer.concat(last)).slice(-charsMax).toWellFormed();
  }

  /** Closes the file and gives the bounded output. */
  async end(): Promise<string> {
    await this.#file?.close().catch(() => {
      this.#hasFailed = true;
    });
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    if (this.#totalBytes <= TOOL_OUTPUT_BYTES_MAX) {
      return cleanText(decode(Buffer.concat([head, tail])));
    }
    const shownHead = head.subarray(0, utf8Floor(head, head.length));
    const shownTail = tail.subarray(utf8Ceil(tail, Math.max(0, tail.length - HALF_BYTES)));
    const cut = this.#totalBytes - shownHead.length - shownTail.length;
    const note = `[… ${cut} of ${this.#totalBytes} bytes left out; ${this.#whereabouts()} …]`;
    return `${cleanText(decode(shownHead))}\n${note}\n${cleanText(decode(shownTail))}`;
  }

  #whereabouts(): string {
    if (this.#hasFailed) return "the whole output could not be kept";
    if (this.#fileBytes < this.#totalBytes) {
      return `the first ${this.#fileBytes} bytes are in ${this.#path}`;
    }
    return `the whole output is in ${this.#path}`;
  }

  #addToTail(piece: Uint8Array): void {
    this.#tail.push(piece);
    this.#tailBytes += piece.length;
    for (let first = this.#tail[0]; first !== undefined; first = this.#tail[0]) {
      if (this.#tailBytes - first.length < HALF_BYTES) break;
      this.#tail.shift();
      this.#tailBytes -= first.length;
    }
  }

  /** Writes to the file, at first also what came before. A full disk never fails the tool. */
  async #keep(piece: Uint8Array): Promise<void> {
    if (this.#hasFailed) return;
    try {
      if (this.#file === null) {
        this.#file = await open(this.#path, "wx", 0o600);
        for (const earlier of [...this.#head, ...this.#tail])
          await this.#write(this.#file, earlier);
      }
      await this.#write(this.#file, piece);
    } catch {
      this.#hasFailed = true;
    }
  }

  async #write(file: FileHandle, piece: Uint8Array): Promise<void> {
    const room = this.#overflowBytesMax - this.#fileBytes;
    const kept = piece.subarray(0, Math.max(0, room));
    for (let written = 0; written < kept.length;) {
      const { bytesWritten } = await file.write(kept, written);
      written += bytesWritten;
      this.#fileBytes += bytesWritten;
    }
  }
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** Without what only a terminal understands. */
export function cleanText(text: string): string {
  return Bun.stripANSI(text).replaceAll("\0", "␀");
}

/** The largest cut at or below `at` that splits no character. */
export function utf8Floor(bytes: Uint8Array, at: number): number {
  let start = at;
  // A character has at most three bytes behind its first one.
  while (start > 0 && at - start < 4 && isContinuation(bytes[start - 1])) start -= 1;
  const first = bytes[start - 1];
  if (first === undefined) return at;
  return start - 1 + sequenceLength(first) <= at ? at : start - 1;
}

/** The smallest cut at or above `at` that splits no character. */
export function utf8Ceil(bytes: Uint8Array, at: number): number {
  let start = at;
  while (start < bytes.length && start - at < 3 && isContinuation(bytes[start])) start += 1;
  return start;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

function sequenceLength(first: number): number {
  if (first >= 0xf0) return 4;
  if (first >= 0xe0) return 3;
  return first >= 0xc0 ? 2 : 1;
}

/** A line that is not longer than a person would read. */
export function cutLine(line: string, charsMax: number): string {
  if (line.length <= charsMax) return line;
  const shown = cutText(line, charsMax);
  return `${shown}… [${line.length - shown.length} characters left out]`;
}

/** The first `charsMax` characters, one less where that would split a pair. */
export function cutText(text: string, charsMax: number): string {
  const last = text.charCodeAt(charsMax - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? charsMax - 1 : charsMax);
}
