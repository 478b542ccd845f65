import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readBootId, readStartVariable, readStat } from "../../src/agent/process_table.ts";
import { ProcessGroups } from "../../src/agent/processes.ts";
import { systemClock } from "../../src/base/clock.ts";
import { silentLog } from "../../src/base/log.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";

// Goal: "processes that a killed daemon left behind are found by pid and start time and ended; never anyone else's"
// (contract.md, What others' users ran into). Method: a real process plays the daemon and is killed with SIGKILL
// while its commands run; strangers run beside them.

const SOURCE = new URL("../../src", import.meta.url).pathname;

/** Starts commands as a daemon does, says when they run, and stays. */
const PRETENDED_DAEMON = `
import { ProcessGroups } from ${JSON.stringify(`${SOURCE}/agent/processes.ts`)};
import { systemClock } from ${JSON.stringify(`${SOURCE}/base/clock.ts`)};
import { silentLog } from ${JSON.stringify(`${SOURCE}/base/log.ts`)};
const [home, ...commands] = process.argv.slice(1);
const groups = new ProcessGroups({ home, clock: systemClock, log: silentLog });
for (const command of commands) {
  groups.spawn({ command: ["/bin/bash", "-c", command], cwd: home, env: process.env });
}
setInterval(() => {}, 1000);
`;

// Real processes take their time on a machine that has other work.
setDefaultTimeout(60_000);

function groupsOf(home: string): ProcessGroups {
  return new ProcessGroups({ home, clock: systemClock, log: silentLog });
}

function isRunning(pid: number): boolean {
  const stat = readStat(pid);
  return stat !== null && !stat.isDead;
}

/** Runs the commands under a daemon that is then killed; gives the pids they wrote into \`pids\`. */
async function leaveBehind(home: string, commands: string[], count: number): Promise<number[]> {
  const daemon = Bun.spawn([process.execPath, "-e", PRETENDED_DAEMON, home, ...commands], {
    stdout: "ignore",
    stderr: "inherit",
  });
  const pids = await until("the commands to run", () => {
    try {
      const lines = readFileSync(join(home, "pids"), "utf8").match(/\d+(?=\n)/g) ?? [];
      const records = readdirSync(join(home, "processes")).filter((name) => name.endsWith(".json"));
      const noted = records.filter((name) =>
        readFileSync(join(home, "processes", name), "utf8").includes('"start":"'),
      );
      return lines.length >= count && noted.length >= commands.length ? lines.map(Number) : null;
    } catch {
      return null;
    }
  });
  daemon.kill("SIGKILL");
  await daemon.exited;
  return pids;
}

/** A process that has nothing to do with us. */
function stranger(env: Record<string, string | undefined> = process.env): Bun.Subprocess {
  return Bun.spawn(["/bin/sleep", "300"], {
    env,
    detached: true,
    stdio: ["ignore", "ignore", "ignore"],
  });
}

describe("ProcessGroups.reapOrphans()", () => {
  test("ends what a killed daemon left, also what does not heed SIGTERM, and its records", async () => {
    using home = tempDir();
    const pids = await leaveBehind(
      home.path,
      [
        "echo $$ >> pids; exec sleep 300",
        "trap '' TERM; (trap '' TERM; echo $BASHPID >> pids; while :; do sleep 0.05; done) & echo $$ >> pids; while :; do sleep 0.05; done",
      ],
      3,
    );
    const other = stranger();
    expect(pids.map(isRunning)).toEqual([true, true, true]);
    expect(await groupsOf(home.path).reapOrphans()).toBeGreaterThanOrEqual(3);
    expect(pids.map(isRunning)).toEqual([false, false, false]);
    expect(isRunning(other.pid)).toBe(true);
    expect(readdirSync(join(home.path, "processes"))).toEqual([]);
    other.kill("SIGKILL");
  });

  test("ends what a leader that has gone left in the background, by its mark", async () => {
    using home = tempDir();
    const pids = await leaveBehind(home.path, ["sleep 300 & echo $! >> pids; exit 0"], 1);
    const [name] = readdirSync(join(home.path, "processes"));
    const record = JSON.parse(readFileSync(join(home.path, "processes", name!), "utf8")) as {
      pid: number;
    };
    await until("the leader to go", () => !isRunning(record.pid));
    expect(pids.map(isRunning)).toEqual([true]);
    expect(await groupsOf(home.path).reapOrphans()).toBe(1);
    expect(pids.map(isRunning)).toEqual([false]);
  });

  test("ends a leader that has thrown its environment away, by pid and start time", async () => {
    using home = tempDir();
    const pids = await leaveBehind(home.path, ["echo $$ >> pids; exec env -i sleep 300"], 1);
    await until("the mark to go", () => readStartVariable(pids[0]!, "ALBEDO_PROCESS") === null);
    expect(await groupsOf(home.path).reapOrphans()).toBe(1);
    expect(pids.map(isRunning)).toEqual([false]);
  });

  test("leaves what moved to a session of its own", async () => {
    using home = tempDir();
    const [pid] = await leaveBehind(
      home.path,
      ["setsid bash -c 'echo $$ >> pids; exec sleep 300' & wait"],
      1,
    );
    await groupsOf(home.path).reapOrphans();
    expect(isRunning(pid!)).toBe(true);
    process.kill(pid!, "SIGKILL");
  });

  /** Writes a record by hand. */
  function note(home: string, record: Record<string, unknown>): void {
    mkdirSync(join(home, "processes"), { recursive: true });
    const count = readdirSync(join(home, "processes")).length;
    writeFileSync(join(home, "processes", `${count}.json`), JSON.stringify(record));
  }

  test("a pid that is another's by now is left alone", async () => {
    using home = tempDir();
    const other = stranger();
    const { start } = readStat(other.pid)!;
    const bootId = readBootId();
    note(home.path, { mark: "a1", pid: other.pid, start: String(Number(start) - 1), bootId });
    note(home.path, { mark: "a2", pid: other.pid, start: null, bootId });
    note(home.path, { mark: "a3", pid: other.pid, start, bootId: "another-boot" });
    note(home.path, { mark: "a4", pid: other.pid, start, bootId: null });
    note(home.path, { mark: "a5", pid: null, start: null, bootId });
    expect(await groupsOf(home.path).reapOrphans()).toBe(0);
    expect(isRunning(other.pid)).toBe(true);
    expect(readdirSync(join(home.path, "processes"))).toEqual([]);
    other.kill("SIGKILL");
  });

  test("a daemon that died before it could note the pid is cleaned up after by the mark", async () => {
    using home = tempDir();
    const ours = stranger({ ...process.env, ALBEDO_PROCESS: "b1" });
    const other = stranger({ ...process.env, ALBEDO_PROCESS: "b2" });
    note(home.path, { mark: "b1", pid: null, start: null, bootId: readBootId() });
    expect(await groupsOf(home.path).reapOrphans()).toBe(1);
    await ours.exited;
    expect(isRunning(ours.pid)).toBe(false);
    expect(isRunning(other.pid)).toBe(true);
    other.kill("SIGKILL");
  });

  test("what is no whole record is thrown away, and hurts nobody", async () => {
    using home = tempDir();
    mkdirSync(join(home.path, "processes"));
    for (const [name, text] of [
      ["a.json", ""],
      ["b.json", '{"mark":"x","pid":'],
      ["c.json", "null"],
      ["d.json", '{"mark":"","pid":1,"start":"1"}'],
      ["e.json.new", `{"mark":"x","pid":${process.pid}}`],
    ] as const) {
      writeFileSync(join(home.path, "processes", name), text);
    }
    expect(await groupsOf(home.path).reapOrphans()).toBe(0);
    expect(readdirSync(join(home.path, "processes"))).toEqual([]);
    using empty = tempDir();
    expect(await groupsOf(empty.path).reapOrphans()).toBe(0);
  });
});

describe("ProcessGroups", () => {
  test("a command is on record before it runs, and no longer when it has ended", async () => {
    using home = tempDir();
    const groups = groupsOf(home.path);
    const group = groups.spawn({
      command: ["/bin/bash", "-c", "ls processes; cat"],
      cwd: home.path,
      env: process.env,
      stdin: new TextEncoder().encode("input"),
    });
    const output = await new Response(group.output).text();
    expect(output).toMatch(/^[0-9a-f]{32}\.json(\n[0-9a-f.a-z]+)*\ninput$/);
    expect(await group.exited).toEqual({ code: 0, signal: null });
    expect(group.isAlive()).toBe(false);
    expect(readdirSync(join(home.path, "processes"))).toEqual([]);
  });

  test("one that cannot be started leaves no record", async () => {
    using home = tempDir();
    const groups = groupsOf(home.path);
    expect(() =>
      groups.spawn({ command: ["/bin/true"], cwd: "/nowhere/at/all", env: {} }),
    ).toThrow();
    expect(readdirSync(join(home.path, "processes"))).toEqual([]);
  });

  test("ending one that has ended does nothing, however often it is asked for", async () => {
    using home = tempDir();
    const groups = groupsOf(home.path);
    const group = groups.spawn({ command: ["/bin/true"], cwd: home.path, env: {} });
    await group.exited;
    await Promise.all([group.end(), group.end(), groups.endAll()]);
    expect(group.isAlive()).toBe(false);
  });
});
