import { describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isAlive } from "../../src/base/process_alive.ts";
import { StateFile } from "../../src/cli/state_file.ts";
import { Client } from "../../src/client/client.ts";
import type { OperationHandle } from "../../src/client/client.ts";
import { until } from "../support/until.ts";
import { CliWorld, jsonLines } from "./cli_process.ts";

/**
 * Goal: every verb does what its help says, against the real daemon, and its exit code tells how it ended.
 */
interface Session {
  readonly id: string;
  readonly phase: string;
  readonly parent_id: string | null;
}

const MISSING = "0198c1d2-0000-7000-8000-00000000000a";

/** Makes a session by a prompt. */
async function makeSession(world: CliWorld, text = "!say Hello"): Promise<string> {
  const [first] = await world.json<{ session_id: string }>(["prompt", text]);
  if (first === undefined) throw new Error("No session was made");
  return first.session_id;
}

describe("albedo daemon", () => {
  test("--status and --stop start nothing, and tell what runs", async () => {
    await using world = new CliWorld();
    expect((await world.run(["daemon", "--status"])).code).toBe(1);
    expect(await world.run(["daemon", "--stop"])).toMatchObject({
      code: 0,
      stderr: "No daemon is running\n",
    });
    expect(world.daemonFile()).toBeNull();
    await world.run(["models"]);
    const file = world.daemonFile();
    const status = await world.run(["daemon", "--status"]);
    expect(status.code).toBe(0);
    expect(status.stdout).toContain(`running  ${file?.url}`);
    expect(status.stdout).not.toContain(file?.token ?? "");
    const stopped = await world.run(["daemon", "--stop"]);
    expect(stopped).toMatchObject({ code: 0, stdout: "" });
    expect(isAlive(file?.pid ?? 0)).toBe(false);
    expect(world.daemonFile()).toBeNull();
  });

  test("--stop --json says what became of it, as --status --json says what runs", async () => {
    await using world = new CliWorld();
    const { home } = world;
    expect(await world.json(["daemon", "--stop"])).toEqual([{ state: "absent", home }]);
    await world.run(["models"]);
    const pid = world.daemonFile()?.pid;
    expect(await world.json(["daemon", "--stop"])).toEqual([{ state: "stopped", home, pid }]);
    await world.run(["models"]);
    await world.killDaemon();
    expect(await world.json(["daemon", "--stop"])).toEqual([{ state: "dead", home }]);
  });

  test("runs in the foreground until it is told to end, and refuses a second one", async () => {
    await using world = new CliWorld();
    const daemon = world.start(["daemon"]);
    const file = await until("daemon.json", () => world.daemonFile());
    expect(file.pid).toBe(daemon.process.pid);
    const second = await world.run(["daemon"]);
    expect(second.code).toBe(1);
    expect(second.stderr).toContain("Another daemon");
    daemon.process.kill("SIGTERM");
    expect((await daemon.outcome).code).toBe(0);
    expect(world.daemonFile()).toBeNull();
  });

  test("tells a killed daemon from one that was stopped, and its leftovers hinder no one", async () => {
    await using world = new CliWorld();
    await world.run(["models"]);
    await world.killDaemon();
    const status = await world.run(["daemon", "--status"]);
    expect(status.code).toBe(1);
    expect(status.stdout).toContain("was killed or has crashed");
    const models = await world.run(["models"]);
    expect(models.code).toBe(0);
    expect(models.stderr).toContain("started a daemon");
  });

  test("is started once, however many verbs need it at the same time", async () => {
    await using world = new CliWorld();
    const all = await Promise.all(Array.from({ length: 4 }, () => world.run(["models", "--json"])));
    expect(all.map((outcome) => outcome.code)).toEqual([0, 0, 0, 0]);
    expect(all.filter((outcome) => outcome.stderr.includes("started a daemon"))).toHaveLength(1);
    expect(readdirSync(join(world.home, "client"))).toEqual([]);
  });

  test("that cannot start tells the verb why", async () => {
    await using world = new CliWorld();
    mkdirSync(world.home);
    writeFileSync(join(world.home, "config.toml"), 'model = "a/b"\nmodel = 7\n');
    const { code, stderr } = await world.run(["prompt", "hello"]);
    expect(code).toBe(2);
    expect(stderr).toContain("The daemon could not start");
    expect(stderr).toContain("config.toml");
    expect(stderr).toContain("line 2");
    expect((await world.run(["daemon"])).code).toBe(2);
  });
});

describe("albedo sessions, show and resume", () => {
  test("list, shorten and show what there is", async () => {
    await using world = new CliWorld();
    expect((await world.run(["sessions"])).stderr).toContain("No sessions yet");
    const id = await makeSession(world, "!bash echo out\n!say Hello");
    const [session] = await world.json<Session>(["sessions"]);
    expect(session).toMatchObject({ id, parent_id: null });
    const table = (await world.run(["sessions"])).stdout.split("\n");
    expect(table[0]).toContain("ID");
    expect(table[1]).toStartWith(`●  ${id.slice(0, 8)}`);
    const shown = await world.run(["show", id.slice(0, 8)]);
    expect(shown.stdout).toContain("> !bash echo out");
    expect(shown.stdout).toContain("• bash");
    expect(shown.stdout).toContain("Hello");
    const rows = await world.json<{ id: number; role: string }>(["show", id, "--all"]);
    expect(rows[0]?.role).toBe("user");
    expect(rows.map((row) => row.id)).toEqual(rows.map((row) => row.id).toSorted((a, b) => a - b));
    const last = await world.json<{ id: number }>(["show", id, "--tail", "1"]);
    expect(last.map((row) => row.id)).toEqual([rows.at(-1)?.id ?? -1]);
  });

  test("colour the active mark green", async () => {
    await using world = new CliWorld();
    await makeSession(world);
    const { stdout } = await world.run(["sessions"], { env: { FORCE_COLOR: "1" } });
    expect(stdout).toContain("\u001b[32m●\u001b[39m");
  });

  test("resume submits, and never makes a session", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world);
    const resumed = await world.run(["resume", id.slice(0, 13), "!say More"]);
    expect(resumed).toMatchObject({ code: 0 });
    expect(resumed.stdout).toContain("More");
    for (const args of [
      ["resume", MISSING, "x"],
      ["resume", "0000", "x"],
      ["resume", MISSING],
      ["prompt", "-s", MISSING, "x"],
      ["show", MISSING],
      ["attach", MISSING],
      ["cancel", MISSING, MISSING],
      ["interrupt", MISSING],
      ["delete", MISSING],
    ]) {
      const refused = await world.run(args);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toContain("No session matches");
    }
    expect(await world.json(["sessions"])).toHaveLength(1);
  });

  test("an ambiguous id lists the candidates", async () => {
    await using world = new CliWorld();
    const ids = [await makeSession(world), await makeSession(world)];
    const { code, stderr } = await world.run(["show", ids[0]?.slice(0, 4) ?? ""]);
    expect(code).toBe(1);
    expect(stderr).toContain("matches 2 sessions");
    for (const id of ids) expect(stderr).toContain(id);
  });
});

describe("albedo attach", () => {
  test("shows the end of the history, then what comes, until Ctrl-C", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world, "!say Before");
    const attached = world.start(["attach", id]);
    await until("the history", () => attached.stdout.includes("Before"));
    await world.run(["resume", id, "!think Hm\n!bash echo tool\n!say After"]);
    await until("the turn", () => attached.stdout.includes("After"));
    attached.process.kill("SIGINT");
    const { code, stdout } = await attached.outcome;
    expect(code).toBe(0);
    expect(stdout).toContain("> !think Hm");
    expect(stdout).toContain("• bash");
    expect(stdout.match(/^Before$/gm)).toHaveLength(1);
    expect(stdout.indexOf("Before")).toBeLessThan(stdout.indexOf("After"));
  });

  test("ends with an error when its session is deleted", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world, "!say Before");
    const attached = world.start(["attach", id, "--json"]);
    await until("the history", () => attached.stdout.includes("Before"));
    expect((await world.run(["delete", id])).code).toBe(0);
    const { code, stderr, stdout } = await attached.outcome;
    expect(code).toBe(1);
    expect(stderr).toContain("No session matches");
    expect(jsonLines(stdout).length).toBeGreaterThan(0);
  });
});

describe("albedo interrupt and delete", () => {
  test("stop a turn and remove a session", async () => {
    await using world = new CliWorld();
    const running = world.start(["prompt", "--json", "!slow 50\n!repeat 2000 word "]);
    await until("the first words", () => running.stdout.includes('"text"'));
    const [session] = await world.json<Session>(["sessions"]);
    const id = session?.id ?? "";
    const interrupted = await world.run(["interrupt", id]);
    expect(interrupted.stdout).toContain(
      "was told to stop, which does not say that it has stopped",
    );
    const { code, stderr } = await running.outcome;
    expect(code).toBe(130);
    expect(stderr).toContain("the turn was interrupted");
    expect((await world.run(["interrupt", id])).stdout).toContain("No turn was running");
    expect((await world.run(["delete", id])).stdout).toContain(`Deleted ${id}`);
    expect(await world.json(["sessions"])).toEqual([]);
  });

  test("delete leaves a session with children alone unless it is told to take them along", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world);
    const file = world.daemonFile();
    if (file === null) throw new Error("No daemon runs");
    const client = new Client(file);
    const child = await client.createSession({ workspace: world.workspace, parentId: id });
    expect(await world.json(["sessions"])).toHaveLength(1);
    expect(await world.json(["sessions", "--all"])).toHaveLength(2);
    expect((await world.run(["show", child.sessionId])).code).toBe(0);
    const refused = await world.run(["delete", id]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("--recursive");
    expect((await world.run(["delete", id, "--recursive"])).code).toBe(0);
    expect(await world.json(["sessions", "--all"])).toEqual([]);
  });
});

describe("albedo operation", () => {
  test("resolves what a killed client left behind, without sending it again", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world);
    const file = world.daemonFile();
    if (file === null) throw new Error("No daemon runs");
    const client = new Client(file);
    const state = new StateFile(world.home);
    const sent = client.prepareMessage(id, { text: "!say sent" });
    const unsent = client.prepareMessage(id, { text: "!say unsent" });
    await sent.send();
    for (const [index, handle] of [sent, unsent].entries()) await keepAs(state, handle, index);
    const listed = await world.run(["operation"]);
    expect(listed.code).toBe(3);
    expect(listed.stdout).toMatch(new RegExp(`${sent.operationId}[^]*accepted`));
    expect(listed.stdout).toMatch(new RegExp(`${unsent.operationId}[^]*not known`));
    const left = await world.run(["operation"]);
    expect(left.code).toBe(3);
    expect(left.stdout).not.toContain(sent.operationId);
    const retried = await world.run(["operation", unsent.operationId, "--retry"]);
    expect(retried.code).toBe(0);
    expect(retried.stdout).toContain("accepted");
    expect((await world.run(["operation"])).stderr).toContain("No operation is unresolved");
    const rows = await world.json<{ operation_id?: string; role: string }>(["show", id, "--all"]);
    const sentRows = rows.filter((row) => row.operation_id === sent.operationId);
    expect(sentRows.filter((row) => row.role === "user")).toHaveLength(1);
  });

  test("says when it knows nothing, and forgets on request", async () => {
    await using world = new CliWorld();
    const id = await makeSession(world);
    const file = world.daemonFile();
    if (file === null) throw new Error("No daemon runs");
    const handle = new Client(file).prepareMessage(id, { text: "x" });
    const strange = await world.run(["operation", handle.operationId]);
    expect(strange.code).toBe(3);
    // There is nothing that could be sent or given up.
    expect(strange.stdout).toContain("nothing is kept of it here");
    expect(strange.stdout).not.toContain("--retry");
    expect((await world.run(["operation", "0198"])).code).toBe(2);
    expect((await world.run(["operation", handle.operationId, "--retry"])).code).toBe(1);
    await keepAs(new StateFile(world.home), handle, 1);
    expect((await world.run(["operation", handle.operationId])).stdout).toContain("--retry");
    expect((await world.run(["operation", handle.operationId, "--forget"])).code).toBe(0);
    expect((await world.run(["operation"])).code).toBe(0);
  });
});

function keepAs(state: StateFile, handle: OperationHandle, keptAt: number): Promise<void> {
  return state.keep({
    operation_id: handle.operationId,
    session_id: handle.sessionId,
    kept_at: keptAt,
    awaits: "admission",
    expired: false,
    summary: "a message",
    handle: handle.toJSON(),
  });
}

describe("albedo models, logs and version", () => {
  test("print what they are asked for", async () => {
    await using world = new CliWorld();
    expect((await world.run(["logs"])).code).toBe(1);
    const models = await world.json<{ id: string; default: boolean }>(["models"]);
    expect(models.find((model) => model.default)?.id).toBe("demo/demo");
    const logs = await world.run(["logs", "--json"]);
    expect(logs.code).toBe(0);
    for (const line of jsonLines<{ level: string }>(logs.stdout)) expect(line.level).toBeString();
    const { version } = JSON.parse(
      readFileSync(join(import.meta.dir, "../../package.json"), "utf8"),
    );
    expect((await world.run(["version"])).stdout).toBe(`albedo ${version}\n`);
    expect((await world.run(["--version"])).stdout).toBe(`albedo ${version}\n`);
  });
});

describe("homes", () => {
  test("with spaces and letters of any script work", async () => {
    await using world = new CliWorld("ein Zuhause — 家 🏠");
    const { code, stdout } = await world.run(["prompt", "-q", "!say Hello"]);
    expect(code).toBe(0);
    expect(stdout).toStartWith("Hello\n");
    expect(statSync(world.home).mode & 0o777).toBe(0o700);
  });

  test("that cannot be used are named", async () => {
    await using world = new CliWorld();
    writeFileSync(world.home, "");
    const { code, stderr } = await world.run(["prompt", "x"]);
    expect(code).toBe(1);
    expect(stderr).toContain(`Cannot use '${world.home}' as the data directory`);
    for (const args of [["operation"], ["logs"]]) {
      const outcome = await world.run(args);
      expect(outcome.code).toBe(1);
      expect(outcome.stderr).toContain(`Cannot use '${world.home}/`);
      expect(outcome.stderr).toContain("ENOTDIR: not a directory\n");
      expect(outcome.stderr).not.toContain("should not have happened");
    }
  });

  test("without write permission are named", async () => {
    await using world = new CliWorld("closed/home");
    const closed = join(world.home, "..");
    mkdirSync(closed, { recursive: true });
    chmodSync(closed, 0o500);
    // Permissions do not stop root, but nobody makes a directory in /proc.
    const home = process.getuid?.() === 0 ? "/proc/albedo" : world.home;
    const { code, stderr } = await world.run(["prompt", "x"], { env: { ALBEDO_HOME: home } });
    chmodSync(closed, 0o700);
    expect(code).toBe(1);
    expect(stderr).toContain(`Cannot use '${home}' as the data directory`);
  });
});
