import { readFileSync } from "node:fs";

/** Whether a process of this id runs; it may be another program's by now. */
export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
  return !isZombie(pid);
}

/**
 * Whether the process has ended and its parent has not taken notice. A daemon outlives the verb that started it, so
 * its parent is the system's first process, which in a container may never do so.
 */
function isZombie(pid: number): boolean {
  try {
    // `pid (name) state …`, and the name may hold parentheses (proc_pid_stat(5)).
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return /^[ZX]/.test(text.slice(text.lastIndexOf(")") + 2));
  } catch {
    // There is no /proc, or the process has gone in the meantime, which the next look will show.
    return false;
  }
}
