import { readFileSync, readdirSync } from "node:fs";

/** Owns what the kernel says of a process (proc(5)); the benches run on Linux. */

const TICKS_PER_SECOND = 100;

function statusField(pid: number, field: string): number {
  const text = readFileSync(`/proc/${pid}/status`, "utf8");
  const found = new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(text)?.[1];
  if (found === undefined) throw new Error(`No ${field} of process ${pid}`);
  return Number(found);
}

/** Resident memory, in MB of 1000 kB, as `ps` users say it. */
export function rssMb(pid: number): number {
  return (statusField(pid, "VmRSS") * 1024) / 1e6;
}

/** The most it ever was. */
export function peakRssMb(pid: number): number {
  return (statusField(pid, "VmHWM") * 1024) / 1e6;
}

/** User and system time, in seconds, with the kernel's resolution of 10 ms. */
export function cpuSeconds(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name in the second field may hold spaces.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

export function descriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}
