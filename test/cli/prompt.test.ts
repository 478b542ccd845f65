import { describe, expect, test } from "bun:test";
import { closeSync, existsSync, openSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../support/until.ts";
import { albedoCommand, CliWorld, jsonLines } from "./cli_process.ts";
import { PNG } from "../support/png.ts";

/**
 * Goal: `albedo prompt` prints its own answer and says truthfully how it ended (sessions.md, Prompt ownership and
 * cancellation). Method: the real program against the real daemon, with the demo model's directives.
 */
interface Line {
  readonly type: string;
  readonly session_id?: string;
  readonly operation_id?: string;
  readonly outcome?: string;
  readonly cancellation?: string;
  readonly text?: string;
}

function resultOf(stdout: string): Line {
  const last = jsonLines<Line>(stdout).at(-1);
  if (last?.type !== "result") throw new Error(`The last line is no result: ${stdout}`);
  return last;
}

/** A prompt under way in a session of its own, with its ids. */
async function startSlow(world: CliWorld, words = 2000) {
  const running = world.start(["prompt", "--json", `!slow 20\n!repeat ${words} word `]);
  await until("the first words", () => running.stdout.includes('"text"'));
  const accepted = jsonLines<Line>(running.stdout.slice(0, running.stdout.lastIndexOf("\n"))).find(
    (line) => line.type === "accepted",
  );
  return {
    running,
    sessionId: accepted?.session_id ?? "",
    operationId: accepted?.operation_id ?? "",
  };
}

describe("albedo prompt", () => {
  test("starts a daemon, says so, and prints the answer alone on stdout", async () => {
    await using world = new CliWorld();
    const first = await world.run(["prompt", "!think Hm\n!say Hello"]);
    expect(first.code).toBe(0);
    expect(first.stdout).toStartWith("Hello\n");
    expect(first.stdout).not.toContain("Hm");
    expect(first.stderr).toContain("started a daemon at http://127.0.0.1:");
    expect(first.stderr).toContain("Hm");
    const second = await world.run(["prompt", "--quiet", "!think Hm\n!say Again"]);
    expect(second).toMatchObject({ code: 0, stderr: "" });
    expect(second.stdout).toStartWith("Again\n");
  });

  test("uses the current directory, tools and stdin", async () => {
    await using world = new CliWorld();
    writeFileSync(join(world.workspace, "a file.txt"), "");
    const { code, stdout, stderr } = await world.run(["prompt", "-"], {
      stdin: "!bash ls > listed",
    });
    expect(code).toBe(0);
    expect(stderr).toContain("• bash");
    expect(stdout).not.toBe("");
    expect(readdirSync(world.workspace).toSorted()).toEqual(["a file.txt", "listed"]);
  });

  test("prints one JSON object a line, ending with the result", async () => {
    await using world = new CliWorld();
    const { code, stdout } = await world.run(["prompt", "--json", "!say Hello"]);
    expect(code).toBe(0);
    const lines = jsonLines<Line>(stdout);
    const types = lines.map((line) => line.type);
    expect(types[0]).toBe("session");
    for (const type of ["accepted", "turn_started", "text", "turn_finished"]) {
      expect(types).toContain(type);
    }
    const { outcome, text } = resultOf(stdout);
    expect(outcome).toBe("completed");
    expect(text).toStartWith("Hello\n");
  });

  test("exits with 1 and the reason when the turn fails", async () => {
    await using world = new CliWorld();
    const { code, stderr, stdout } = await world.run(["prompt", "!fail invalid_request"]);
    expect(code).toBe(1);
    expect(stderr).toContain("the turn failed");
    expect(stdout).toBe("");
  });

  test("exits with 2 before anything is started where the command line is wrong", async () => {
    await using world = new CliWorld();
    for (const args of [
      ["prompt"],
      ["prompt", "--image", "missing.png", "x"],
      ["prompt", "--new", "-s", "0198", "x"],
    ]) {
      expect((await world.run(args)).code).toBe(2);
    }
    const bad = await world.run(["prompt", "x"], { env: { ALBEDO_HOME: "relative" } });
    expect(bad.code).toBe(2);
    expect(bad.stderr).toContain("ALBEDO_HOME must be an absolute path");
    expect(world.daemonFile()).toBeNull();
  });

  test("takes its submission back on a timeout, and says what came of it", async () => {
    await using world = new CliWorld();
    // The time to start a daemon counts too; it shall not be what runs out.
    await world.run(["models"]);
    const { code, stdout, stderr } = await world.run([
      "prompt",
      "--json",
      "--timeout",
      "2",
      "!slow 50\n!repeat 2000 word ",
    ]);
    expect(code).toBe(124);
    expect(resultOf(stdout)).toMatchObject({
      outcome: "timeout",
      cancellation: "interrupt_requested",
    });
    expect(stderr).toContain("timed out after 2 s; interrupt requested");
    expect(stderr).toContain("does not say that it has stopped");
  });

  test("waits for its stdin no longer than the time it was given", async () => {
    await using world = new CliWorld();
    const { code, stdout, stderr } = await world.run(
      ["prompt", "--json", "--timeout", "0.2", "-"],
      {
        stdin: { open: true },
      },
    );
    expect(code).toBe(124);
    expect(resultOf(stdout)).toMatchObject({ outcome: "timeout", operation_id: null });
    expect(stderr).toContain("timed out after 0.2 s; nothing was sent");
    expect(world.daemonFile()).toBeNull();
  });

  test("takes its submission back on Ctrl-C while it waits behind another's turn", async () => {
    await using world = new CliWorld();
    const { running: other, sessionId } = await startSlow(world);
    const waiting = world.start(["prompt", "--json", "-s", sessionId, "!say never"]);
    await until("the acceptance", () => waiting.stdout.includes('"accepted"'));
    waiting.process.kill("SIGINT");
    const { code, stdout } = await waiting.outcome;
    expect(code).toBe(130);
    expect(resultOf(stdout)).toMatchObject({ outcome: "interrupted", cancellation: "cancelled" });
    expect(other.process.exitCode).toBeNull();
    other.process.kill("SIGINT");
    expect((await other.outcome).code).toBe(130);
  });

  test("takes its submission back also where nothing can be kept any more, as on a full disk", async () => {
    await using world = new CliWorld();
    const { running } = await startSlow(world);
    const directory = join(world.home, "client", "operations");
    rmSync(directory, { recursive: true });
    writeFileSync(directory, "");
    running.process.kill("SIGINT");
    const { code, stderr } = await running.outcome;
    expect(stderr).toContain("interrupted; interrupt requested");
    expect(code).toBe(130);
  });

  test("says that a cancelled input was cancelled by someone else", async () => {
    await using world = new CliWorld();
    const { running: other, sessionId } = await startSlow(world);
    const waiting = world.start(["prompt", "--json", "-s", sessionId, "!say never"]);
    const accepted = await until("the acceptance", () =>
      jsonLines<Line>(waiting.stdout).find((line) => line.type === "accepted"),
    );
    const cancelled = await world.run(["cancel", sessionId, accepted.operation_id ?? ""]);
    expect(cancelled.stdout).toContain("cancelled: it was waiting and will not run");
    const { code, stdout, stderr } = await waiting.outcome;
    expect(code).toBe(130);
    expect(resultOf(stdout).outcome).toBe("cancelled");
    expect(stderr).toContain("cancelled by someone else");
    other.process.kill("SIGINT");
    await other.outcome;
  });

  test("leaves at once on the second Ctrl-C and says how to find out later", async () => {
    await using world = new CliWorld();
    // Whether the cancellation gets through is open, so the turn has to end by itself too.
    const { running, operationId } = await startSlow(world, 300);
    const daemon = world.daemonFile();
    if (daemon === null) throw new Error("No daemon runs");
    // A daemon that hangs answers no cancellation.
    process.kill(daemon.pid, "SIGSTOP");
    try {
      running.process.kill("SIGINT");
      await until("the kept operation", () =>
        readdirSync(join(world.home, "client", "operations")).includes(`${operationId}.json`),
      );
      running.process.kill("SIGINT");
      const { code, stderr } = await running.outcome;
      expect(code).toBe(130);
      expect(stderr).toContain("unconfirmed cancellation");
      expect(stderr).toContain(`albedo operation ${operationId}`);
    } finally {
      process.kill(daemon.pid, "SIGCONT");
    }
    // Whatever came of it: the daemon knows, and nothing stays unresolved.
    await until("the outcome", async () => (await world.run(["operation"])).code === 0);
    expect((await world.run(["operation"])).stderr).toContain("No operation is unresolved");
    const told = await world.run(["operation", operationId]);
    expect(told.code).toBe(0);
    expect(told.stdout).toContain("accepted, committed");
  });

  test("reports an unconfirmed cancellation after five seconds of its own", async () => {
    await using world = new CliWorld();
    const { running, operationId } = await startSlow(world);
    const daemon = world.daemonFile();
    if (daemon === null) throw new Error("No daemon runs");
    process.kill(daemon.pid, "SIGSTOP");
    try {
      running.process.kill("SIGINT");
      const { code, stdout, stderr } = await running.outcome;
      expect(code).toBe(130);
      expect(resultOf(stdout)).toMatchObject({ cancellation: "unconfirmed" });
      expect(stderr).toContain("interrupted; unconfirmed cancellation");
      expect(stderr).toContain(`albedo operation ${operationId}`);
    } finally {
      process.kill(daemon.pid, "SIGCONT");
    }
  });

  test("follows its input over a killed daemon, which it starts again", async () => {
    await using world = new CliWorld();
    const running = world.start(["prompt", "--json", "!bash sleep 60"]);
    await until("the tool", () => running.stdout.includes('"tool_started"'));
    const [session] = await world.json<{ id: string }>(["sessions"]);
    const waiting = world.start(["prompt", "-s", session?.id ?? "", "!say survived"]);
    await until("the waiting input", async () => {
      const [shown] = await world.json<{ pending_count: number }>(["sessions"]);
      return shown?.pending_count === 1;
    });
    await world.killDaemon();
    const first = await running.outcome;
    expect(first.code).toBe(130);
    expect(resultOf(first.stdout).outcome).toBe("interrupted");
    const second = await waiting.outcome;
    expect(second.stderr).toContain("the daemon was killed; starting it again");
    expect(second.stdout).toContain("survived");
    expect(second.code).toBe(0);
  });

  test("follows its waiting input over a daemon that is stopped and started again", async () => {
    await using world = new CliWorld();
    const running = world.start(["prompt", "--json", "!bash sleep 60"]);
    await until("the tool", () => running.stdout.includes('"tool_started"'));
    const [session] = await world.json<{ id: string }>(["sessions"]);
    const waiting = world.start(["prompt", "-s", session?.id ?? "", "!say afterwards"]);
    await until("the waiting input", async () => {
      const [shown] = await world.json<{ pending_count: number }>(["sessions"]);
      return shown?.pending_count === 1;
    });
    expect((await world.run(["daemon", "--stop"])).code).toBe(0);
    const stopped = await running.outcome;
    expect(stopped.code).toBe(130);
    expect(resultOf(stopped.stdout).outcome).toBe("interrupted");
    // It was stopped on purpose: whoever follows does not start it, somebody else does.
    await until("the notice", () => waiting.stderr.includes("waiting for it"));
    expect(waiting.stderr).not.toContain("starting it again");
    expect((await world.run(["models"])).stderr).toContain("started a daemon");
    const { code, stdout } = await waiting.outcome;
    expect(stdout).toContain("afterwards");
    expect(code).toBe(0);
  });

  test("prints only its own turn in a session that has others", async () => {
    await using world = new CliWorld();
    const [session] = await world.json<Line>(["prompt", "!say first"]);
    const sessionId = session?.session_id ?? "";
    const second = await world.run(["prompt", "-q", "-s", sessionId, "!say second"]);
    expect(second.code).toBe(0);
    expect(second.stdout).toContain("second");
    expect(second.stdout.match(/second/g)).toHaveLength(1);
  });

  test("sends images along and changes the model of a session on request", async () => {
    await using world = new CliWorld();
    writeFileSync(join(world.workspace, "dot.png"), PNG);
    const [session] = await world.json<Line>(["prompt", "--image", "dot.png", "!say seen"]);
    const id = session?.session_id ?? "";
    const shown = await world.run(["show", id]);
    expect(shown.stdout).toMatch(/\[image\/png, 1 × 1, \d+ bytes\]/);
    const unknown = await world.run(["prompt", "-s", id, "-m", "no/such", "x"]);
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toContain("model_unknown");
    const known = await world.run(["prompt", "-s", id, "-m", "demo/demo", "!say same"]);
    expect(known.code).toBe(0);
    expect(known.stderr).toContain("the session's model is demo/demo from now on");
  });

  test("leaves quietly when the reader of its answer goes", async () => {
    await using world = new CliWorld();
    const { code, stdout, stderr } = await world.run(
      ["prompt", "--quiet", "!slow 1\n!repeat 5000 line\\n"],
      { command: ["bash", "-c", 'set -o pipefail; "$@" | head -n 1', "bash", ...albedoCommand()] },
    );
    expect(stdout).toBe("line\n");
    expect(stderr).toBe("");
    expect(code).toBe(141);
  });

  test
    .skipIf(!existsSync("/dev/full"))
    .each(["prompt -q hello", "sessions", "version", "completion bash", "show --help"])(
    "%s fails where its answer cannot be written",
    async (line) => {
      await using world = new CliWorld();
      await world.run(["prompt", "-q", "!say hello"]);
      const full = openSync("/dev/full", "w");
      const child = Bun.spawn([...albedoCommand(), ...line.split(" ")], {
        cwd: world.workspace,
        env: world.environment(),
        stdio: ["ignore", full, "pipe"],
      });
      const stderr = await new Response(child.stderr).text();
      closeSync(full);
      expect(stderr).toBe(
        "albedo: Cannot write to stdout: ENOSPC: no space left on device, write\n",
      );
      expect(await child.exited).toBe(1);
    },
  );

  test.skipIf(!existsSync("/dev/full"))(
    "answers where its progress cannot be written",
    async () => {
      await using world = new CliWorld();
      const { code, stdout } = await world.run(["prompt", "!say hello"], {
        command: ["bash", "-c", '"$@" 2>/dev/full', "bash", ...albedoCommand()],
      });
      expect(stdout).toStartWith("hello\n");
      expect(code).toBe(0);
    },
  );

  test("says what is wrong with an image that cannot be used, and leaves no session behind", async () => {
    await using world = new CliWorld();
    await world.run(["models"]);
    writeFileSync(join(world.workspace, "bad.png"), "no image");
    const { code, stderr } = await world.run(["prompt", "-q", "--image", "bad.png", "x"]);
    expect(stderr).toContain("image 'bad.png' cannot be used: Must be a PNG, JPEG, GIF or WebP");
    expect(code).toBe(2);
    expect(await world.json(["sessions", "--all"])).toEqual([]);
  });

  test("refuses images that are too much together, before a session is made", async () => {
    await using world = new CliWorld();
    await world.run(["models"]);
    const image = Buffer.concat([PNG, Buffer.alloc(4_000_000)]);
    writeFileSync(join(world.workspace, "big.png"), image);
    const twice = ["--image", "big.png", "--image", "big.png"];
    const { code, stderr } = await world.run(["prompt", "-q", ...twice, "x"]);
    expect(stderr).toContain("9 MiB in all: as they are sent, these images have 10.2 MiB");
    expect(code).toBe(2);
    expect(await world.json(["sessions", "--all"])).toEqual([]);
  });

  test("loses nothing of a long answer on its way through a slow pipe", async () => {
    await using world = new CliWorld();
    const { stdout } = await world.run(["prompt", "--quiet", "!repeat 40000 0123456789"], {
      command: ["bash", "-c", '"$@" | { sleep 0.3; cat; }', "bash", ...albedoCommand()],
    });
    expect(stdout.startsWith("0123456789\n".repeat(40_000))).toBe(true);
  });

  test("shows control characters on a terminal instead of obeying them", async () => {
    await using world = new CliWorld();
    writeFileSync(join(world.workspace, "hostile"), "\u001b]0;owned\u0007\u001b[31mred\n");
    let screen = "";
    const terminal = new Bun.Terminal({
      cols: 80,
      rows: 24,
      data: (_, bytes) => {
        screen += new TextDecoder().decode(bytes);
      },
    });
    const child = Bun.spawn([...albedoCommand(), "prompt", "!bash cat hostile"], {
      cwd: world.workspace,
      env: world.environment({ NO_COLOR: "1", TERM: "xterm" }),
      terminal,
    });
    expect(await child.exited).toBe(0);
    await until("the answer", () => screen.includes("red"));
    expect(screen).not.toContain("\u001b]0;");
    expect(screen).not.toContain("\u001b[31m");
    terminal.close();
  });
});
