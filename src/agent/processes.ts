import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Clock, sleep } from "../base/clock.ts";
import type { Variables } from "../base/environment.ts";
import { type RandomSource, systemRandom } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import {
  type ProcessStat,
  readBootId,
  readStartVariable,
  readStat,
  readStats,
} from "./process_table.ts";
import { settledWithin } from "./waiting.ts";

/**
 * Owns the processes that tools start (contract.md, Files, process, safety; What others' users ran into).
 *
 * I1 Each command leads a session and a process group of its own, so that it can be ended with all it started.
 * I2 Before it is started a record of it is on disk, and the record goes when the last process of it has ended. A
 *    daemon that is killed leaves records; the next one ends what they name.
 * I3 Nobody else's process is ever ended: an orphan is known by pid and start time in the same boot, or by the
 *    random mark in its environment.
 *
 * A process that moves to a session of its own has left on purpose and is no longer ours.
 */

/** The variable that holds the mark. */
export const PROCESS_MARK_VARIABLE = "ALBEDO_PROCESS";

const RECORDS_DIRECTORY = "processes";
/** How long a process may clean up after SIGTERM. */
const TERM_GRACE_MS = 1_500;
/** The same for one whose daemon is gone: the next one waits for it before it listens. */
const ORPHAN_GRACE_MS = 200;
/** How long the end is waited for after SIGKILL; only a process stuck in the kernel takes longer. */
const KILL_WAIT_MS = 1_000;
const POLL_MS = 15;

interface ProcessRecord {
  readonly mark: string;
  /** `null` until the process has been started. */
  readonly pid: number | null;
  readonly start: string | null;
  readonly bootId: string | null;
}

type Child = Bun.Subprocess<"ignore" | Uint8Array, "pipe", "ignore">;

export interface SpawnOptions {
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Variables;
  /** What the process reads; nothing when left out. */
  readonly stdin?: Uint8Array;
}

export class ProcessGroups {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #random: RandomSource;
  readonly #log: Log;
  readonly #groups = new Set<ProcessGroup>();

  constructor(dependencies: {
    /** The data directory. */
    readonly home: string;
    readonly clock: Clock;
    readonly log: Log;
    readonly random?: RandomSource;
  }) {
    this.#directory = join(dependencies.home, RECORDS_DIRECTORY);
    this.#clock = dependencies.clock;
    this.#random = dependencies.random ?? systemRandom;
    this.#log = dependencies.log;
  }

  /**
   * Starts a command as the leader of a new session. Its output and errors come as one stream, in order.
   *
   * @throws when it cannot be started or recorded
   */
  spawn(options: SpawnOptions): ProcessGroup {
    const mark = this.#newMark();
    const path = join(this.#directory, `${mark}.json`);
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const record: ProcessRecord = { mark, pid: null, start: null, bootId: readBootId() };
    writeRecord(path, record);
    let child: Child;
    try {
      child = startChild(options, mark);
      writeRecord(path, { ...record, pid: child.pid, start: readStat(child.pid)?.start ?? null });
    } catch (error) {
      rmSync(path, { force: true });
      throw error;
    }
    const group = new ProcessGroup(child, mark, this.#clock, () => {
      rmSync(path, { force: true });
      this.#groups.delete(group);
    });
    this.#groups.add(group);
    return group;
  }

  /** Ends everything that still runs; the daemon stops. */
  async endAll(): Promise<void> {
    await Promise.all([...this.#groups].map((group) => group.end()));
  }

  /**
   * Ends what a daemon that was killed left behind. The caller must be the only daemon of this home, and must not
   * have started anything yet.
   *
   * @returns how many processes were found
   */
  async reapOrphans(): Promise<number> {
    const records = readRecords(this.#directory);
    if (records.length === 0) return 0;
    const orphans = findOrphans(records, readStats(), readBootId());
    await endOrphans(orphans, this.#clock);
    for (const { path } of records) rmSync(path, { force: true });
    if (orphans.length > 0) {
      this.#log.warn("Ended processes that an earlier daemon had left behind", {
        count: orphans.length,
      });
    }
    return orphans.length;
  }

  #newMark(): string {
    const bytes = new Uint8Array(16);
    this.#random(bytes);
    return bytes.toHex();
  }
}

function startChild(options: SpawnOptions, mark: string): Child {
  // The small shell only joins both outputs and is then replaced by the command.
  return Bun.spawn(["/bin/sh", "-c", 'exec 2>&1; exec "$@"', "sh", ...options.command], {
    cwd: options.cwd,
    env: { ...options.env, [PROCESS_MARK_VARIABLE]: mark },
    detached: true,
    stdin: options.stdin ?? "ignore",
    stdout: "pipe",
    stderr: "ignore",
  });
}

/** A command that was started, and all it started. */
export class ProcessGroup {
  readonly pid: number;
  /** Names it for good; a pid does not. */
  readonly mark: string;
  /** What it writes. */
  readonly output: ReadableStream<Uint8Array>;
  /** Resolves when the leader has ended; what it started may go on. */
  readonly exited: Promise<ExitStatus>;
  readonly #clock: Clock;
  readonly #onGone: () => void;
  #hasExited = false;
  #isGone = false;

  constructor(child: Child, mark: string, clock: Clock, onGone: () => void) {
    this.pid = child.pid;
    this.mark = mark;
    this.output = child.stdout;
    this.#clock = clock;
    this.#onGone = onGone;
    this.exited = child.exited.then((code) => {
      this.#hasExited = true;
      this.isAlive();
      const signal = child.signalCode === null ? null : String(child.signalCode);
      return { code: signal === null ? code : null, signal };
    });
  }

  /** Whether any process of it runs. When none does, its record goes. */
  isAlive(): boolean {
    if (this.#isGone) return false;
    if (!this.#hasExited || (groupExists(this.pid) && this.#members().length > 0)) return true;
    this.#isGone = true;
    this.#onGone();
    return false;
  }

  /** Ends all of it: SIGTERM, then SIGKILL for what does not heed that. */
  async end(): Promise<void> {
    if (!this.isAlive()) return;
    this.#signal("SIGTERM");
    // One that was stopped would not see the first signal.
    this.#signal("SIGCONT");
    if (!(await this.#isGoneWithin(TERM_GRACE_MS))) {
      this.#signal("SIGKILL");
      await this.#isGoneWithin(KILL_WAIT_MS);
    }
    this.isAlive();
  }

  #signal(signal: NodeJS.Signals): void {
    const members = this.#members();
    // The number of a group stays taken as long as one process is in it.
    const isOurs = !this.#hasExited || members.some((stat) => stat.group === this.pid);
    if (isOurs) sendSignal(-this.pid, signal);
    for (const stat of members) {
      if (stat.group !== this.pid) sendSignal(stat.pid, signal);
    }
  }

  async #isGoneWithin(ms: number): Promise<boolean> {
    const deadline = this.#clock.monotonic() + ms;
    if (!this.#hasExited) await settledWithin(this.exited, ms, this.#clock);
    while (!this.#hasExited || this.#members().length > 0) {
      if (this.#clock.monotonic() >= deadline) return false;
      await sleep(this.#clock, POLL_MS);
    }
    return true;
  }

  /**
   * The processes of its session, whichever group they moved to. Once the leader has ended its pid may be another's,
   * so from then on they have to bear the mark.
   */
  #members(): readonly ProcessStat[] {
    return [...readStats().values()].filter(
      (stat) =>
        stat.session === this.pid &&
        !stat.isDead &&
        (!this.#hasExited || readStartVariable(stat.pid, PROCESS_MARK_VARIABLE) === this.mark),
    );
  }
}

export interface ExitStatus {
  /** `null` where a signal ended it. */
  readonly code: number | null;
  readonly signal: string | null;
}

function groupExists(group: number): boolean {
  try {
    process.kill(-group, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function sendSignal(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch {
    // It has ended meanwhile, which is what was wanted; or it took another user's rights, and cannot be ended.
  }
}

function writeRecord(path: string, record: ProcessRecord): void {
  const draft = `${path}.new`;
  writeFileSync(draft, JSON.stringify(record), { mode: 0o600 });
  renameSync(draft, path);
}

interface RecordFile {
  readonly path: string;
  /** `null` where the file cannot be understood; it was never whole. */
  readonly record: ProcessRecord | null;
}

function readRecords(directory: string): readonly RecordFile[] {
  let names: readonly string[];
  try {
    names = readdirSync(directory);
  } catch {
    return [];
  }
  return names.map((name) => {
    const path = join(directory, name);
    return { path, record: name.endsWith(".json") ? readRecord(path) : null };
  });
}

function readRecord(path: string): ProcessRecord | null {
  try {
    const value = JSON.parse(readFileSync(path, "utf8")) as Partial<ProcessRecord> | null;
    if (typeof value?.mark !== "string" || value.mark === "") return null;
    return {
      mark: value.mark,
      pid: typeof value.pid === "number" ? value.pid : null,
      start: typeof value.start === "string" ? value.start : null,
      bootId: typeof value.bootId === "string" ? value.bootId : null,
    };
  } catch {
    return null;
  }
}

/** Which of the running processes the records name. */
function findOrphans(
  records: readonly RecordFile[],
  stats: ReadonlyMap<number, ProcessStat>,
  boot: string | null,
): readonly ProcessStat[] {
  const orphans = new Set<ProcessStat>();
  for (const { record } of records) {
    if (record === null || record.bootId === null || record.bootId !== boot) continue;
    const isLeaderAlive =
      record.pid !== null && record.start !== null && stats.get(record.pid)?.start === record.start;
    for (const stat of stats.values()) {
      if (stat.isDead || stat.pid === process.pid) continue;
      // A daemon that died between the start and the note of it knew no pid.
      if (record.pid !== null && stat.session !== record.pid) continue;
      if (isLeaderAlive || readStartVariable(stat.pid, PROCESS_MARK_VARIABLE) === record.mark) {
        orphans.add(stat);
      }
    }
  }
  return [...orphans];
}

async function endOrphans(orphans: readonly ProcessStat[], clock: Clock): Promise<void> {
  const left = (): readonly ProcessStat[] =>
    orphans.filter(({ pid, start }) => {
      const now = readStat(pid);
      return now !== null && !now.isDead && now.start === start;
    });
  for (const [signal, waitMs] of [
    ["SIGTERM", ORPHAN_GRACE_MS],
    ["SIGKILL", KILL_WAIT_MS],
  ] as const) {
    for (const { pid } of left()) {
      sendSignal(pid, signal);
      sendSignal(pid, "SIGCONT");
    }
    const deadline = clock.monotonic() + waitMs;
    while (left().length > 0 && clock.monotonic() < deadline) await sleep(clock, POLL_MS);
  }
}
