import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { waitingClock } from "../../src/base/clock.ts";
import type { Clock } from "../../src/base/clock.ts";
import { startDaemon } from "../../src/cli/autostart.ts";
import { CliError } from "../../src/cli/exit.ts";
import { hurriedClock } from "../client/hurried_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/**
 * Goal: a start ends with a daemon that answers or with the daemon's own words. Method: programs that behave as a
 * daemon does; the real one is in process.test.ts.
 */
const DAEMON = `
  const home = process.env.ALBEDO_HOME;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) => request.url.endsWith("/health")
      ? Response.json({ status: "ok" })
      : Response.json({ name: "albedo", version: "0", protocol: 1, instance_id: "i", pid: process.pid,
          started_at: 1, capabilities: {}, limits: {} }),
  });
  const file = { url: "http://127.0.0.1:" + server.port, token: "t", pid: process.pid, instance_id: "i" };
  require("node:fs").writeFileSync(home + "/daemon.json", JSON.stringify(file));
  console.error("late words");
`;

function start(home: string, program: string, clock: Clock = waitingClock) {
  return startDaemon({
    home,
    variables: process.env,
    clock,
    command: [process.execPath, "-e", program],
  });
}

async function failure(home: string, program: string, clock?: Clock): Promise<CliError> {
  const error = await start(home, program, clock).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof CliError)) throw new Error("It started", { cause: error });
  return error;
}

describe("startDaemon", () => {
  test("starts again while a daemon that stops still holds the home", async () => {
    using home = tempDir();
    const stopping = `
      const { existsSync, writeFileSync } = require("node:fs");
      const first = process.env.ALBEDO_HOME + "/first";
      if (!existsSync(first)) {
        writeFileSync(first, "");
        console.error("albedo: Another daemon has the home");
        process.exit(1);
      }
    `;
    const { file, others } = await start(home.path, stopping + DAEMON);
    process.kill(file.pid);
    expect(others).toBe(false);
  });

  test("waits until the daemon answers, and keeps what it says on stderr", async () => {
    using home = tempDir();
    const path = join(home.path, "ein Zuhause — 家");
    const { file, others } = await start(path, DAEMON);
    try {
      expect(others).toBe(false);
      expect(await (await fetch(`${file.url}/health`)).json()).toEqual({ status: "ok" });
      expect(readdirSync(join(path, "client"))).toEqual([]);
      expect(existsSync(join(path, "logs", "daemon.stderr"))).toBe(true);
    } finally {
      process.kill(file.pid);
    }
  });

  test("fails with the daemon's own words", async () => {
    using home = tempDir();
    const error = await failure(
      home.path,
      'console.error("albedo: The port 80 is taken\\nChoose another one"); process.exit(1)',
    );
    expect(error.message).toBe("The daemon could not start: The port 80 is taken");
    expect(error.hints).toEqual(["Choose another one"]);
    expect(readdirSync(join(home.path, "client"))).toEqual([]);
  });

  test("says of a daemon that has the home and does not answer that it does not", async () => {
    using home = tempDir();
    const file = { url: "http://127.0.0.1:1", token: "t", pid: process.pid, instance_id: "i" };
    writeFileSync(join(home.path, "daemon.json"), JSON.stringify(file));
    const error = await failure(
      home.path,
      'console.error("albedo: Another daemon has the home"); process.exit(1)',
      hurriedClock(4),
    );
    expect(error.message).toStartWith("The daemon does not answer");
    expect(error.hints.join()).toContain(`kill ${process.pid}`);
  });

  test("fails with how the daemon ended where it said nothing", async () => {
    using home = tempDir();
    const silent = await failure(home.path, "process.exit(7)");
    expect(silent.message).toContain("code 7");
    expect(silent.hints).toEqual(["`albedo daemon` says why"]);
    const killed = await failure(home.path, "process.kill(process.pid, 'SIGKILL')");
    expect(killed.message).toContain("SIGKILL");
  });

  test("takes another's daemon where its own has given way to it", async () => {
    using home = tempDir();
    // The other one appears only after ours has ended.
    const other = `setTimeout(() => { ${DAEMON} }, 300);`;
    const child = Bun.spawn([process.execPath, "-e", other], {
      env: { ...process.env, ALBEDO_HOME: home.path },
      stdio: ["ignore", "ignore", "ignore"],
    });
    try {
      const words = 'console.error("albedo: Another daemon has the home"); process.exit(1)';
      const { file, others } = await start(home.path, words);
      expect(others).toBe(true);
      expect(file.pid).toBe(child.pid);
    } finally {
      child.kill();
    }
  });

  test("says why where the home cannot be made", async () => {
    using home = tempDir();
    const path = join(home.path, "file");
    writeFileSync(path, "");
    const error = await failure(path, DAEMON);
    expect(error.message).toContain(`Cannot use '${path}' as the data directory`);
    expect(readFileSync(path, "utf8")).toBe("");
  });
});
