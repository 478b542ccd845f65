import { mkdirSync, readdirSync, rmSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import type { Ids, RandomSource } from "../base/ids.ts";
import {
  SPILL_FILES_MAX,
  SPILL_REFERENCE_MS,
  SPILL_RUN_BYTES_MAX,
  SPILL_TOTAL_BYTES_MAX,
} from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ActiveOutputPage, ContentReference } from "../wire/event.ts";
import { Problem } from "../wire/problem.ts";
import { SpillFile } from "./spill_file.ts";
import { SpillTokens } from "./spill_token.ts";

/**
 * Owns the temporary files of output that is too large to stay in memory (sessions.md, Stream failures and
 * recovery): `<home>/spill/<instance_id>/<session_id>/<content_id>`, directories 0700, files 0600.
 *
 * I1 The owner is the daemon's instance: whatever lies under another instance's name is an orphan.
 * I2 At most `SPILL_RUN_BYTES_MAX` a run, `SPILL_TOTAL_BYTES_MAX` and `SPILL_FILES_MAX` together.
 * I3 A reference stays good for `SPILL_REFERENCE_MS`, also when its run was committed or retried; a file goes
 *    when its run is over and its last reference has expired. A session's deletion takes all at once.
 * I4 A failing disk is never an error here: a file that cannot be kept whole says so, and is never read in part.
 */
export interface SpillOptions {
  readonly home: string;
  readonly instanceId: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly random: RandomSource;
  readonly log: Log;
  readonly limits?: Partial<SpillLimits>;
}

export interface SpillLimits {
  /** @default {SPILL_RUN_BYTES_MAX} */
  readonly runBytesMax: number;
  /** @default {SPILL_TOTAL_BYTES_MAX} */
  readonly totalBytesMax: number;
  /** @default {SPILL_FILES_MAX} */
  readonly filesMax: number;
}

const SPILL_DIRECTORY = "spill";

export class Spill {
  readonly #root: string;
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #log: Log;
  readonly #limits: SpillLimits;
  readonly #tokens: SpillTokens;
  readonly #instanceId: string;
  readonly #files = new Map<string, SpillFile>();
  #bytes = 0;

  constructor(options: SpillOptions) {
    this.#root = join(options.home, SPILL_DIRECTORY);
    this.#instanceId = options.instanceId;
    this.#directory = join(this.#root, options.instanceId);
    this.#clock = options.clock;
    this.#ids = options.ids;
    this.#log = options.log;
    this.#tokens = new SpillTokens(options.instanceId, options.random);
    this.#limits = {
      runBytesMax: options.limits?.runBytesMax ?? SPILL_RUN_BYTES_MAX,
      totalBytesMax: options.limits?.totalBytesMax ?? SPILL_TOTAL_BYTES_MAX,
      filesMax: options.limits?.filesMax ?? SPILL_FILES_MAX,
    };
  }

  /** Files that are kept, whether their run is over or not. */
  get fileCount(): number {
    return this.#files.size;
  }

  /** Bytes of all files that are kept, unwritten ones included. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Where one run of a session spills to. */
  run(sessionId: string): SpillRun {
    return new SpillRun({
      create: () => this.#create(sessionId),
      take: (bytes) => this.#take(bytes),
      reference: (file) => this.#reference(file),
      retire: (file) => this.#retire(file),
      bytesMax: this.#limits.runBytesMax,
    });
  }

  /**
   * One page of captured output.
   *
   * @throws {Problem} active_output_not_found, active_output_expired, active_output_unavailable, invalid_request
   */
  async page(
    sessionId: string,
    contentId: string,
    query: { readonly snapshot: string; readonly next: string | null },
  ): Promise<ActiveOutputPage> {
    const token = this.#tokens.read(sessionId, contentId, query.snapshot);
    if (token.kind === "malformed") throw malformed("snapshot");
    if (token.kind === "forged") throw new Problem("active_output_not_found");
    const now = this.#clock.now();
    if (token.kind === "foreign" || now >= token.issuedAt + SPILL_REFERENCE_MS) {
      throw new Problem("active_output_expired");
    }
    const file = this.#files.get(contentId);
    if (file === undefined) throw new Problem("active_output_expired");
    const offset = query.next === null ? 0 : parseOffset(query.next, token.cutoff);
    const page = await file.read(offset, token.cutoff);
    if (page === null) throw new Problem("active_output_unavailable");
    if (page === "misplaced") throw malformed("next");
    return {
      content_id: contentId,
      snapshot: query.snapshot,
      text: page.text,
      next: page.end === token.cutoff ? null : String(page.end),
    };
  }

  /** Takes all files of a session away; their references answer 410 from now on. */
  revoke(sessionId: string): void {
    for (const file of this.#files.values()) {
      if (file.sessionId === sessionId) this.#remove(file);
    }
  }

  /** Removes what no good reference points to any more; the value is how many files went. */
  sweep(): number {
    const now = this.#clock.now();
    let removed = 0;
    for (const file of this.#files.values()) {
      if (!file.retired || file.expiresAt > now) continue;
      this.#remove(file);
      removed += 1;
    }
    return removed;
  }

  /** At start: removes what instances that are gone left behind. */
  removeOrphans(): void {
    let names: string[];
    try {
      names = readdirSync(this.#root);
    } catch (error) {
      // Nothing was ever spilled, or there is no directory to look into; a write will tell.
      this.#log.debug("No spilled output to look through", { error });
      return;
    }
    for (const name of names) {
      if (name === this.#instanceId) continue;
      this.#quietly(() => rmSync(join(this.#root, name), { recursive: true, force: true }));
    }
  }

  /** Removes this instance's files; for a daemon that stops. */
  close(): void {
    this.#files.clear();
    this.#bytes = 0;
    this.#quietly(() => rmSync(this.#directory, { recursive: true, force: true }));
  }

  #create(sessionId: string): SpillFile | null {
    if (this.#files.size >= this.#limits.filesMax) this.sweep();
    if (this.#files.size >= this.#limits.filesMax) return null;
    const directory = join(this.#directory, sessionId);
    const contentId = this.#ids.uuidv7();
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
    } catch (error) {
      this.#log.warn("Output cannot be spilled", { error });
      return null;
    }
    const file = new SpillFile({ sessionId, contentId, path: join(directory, contentId) });
    this.#files.set(contentId, file);
    return file;
  }

  #take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#limits.totalBytesMax) this.sweep();
    if (this.#bytes + bytes > this.#limits.totalBytesMax) return false;
    this.#bytes += bytes;
    return true;
  }

  #reference(file: SpillFile): ContentReference | null {
    const cutoff = file.flush();
    if (cutoff === null) {
      this.#log.warn("Spilled output could not be kept", { session_id: file.sessionId });
      return null;
    }
    const issuedAt = this.#clock.now();
    file.expiresAt = Math.max(file.expiresAt, issuedAt + SPILL_REFERENCE_MS);
    return {
      content_id: file.contentId,
      snapshot: this.#tokens.issue({
        sessionId: file.sessionId,
        contentId: file.contentId,
        cutoff,
        issuedAt,
      }),
      bytes: cutoff,
      expires_at: issuedAt + SPILL_REFERENCE_MS,
    };
  }

  #retire(file: SpillFile): void {
    file.retired = true;
    if (file.expiresAt <= this.#clock.now()) this.#remove(file);
  }

  #remove(file: SpillFile): void {
    if (!this.#files.delete(file.contentId)) return;
    this.#bytes -= file.bytes;
    this.#quietly(() => {
      rmSync(file.path, { force: true });
      rmdirSync(join(this.#directory, file.sessionId));
    });
  }

  /** Runs a removal; what cannot be removed now is an orphan of the next start. */
  #quietly(removal: () => void): void {
    try {
      removal();
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOTEMPTY" || code === "ENOENT" || code === "ENOTDIR") return;
      this.#log.warn("Spilled output could not be removed", { error });
    }
  }
}

interface SpillRunPorts {
  readonly create: () => SpillFile | null;
  readonly take: (bytes: number) => boolean;
  readonly reference: (file: SpillFile) => ContentReference | null;
  readonly retire: (file: SpillFile) => void;
  readonly bytesMax: number;
}

/** What one run (a turn) has spilled, and what it may. */
export class SpillRun {
  readonly #ports: SpillRunPorts;
  readonly #open = new Set<SpillFile>();
  #bytes = 0;

  constructor(ports: SpillRunPorts) {
    this.#ports = ports;
  }

  /** A new content, or `null` where none can be kept. */
  open(): SpillContent | null {
    const file = this.#ports.create();
    if (file === null) return null;
    this.#open.add(file);
    return {
      append: (text) => this.#append(file, text),
      capture: () => this.#ports.reference(file),
    };
  }

  /** All that was provisional is over: contents without a good reference go now, others with their last one. */
  retire(): void {
    for (const file of this.#open) this.#ports.retire(file);
    this.#open.clear();
  }

  #append(file: SpillFile, text: string): boolean {
    if (file.failed) return false;
    const bytes = Buffer.byteLength(text);
    if (this.#bytes + bytes > this.#ports.bytesMax || !this.#ports.take(bytes)) {
      file.fail();
      return false;
    }
    this.#bytes += bytes;
    return file.append(text, bytes);
  }
}

/** One content that grows. */
export interface SpillContent {
  /** Whether all of the content is kept so far. */
  append(text: string): boolean;
  /** A reference to what was appended up to now, or `null` when it could not be kept. */
  capture(): ContentReference | null;
}

function parseOffset(next: string, cutoff: number): number {
  const offset = /^\d{1,15}$/.test(next) ? Number(next) : Number.NaN;
  if (!(offset < cutoff)) throw malformed("next");
  return offset;
}

function malformed(parameter: "snapshot" | "next"): Problem {
  return new Problem("invalid_request", `'${parameter}' is not one that was given out`, {
    fields: [{ pointer: `?${parameter}`, detail: "Must be one that was given out" }],
  });
}
