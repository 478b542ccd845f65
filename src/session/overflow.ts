import { mkdir, readdir, rm, rmdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { GIB } from "../base/limits.ts";
import type { Log } from "../base/log.ts";

/**
 * Owns where tools put what did not fit into their answer: `<home>/tool-output/<session_id>/`, mode 0700. A model may
 * read it for as long as its conversation is fresh; it is no part of the history.
 *
 * I1 What lies here longer than `KEPT_MS` goes, and the oldest before that when there is more than `BYTES_MAX`.
 * I2 A session's output goes with it. What could not be removed then goes by its age.
 */
const DIRECTORY = "tool-output";
const KEPT_MS = 7 * 24 * 3_600_000;
const BYTES_MAX = 2 * GIB;
/** The folder is walked no more often than this. */
const SWEEP_EVERY_MS = 3_600_000;

export interface OverflowOptions {
  /** The data directory. */
  readonly home: string;
  readonly clock: Clock;
  readonly log: Log;
  /** @default {BYTES_MAX} */
  readonly bytesMax?: number;
}

interface Kept {
  readonly path: string;
  readonly bytes: number;
  /** Milliseconds since the epoch. */
  readonly writtenAt: number;
}

export class Overflow {
  readonly #root: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #bytesMax: number;
  /** Monotonic; the first sweep may come at once. */
  #sweptAt = -SWEEP_EVERY_MS;

  constructor(options: OverflowOptions) {
    this.#root = join(options.home, DIRECTORY);
    this.#clock = options.clock;
    this.#log = options.log;
    this.#bytesMax = options.bytesMax ?? BYTES_MAX;
  }

  /** The session's folder, made where it is missing. Never rejects: a tool goes on without one. */
  async directory(sessionId: string): Promise<string> {
    const path = join(this.#root, sessionId);
    await this.#quietly(() => mkdir(path, { recursive: true, mode: 0o700 }));
    return path;
  }

  /** Removes what a session's tools left. Never rejects. */
  remove(sessionId: string): Promise<void> {
    return this.#quietly(() => rm(join(this.#root, sessionId), { recursive: true, force: true }));
  }

  /** Removes what is old or too much, at most once an hour; the value is how many files went. Never rejects. */
  async sweep(): Promise<number> {
    const now = this.#clock.monotonic();
    if (now - this.#sweptAt < SWEEP_EVERY_MS) return 0;
    this.#sweptAt = now;
    let removed = 0;
    await this.#quietly(async () => {
      removed = await this.#removeSurplus();
    });
    return removed;
  }

  async #removeSurplus(): Promise<number> {
    const kept: Kept[] = [];
    for (const sessionId of await namesIn(this.#root)) {
      const directory = join(this.#root, sessionId);
      for (const name of await namesIn(directory)) {
        const path = join(directory, name);
        const { size, mtimeMs } = await stat(path);
        kept.push({ path, bytes: size, writtenAt: mtimeMs });
      }
    }
    kept.sort((a, b) => a.writtenAt - b.writtenAt);
    let bytes = kept.reduce((sum, file) => sum + file.bytes, 0);
    const oldest = this.#clock.now() - KEPT_MS;
    let removed = 0;
    for (const file of kept) {
      if (file.writtenAt >= oldest && bytes <= this.#bytesMax) break;
      await rm(file.path, { recursive: true, force: true });
      bytes -= file.bytes;
      removed += 1;
    }
    for (const sessionId of await namesIn(this.#root)) {
      const directory = join(this.#root, sessionId);
      if ((await namesIn(directory)).length === 0) await rmdir(directory);
    }
    return removed;
  }

  async #quietly(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#log.warn("The folder for the output of tools cannot be used", { error });
    }
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return [];
    throw error;
  }
}
