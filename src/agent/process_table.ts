import { readdirSync, readFileSync } from "node:fs";

/**
 * Owns what the machine says of its processes (proc(5)). On a platform without `/proc` there is nothing to read:
 * then no process is ever taken for an orphan.
 */
export interface ProcessStat {
  readonly pid: number;
  readonly group: number;
  readonly session: number;
  /** Clock ticks from boot to its start; with the pid it names a process for as long as the machine is up. */
  readonly start: string;
  /** It has ended and only waits to be collected. */
  readonly isDead: boolean;
}

/** `null` where there is no such process. */
export function readStat(pid: number): ProcessStat | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch {
    return null;
  }
  // The name in parentheses may hold blanks and parentheses itself.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, , group, session] = fields;
  const start = fields[19];
  if (start === undefined) return null;
  return {
    pid,
    group: Number(group),
    session: Number(session),
    start,
    isDead: state === "Z" || state === "X",
  };
}

/** Every process there is. */
export function readStats(): ReadonlyMap<number, ProcessStat> {
  const stats = new Map<number, ProcessStat>();
  for (const name of listProc()) {
    if (!/^\d+$/.test(name)) continue;
    const stat = readStat(Number(name));
    if (stat !== null) stats.set(stat.pid, stat);
  }
  return stats;
}

function listProc(): readonly string[] {
  try {
    return readdirSync("/proc");
  } catch {
    return [];
  }
}

/** How often an empty environment is looked at again, a millisecond apart. */
const EMPTY_LOOKS_MAX = 5;

/**
 * A variable of the environment a process was started with; `null` where it may not be read. A process that is just
 * being replaced by another program shows an empty one for a moment, and would pass for a stranger.
 */
export function readStartVariable(pid: number, name: string): string | null {
  let text = readEnvironment(pid);
  for (let look = 1; text === "" && look < EMPTY_LOOKS_MAX; look += 1) {
    Bun.sleepSync(1);
    text = readEnvironment(pid);
  }
  const line = text?.split("\0").find((candidate) => candidate.startsWith(`${name}=`));
  return line === undefined ? null : line.slice(name.length + 1);
}

function readEnvironment(pid: number): string | null {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return null;
  }
}

/** Differs after each start of the machine; `null` where it is not told. */
export function readBootId(): string | null {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  } catch {
    return null;
  }
}
