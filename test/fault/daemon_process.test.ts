import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { isAlive } from "../../src/base/process_alive.ts";
import { EXIT } from "../../src/cli/exit.ts";
import type { ServerInfo } from "../../src/wire/server.ts";
import { ChildDaemon } from "../support/daemon.ts";
import { freePort } from "../support/free_port.ts";
import { until } from "../support/until.ts";

/**
 * Goal: the daemon as a process (contract.md, Files, process, safety): what it says, what it leaves, how it ends.
 * Method: real child processes with real signals.
 */
let daemon: ChildDaemon;

beforeEach(() => {
  daemon = new ChildDaemon();
});
afterEach(() => daemon[Symbol.asyncDispose]());

const TIMEOUT_MS = 60_000;

function mode(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

function logOf(child: ChildDaemon): string {
  return readFileSync(join(child.home, "logs", "daemon.log"), "utf8");
}

/** Starts the process, which has to give up by itself. */
async function fails(
  env: Record<string, string> = {},
  code: number = EXIT.failed,
): Promise<string> {
  const child = daemon.spawn(env);
  expect(await child.exited).toBe(code);
  const { stdout, stderr } = await daemon.output();
  expect(stdout).toBe("");
  return stderr;
}

/** A turn that goes on until it is told to stop. */
async function busySession(text: string): Promise<{ sessionId: string; inputId: string }> {
  const sessionId = await daemon.created({ workspace: daemon.workspace, model: "demo/demo" });
  const inputId = await daemon.say(sessionId, text);
  await until("the turn to run", async () => (await daemon.resource(sessionId)).running);
  return { sessionId, inputId };
}

describe("a start", () => {
  test("says where it listens, never the token, and keeps its files private", async () => {
    await daemon.start();
    expect(mode(daemon.home)).toBe("700");
    expect(mode(join(daemon.home, "daemon.json"))).toBe("600");
    expect(mode(join(daemon.home, "albedo.db"))).toBe("600");
    expect(mode(join(daemon.home, "logs"))).toBe("700");
    expect(mode(join(daemon.home, "logs", "daemon.log"))).toBe("600");
    const { file, token } = daemon;
    expect(Object.keys(file).toSorted()).toEqual(["instance_id", "pid", "token", "url"]);
    expect(token.length).toBeGreaterThanOrEqual(43);
    expect(await daemon.end("SIGTERM")).toBe(0);
    expect(await daemon.output()).toEqual({
      stdout: `albedo listens on ${file.url}\n`,
      stderr: "",
    });
    expect(logOf(daemon)).not.toContain(token);
  });

  test("leaves the modes of what tools make to the person's own umask", async () => {
    const umask = process.umask(0o022);
    try {
      await daemon.start();
    } finally {
      process.umask(umask);
    }
    const sessionId = await daemon.created({ workspace: daemon.workspace, model: "demo/demo" });
    const inputId = await daemon.say(sessionId, "!bash echo x > by_bash\n!write by_write x");
    expect((await daemon.ended(sessionId, inputId)).turn?.state).toBe("completed");
    expect(mode(join(daemon.workspace, "by_bash"))).toBe("644");
    expect(mode(join(daemon.workspace, "by_write"))).toBe("644");
  });

  test("listens on the port that it is told", async () => {
    const port = freePort();
    await daemon.start({ ALBEDO_PORT: String(port) });
    expect(daemon.url).toBe(`http://127.0.0.1:${port}`);
  });

  test("takes its times from the environment, and says which are in force", async () => {
    await daemon.start({ ALBEDO_IDLE_SECONDS: "7", ALBEDO_UNLOAD_SECONDS: "3" });
    const { limits } = await daemon.json<ServerInfo>("GET", "/server");
    expect(limits).toMatchObject({ idle_seconds: 7, unload_seconds: 3 });
  });

  test("on a port that is taken ends with words about it and leaves no file", async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", () => resolve()));
    const address = other.address();
    const port = typeof address === "object" ? address?.port : null;
    const said = await fails({ ALBEDO_PORT: String(port) });
    expect(said).toStartWith(`albedo: Port ${port} is in use`);
    expect(said.trim().split("\n")).toHaveLength(1);
    expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
    other.close();
    await daemon.start();
  });

  test("on a home that another daemon has ends with words about it and harms nothing", async () => {
    await daemon.start();
    const { pid, url } = daemon;
    const before = daemon.readFile();
    const second = new ChildDaemon();
    const child = second.spawn({ ALBEDO_HOME: daemon.home });
    expect(await child.exited).toBe(1);
    const { stderr } = await second.output();
    expect(stderr).toContain("Another daemon");
    expect(stderr).toContain(String(pid));
    expect(stderr).toContain(url);
    expect(daemon.readFile()).toEqual(before);
    expect((await daemon.request("/server")).status).toBe(200);
    await second[Symbol.asyncDispose]();
  });

  test.each([
    ["ALBEDO_PORT", "99999", /ALBEDO_PORT/],
    ["ALBEDO_PORT", "http", /ALBEDO_PORT/],
    ["ALBEDO_LOG", "loud", /ALBEDO_LOG/],
    ["ALBEDO_UNLOAD_SECONDS", "-1", /ALBEDO_UNLOAD_SECONDS/],
    ["ALBEDO_ORIGINS", "https://a.example/path", /ALBEDO_ORIGINS/],
    ["ALBEDO_ORIGINS", "*", /ALBEDO_ORIGINS/],
  ])("with %s=%s ends with words about it", async (name, value, words) => {
    const said = await fails({ [name]: value }, EXIT.usage);
    expect(said).toStartWith("albedo: ");
    expect(said).toMatch(words);
    expect(said).not.toContain("    at ");
  });

  test("with a settings file that cannot be used ends with its line", async () => {
    mkdirSync(daemon.home, { mode: 0o700 });
    writeFileSync(join(daemon.home, "config.toml"), 'model = "demo/demo"\n\nmodle = 1\n');
    const said = await fails({}, EXIT.usage);
    expect(said).toContain("config.toml, line 3");
    expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
  });

  test("whose log cannot be opened ends with words about it", async () => {
    mkdirSync(daemon.home, { mode: 0o700 });
    writeFileSync(join(daemon.home, "logs"), "a file where the directory should be");
    const stderr = await fails();
    expect(stderr).toContain(`"${join(daemon.home, "logs")}" cannot be used as a directory`);
    expect(stderr.trim().split("\n")).toHaveLength(1);
  });

  test("whose home is taken away later ends by itself, with words about it", async () => {
    await daemon.start();
    rmSync(daemon.home, { recursive: true });
    const code = await until("the daemon to end", () => daemon.exitCode);
    expect(code).toBe(EXIT.failed);
    expect((await daemon.output()).stderr).toContain(
      "was removed or replaced while the daemon ran",
    );
  });

  test("lets a page of a named origin in, and no other", async () => {
    await daemon.start({ ALBEDO_ORIGINS: "https://board.example, http://localhost:5173" });
    for (const [origin, status] of [
      ["https://board.example", 200],
      ["http://localhost:5173", 200],
      ["https://evil.example", 403],
    ] as const) {
      expect((await daemon.request("/server", { headers: { origin } })).status).toBe(status);
    }
  });
});

describe("a stop", () => {
  test.each(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
    "on %s ends turns and streams in order, within five seconds, and leaves the store whole",
    async (signal) => {
      await daemon.start();
      const { sessionId, inputId } = await busySession("!bash sleep 300");
      const waiting = await daemon.say(sessionId, "waits");
      const readers = await Promise.all([
        daemon.stream(sessionId),
        daemon.stream(sessionId, { headers: { "accept-encoding": "zstd" } }),
      ]);
      for (const reader of readers) await reader.event("reset");
      const began = performance.now();
      expect(await daemon.end(signal)).toBe(0);
      expect(performance.now() - began).toBeLessThan(5000);
      for (const reader of readers) {
        await reader.closed();
        expect(reader.ended).toBe(true);
      }
      expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
      expect(existsSync(join(daemon.home, "albedo.db-wal"))).toBe(false);
      await daemon.start();
      expect((await daemon.input(sessionId, inputId)).turn?.state).toBe("interrupted");
      // What waited goes on by itself.
      expect((await daemon.ended(sessionId, waiting)).turn?.state).toBe("completed");
    },
    TIMEOUT_MS,
  );

  test("that is asked for over HTTP is the same", async () => {
    await daemon.start();
    const { instance_id } = daemon.file;
    const child = daemon.pid;
    const answer = await daemon.send("POST", "/server/shutdown", { instance_id });
    expect(answer.status).toBe(202);
    await until("the process to end", () => !isAlive(child));
    expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
    expect((await daemon.output()).stderr).toBe("");
  });

  test(
    "that hangs on a command is over within five seconds; the command is gone too",
    async () => {
      await daemon.start();
      const { sessionId } = await busySession(
        "!bash trap '' TERM INT HUP; echo $$ > pid; sleep 300",
      );
      const pid = await until("the command", () => {
        const path = join(daemon.workspace, "pid");
        return existsSync(path) ? Number(readFileSync(path, "utf8")) : null;
      });
      expect(sessionId).toBeString();
      const began = performance.now();
      expect(await daemon.end("SIGTERM")).toBe(0);
      expect(performance.now() - began).toBeLessThan(5000);
      expect(isAlive(pid)).toBe(false);
    },
    TIMEOUT_MS,
  );

  test(
    "that a second signal hurries is over at once, and nothing is lost",
    async () => {
      await daemon.start();
      const { sessionId, inputId } = await busySession(
        "!bash trap '' TERM; echo on > on; sleep 300",
      );
      await until("the command", () => existsSync(join(daemon.workspace, "on")));
      process.kill(daemon.pid, "SIGTERM");
      await until("the stop to begin", () => logOf(daemon).includes("The daemon stops"));
      expect(await daemon.end("SIGTERM")).toBe(130);
      await daemon.start();
      expect((await daemon.input(sessionId, inputId)).turn?.state).toBe("interrupted");
    },
    TIMEOUT_MS,
  );

  test("refuses what comes in the meantime, and leaves it to a retry", async () => {
    await daemon.start();
    const { sessionId } = await busySession("!bash trap '' TERM; echo on > on; sleep 300");
    await until("the command", () => existsSync(join(daemon.workspace, "on")));
    process.kill(daemon.pid, "SIGTERM");
    const operationId = daemon.ids.uuidv7();
    const answer = await until("the refusal", async () => {
      const tried = await daemon.event(sessionId, { operationId: daemon.ids.uuidv7(), text: "x" });
      return tried.status === 202 ? null : tried;
    });
    expect(answer.status).toBe(503);
    expect(JSON.parse(answer.text).code).toBe("daemon_stopping");
    expect(answer.headers.get("retry-after")).toMatch(/^\d+$/);
    await daemon.end("SIGTERM");
    await daemon.start();
    expect((await daemon.event(sessionId, { operationId, text: "x" })).status).toBe(202);
  });
});

describe("a mistake that nobody caught", () => {
  test("is logged without anyone's words, and the daemon goes on", async () => {
    await using faulty = await ChildDaemon.start({
      entry: join(import.meta.dir, "..", "support", "faulty_daemon.ts"),
    });
    await until("both mistakes", () => {
      const log = logOf(faulty);
      return log.includes("An error was not caught") && log.includes("A rejection was not handled");
    });
    const log = logOf(faulty);
    expect(log).toContain("RangeError");
    expect(log).toContain("TypeError");
    expect(log).toContain("faulty_daemon.ts");
    expect(log).not.toContain("a person's words");
    const sessionId = await faulty.created({ workspace: faulty.workspace, model: "demo/demo" });
    const inputId = await faulty.say(sessionId, "still there?");
    expect((await faulty.ended(sessionId, inputId)).turn?.state).toBe("completed");
    expect(await faulty.end("SIGTERM")).toBe(0);
  });
});

describe("what a killed daemon leaves behind", () => {
  test(
    "does not stand in the way of the next: its file, its port, its commands",
    async () => {
      const port = String(freePort());
      await daemon.start({ ALBEDO_PORT: port });
      const first = daemon.file;
      await busySession("!bash echo $$ > pid; sleep 300");
      const pid = await until("the command", () => {
        const path = join(daemon.workspace, "pid");
        return existsSync(path) ? Number(readFileSync(path, "utf8")) : null;
      });
      await daemon.end("SIGKILL");
      expect(daemon.readFile()).toEqual(first);
      expect(isAlive(pid)).toBe(true);
      // A command that had inherited the listening socket would still hold the port.
      await daemon.start({ ALBEDO_PORT: port });
      expect(daemon.file.instance_id).not.toBe(first.instance_id);
      expect(daemon.token).not.toBe(first.token);
      expect(isAlive(pid)).toBe(false);
      const old = await daemon.request("/server", {
        headers: { authorization: `Bearer ${first.token}` },
      });
      expect(old.status).toBe(401);
    },
    TIMEOUT_MS,
  );
});
