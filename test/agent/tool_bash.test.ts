import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";
import { ToolBench } from "./tool_context.ts";

// Goal: a command is bounded in time and output, and is ended with all it started (issue: "each bounded in time and
// output, each killed with its process group on interrupt"). Method: real commands; a process is gone when the
// machine says so.

// Real processes take their time on a machine that has other work.
setDefaultTimeout(60_000);

function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^\) [ZX]/.test(stat.slice(stat.lastIndexOf(")")));
  } catch {
    return false;
  }
}

/** The pids that a command wrote into a file, one a line. */
async function pidsIn(path: string, count: number): Promise<number[]> {
  return until("the processes to start", () => {
    try {
      const pids = readFileSync(path, "utf8").match(/\d+(?=\n)/g) ?? [];
      return pids.length >= count ? pids.map(Number) : null;
    } catch {
      return null;
    }
  });
}

describe("bash", () => {
  test("runs in the workspace and gives outputs and errors in their order", async () => {
    await using bench = new ToolBench();
    const output = await bench.output("bash", {
      command: "pwd; echo one; echo two >&2; echo three",
    });
    expect(output).toBe(`${bench.workspace}\none\ntwo\nthree\n`);
    expect(readdirSync(join(bench.home, "processes"))).toEqual([]);
  });

  test("says how it ended where that was not well", async () => {
    await using bench = new ToolBench();
    expect(await bench.failure("bash", { command: "echo a; exit 3" })).toBe("a\n[exit code 3]");
    expect(await bench.failure("bash", { command: "kill -KILL $$" })).toBe("[ended by SIGKILL]");
    expect(await bench.failure("bash", { command: "nosuchcommand" })).toContain("[exit code 127]");
    expect(await bench.output("bash", { command: "true" })).toBe("[no output]");
  });

  test("refuses arguments that do not fit, and says which", async () => {
    await using bench = new ToolBench();
    expect(await bench.failure("bash", {})).toContain("'command'");
    expect(await bench.failure("bash", { command: "" })).toContain("'command'");
    expect(await bench.failure("bash", { command: "a\0b" })).toContain("NUL");
    expect(await bench.failure("bash", { command: "ls", timeout: 5 })).toContain("'timeout'");
    expect(await bench.failure("bash", { command: "ls", timeout_seconds: 601 })).toContain("600");
    expect(await bench.failure("bash", '{"command": "l')).toBe("The arguments are not valid JSON.");
    expect(await bench.failure("bash", null)).toContain("do not fit");
    expect(await bench.output("bash", { command: "true", timeout_seconds: null })).toBeString();
  });

  test("nothing can be typed into it", async () => {
    await using bench = new ToolBench();
    expect(await bench.failure("bash", { command: "read line" })).toBe("[exit code 1]");
    expect(await bench.output("bash", { command: "cat; echo end" })).toBe("end\n");
  });

  test("a workspace that is gone is an error that says so", async () => {
    await using bench = new ToolBench();
    const result = await bench.run("bash", { command: "ls" }, { workspace: "/nowhere/at/all" });
    expect(result).toEqual({ output: "The workspace is missing: /nowhere/at/all", isError: true });
    expect(readdirSync(bench.home)).toEqual([]);
  });

  test("sees the environment without the daemon's own and the providers' secrets", async () => {
    await using bench = new ToolBench({
      PATH: process.env.PATH,
      HOME: "/home/me",
      ALBEDO_HOME: "/data",
      ALBEDO_TOKEN: "secret1",
      ANTHROPIC_API_KEY: "secret2",
      OPENAI_API_KEY: "secret3",
      MY_KEY: "secret4",
      GREETING: "hello",
    });
    const output = await bench.output("bash", { command: "env" });
    expect(output).not.toContain("secret");
    expect(output).toContain("GREETING=hello");
    expect(output).toContain("ALBEDO_HOME=/data");
    expect(output).toContain("GIT_TERMINAL_PROMPT=0");
  });

  test("inherits no socket, neither one that listens nor one that is connected", async () => {
    await using bench = new ToolBench();
    const server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("x") });
    const client = await Bun.connect({
      hostname: "127.0.0.1",
      port: server.port!,
      socket: { data() {} },
    });
    try {
      const output = await bench.output("bash", {
        // Its own output is a socket too, but none of the kind that is in the table of the machine.
        command: "for f in /proc/$$/fd/*; do readlink $f; done; true",
      });
      const inodes = [...output.matchAll(/socket:\[(\d+)\]/g)].map((match) => match[1]);
      const table = readFileSync("/proc/net/tcp", "utf8");
      const open = table.split("\n").map((line) => line.trim().split(/\s+/)[9]);
      expect(open.length).toBeGreaterThan(1);
      expect(inodes.filter((inode) => open.includes(inode))).toEqual([]);
    } finally {
      client.end();
      await server.stop(true);
    }
  });

  test("shows what goes on while it goes on", async () => {
    await using bench = new ToolBench();
    const running = bench.run("bash", {
      command: "echo first; until [ -e go ]; do sleep 0.02; done; echo second",
    });
    await until("the first output", () => bench.progress.join("").includes("first"));
    writeFileSync(join(bench.workspace, "go"), "");
    expect((await running).output).toBe("first\nsecond\n");
  });

  test("terminal colours and NUL characters are taken out", async () => {
    await using bench = new ToolBench();
    const output = await bench.output("bash", { command: "printf '\\033[31mred\\033[0m\\0end'" });
    expect(output).toBe("red␀end");
  });
});

describe("bash, a long output", () => {
  test("is cut in the middle, says how much, and is whole in a private file", async () => {
    await using bench = new ToolBench();
    const output = await bench.output("bash", { command: "seq 1 100000" });
    expect(Buffer.byteLength(output)).toBeLessThanOrEqual(48 * 1024 + 300);
    expect(output).toStartWith("1\n2\n3\n");
    expect(output).toEndWith("99999\n100000\n");
    const [, cut, total, path] =
      /(\d+) of (\d+) bytes left out; the whole output is in (\S+) …/.exec(output)!;
    expect(Number(total)).toBe(588_895);
    const whole = readFileSync(path!, "utf8");
    expect(whole).toHaveLength(588_895);
    expect(statSync(path!).mode & 0o777).toBe(0o600);
    const shown = output.split(/\n?\[….*…\]\n/);
    expect(shown).toHaveLength(2);
    expect(Buffer.byteLength(shown.join("")) + Number(cut)).toBe(588_895);
    expect(whole.startsWith(shown[0]!)).toBe(true);
    expect(whole.endsWith(shown[1]!)).toBe(true);
  });

  test("of exactly the bound is whole, one byte more is cut", async () => {
    await using bench = new ToolBench();
    const command = (bytes: number) => ({ command: `head -c ${bytes} /dev/zero | tr '\\0' x` });
    expect(await bench.output("bash", command(49_152))).toBe("x".repeat(49_152));
    expect(readdirSync(bench.overflow)).toEqual([]);
    expect(await bench.output("bash", command(49_153))).toContain("of 49153 bytes left out");
    expect(readdirSync(bench.overflow)).toHaveLength(1);
  });

  test("is never cut in the middle of a character", async () => {
    await using bench = new ToolBench();
    for (const shift of ["", "a", "ab", "abc"]) {
      const output = await bench.output("bash", {
        command: `printf '${shift}'; yes 🌍 | head -n 30000 | tr -d '\\n'; printf '${shift}'`,
      });
      expect(output.split(/\n\[….*…\]\n/)).toHaveLength(2);
      expect(output.includes("\ufffd")).toBe(false);
    }
  });

  test("a directory that takes no file costs the file, not the command", async () => {
    await using bench = new ToolBench();
    const result = await bench.run(
      "bash",
      { command: "seq 1 100000" },
      { overflowDirectory: "/nowhere" },
    );
    expect(result.isError).toBe(false);
    expect(result.output).toContain("could not be kept");
    expect(result.output).toEndWith("100000\n");
  });
});

describe("bash, its end", () => {
  test("an interrupt ends the whole group, also what does not heed SIGTERM, and throws the reason", async () => {
    await using bench = new ToolBench();
    const abort = new AbortController();
    const pids = join(bench.workspace, "pids");
    const running = bench.run(
      "bash",
      {
        command: `trap '' TERM
          (trap '' TERM; echo $BASHPID >> pids; while :; do sleep 0.05; done) &
          (echo $BASHPID >> pids; exec sleep 300) &
          echo $$ >> pids; while :; do sleep 0.05; done`,
      },
      { signal: abort.signal },
    );
    const started = await pidsIn(pids, 3);
    expect(started.map(isRunning)).toEqual([true, true, true]);
    const reason = new Error("interrupted");
    abort.abort(reason);
    expect(await running.catch((error: unknown) => error)).toBe(reason);
    expect(started.map(isRunning)).toEqual([false, false, false]);
    expect(readdirSync(join(bench.home, "processes"))).toEqual([]);
  });

  test("an interrupt reaches a process that was stopped, and one in a group of its own", async () => {
    await using bench = new ToolBench();
    const abort = new AbortController();
    const running = bench.run(
      "bash",
      {
        command:
          "set -m; (echo $BASHPID >> pids; exec sleep 300) & sleep 300 & echo $! >> pids; kill -STOP $!; wait %1",
      },
      { signal: abort.signal },
    );
    const started = await pidsIn(join(bench.workspace, "pids"), 2);
    abort.abort("stop");
    expect(await running.catch((error: unknown) => error)).toBe("stop");
    expect(started.map(isRunning)).toEqual([false, false]);
  });

  test("an interrupt lets a command clean up, also one that was stopped", async () => {
    for (const wait of ["sleep 300 & wait", "kill -STOP $$"]) {
      await using bench = new ToolBench();
      const abort = new AbortController();
      const running = bench.run(
        "bash",
        { command: `trap 'echo cleaned > done; exit' TERM; echo $$ > pids; ${wait}` },
        { signal: abort.signal },
      );
      await pidsIn(join(bench.workspace, "pids"), 1);
      abort.abort("stop");
      await running.catch(() => {});
      expect(readFileSync(join(bench.workspace, "done"), "utf8")).toBe("cleaned\n");
    }
  });

  test("a signal that has aborted starts nothing", async () => {
    await using bench = new ToolBench();
    const signal = AbortSignal.abort("early");
    const thrown = await bench
      .run("bash", { command: "touch started" }, { signal })
      .catch((error: unknown) => error);
    expect(thrown).toBe("early");
    expect(readdirSync(bench.workspace)).toEqual([]);
  });

  test("the time that was asked for ends it by the clock, and what it had said stays", async () => {
    await using bench = new ToolBench();
    const clock = new FakeClock();
    const running = bench.run(
      "bash",
      { command: "echo begun; echo $$ > pids; exec sleep 300", timeout_seconds: 5 },
      { clock },
    );
    const [pid] = await pidsIn(join(bench.workspace, "pids"), 1);
    await clock.advance(4_999);
    await settle();
    expect(isRunning(pid!)).toBe(true);
    await clock.advance(1);
    const result = await running;
    expect(result).toEqual({
      output: "begun\n[ended after 5 s, with all it had started]",
      isError: true,
    });
    expect(isRunning(pid!)).toBe(false);
    expect(clock.waiting).toBe(0);
  });

  test("without one it is two minutes", async () => {
    await using bench = new ToolBench();
    const clock = new FakeClock();
    const running = bench.run("bash", { command: "echo $$ > pids; exec sleep 300" }, { clock });
    await pidsIn(join(bench.workspace, "pids"), 1);
    await clock.advance(120_000);
    expect((await running).output).toContain("ended after 120 s");
  });

  test("a process in the background does not hold it up, goes on, and is ended with the daemon", async () => {
    await using bench = new ToolBench();
    const output = await bench.output("bash", { command: "echo up; sleep 300 & echo $! > pids" });
    expect(output).toMatch(/^up\n\[it left processes in the background; their group is \d+\]$/);
    const [pid] = await pidsIn(join(bench.workspace, "pids"), 1);
    expect(isRunning(pid!)).toBe(true);
    expect(readdirSync(join(bench.home, "processes"))).toHaveLength(1);
    await bench.processes.endAll();
    expect(isRunning(pid!)).toBe(false);
    expect(readdirSync(join(bench.home, "processes"))).toEqual([]);
  });
});
