import { Database } from "bun:sqlite";
import { expect, spyOn, test } from "bun:test";
import { existsSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import type { Tool } from "../../src/agent/tool.ts";
import { RECEIPT_RETENTION_MS, SHUTDOWN_MS_MAX, SWEEP_INTERVAL_MS } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { startDaemon } from "../../src/http/daemon.ts";
import { ListenError } from "../../src/http/listener.ts";
import type { ModelInfo } from "../../src/wire/server.ts";
import type { SessionPage } from "../../src/wire/session.ts";
import { TestDaemon } from "../support/daemon.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";

/**
 * Goal: the order of a start and of a stop, and that a stop has an end (contract.md, Files, process, safety).
 * Method: daemons in this process; time passes when a test says so.
 */
async function isRefused(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.on("error", () => resolve(true));
  });
}

/** Leaves the store as a daemon that was killed does: its turn still runs. */
function leaveTurnRunning(home: string): void {
  const database = new Database(join(home, "albedo.db"));
  database.run("UPDATE turns SET state = 'running', ended_at = NULL, error_code = NULL");
  database.run("UPDATE operations SET settled_at = NULL, expires_at = NULL WHERE kind = 'message'");
  database.close();
}

test("a daemon that has stopped has let everything go, and says so once to whoever asks", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const { url } = daemon;
  const sessionId = await daemon.session();
  const reader = await daemon.stream(sessionId);
  await reader.event("reset");
  let begun = false;
  void daemon.daemon.stopping.then(() => (begun = true));
  await Promise.all([daemon.daemon.stop(), daemon.daemon.stop(), daemon.daemon.stopped]);
  expect(begun).toBe(true);
  await reader.closed();
  expect(reader.ended).toBe(true);
  expect(await isRefused(url)).toBe(true);
  expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
  expect(existsSync(join(daemon.home, "albedo.db-wal"))).toBe(false);
  await daemon.restart();
  expect((await daemon.resource(sessionId)).id).toBe(sessionId);
});

test("a stop does not wait for ever for a tool that does not give way", async () => {
  const started = Promise.withResolvers<void>();
  const stubborn: Tool = {
    name: "stubborn",
    description: "Never ends, whatever it is told",
    parameters: { type: "object" },
    run: () => {
      started.resolve();
      return new Promise(() => {});
    },
  };
  await using daemon = await TestDaemon.start({ clock: new FakeClock(), tools: [stubborn] });
  const sessionId = await daemon.session();
  const inputId = await daemon.say(sessionId, "hello");
  (await daemon.model.next()).call("c1", "stubborn").finish("tool_calls");
  await started.promise;
  const reader = await daemon.stream(sessionId);
  await reader.event("reset");
  expect(await daemon.stop()).toBeLessThan(SHUTDOWN_MS_MAX);
  await reader.closed();
  expect(reader.ended).toBe(true);
  await daemon.restart();
  expect((await daemon.input(sessionId, inputId)).turn?.state).toBe("interrupted");
});

test("requests that never come to their end hold up a stop for a moment only", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const { hostname, port } = new URL(daemon.url);
  const head = `POST /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${daemon.token}\r\n`;
  const halves = [
    "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /sessions HTTP/1.1\r\nHost: loc",
    `${head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    `${head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`,
  ];
  let closed = 0;
  const sockets = halves.map((half) => {
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(half));
    socket.on("close", () => (closed += 1));
    socket.on("error", () => {});
    return socket.resume();
  });
  await Promise.all(
    sockets.map(
      (socket) => new Promise<void>((resolve) => socket.once("connect", () => resolve())),
    ),
  );
  // One answered request more shows that what was sent before it has been read.
  await daemon.request("/health");
  expect(await daemon.stop()).toBeLessThan(SHUTDOWN_MS_MAX);
  await until("every connection to be cut", () => closed === sockets.length);
});

test("nothing listens before what an earlier daemon left open has been ended", async () => {
  const clock = new FakeClock();
  await using daemon = await TestDaemon.start({ clock });
  const sessionId = await daemon.session();
  const inputId = await daemon.say(sessionId, "hello");
  await daemon.model.next();
  await daemon.stop();
  leaveTurnRunning(daemon.home);
  const listening: boolean[] = [];
  const listens = spyOn(Bun, "serve");
  const reached = (name: string): void => {
    if (name !== "recover.after_turn") return;
    listening.push(listens.mock.calls.length > 0, existsSync(join(daemon.home, "daemon.json")));
  };
  try {
    await daemon.restart({ points: { reached } });
    expect(listens).toHaveBeenCalledTimes(1);
  } finally {
    listens.mockRestore();
  }
  expect(listening).toEqual([false, false]);
  expect((await daemon.input(sessionId, inputId)).turn?.state).toBe("interrupted");
});

test("a quiet connection is never taken for an idle one, and no other program shares the port", async () => {
  const listens = spyOn(Bun, "serve");
  try {
    await using _daemon = await TestDaemon.start({ clock: new FakeClock() });
    expect(listens.mock.calls[0]?.[0]).toMatchObject({
      hostname: "127.0.0.1",
      // Bun closes connections that were silent for ten seconds otherwise, below any keepalive.
      idleTimeout: 0,
      reusePort: false,
    });
  } finally {
    listens.mockRestore();
  }
});

test("settings that change while it runs are followed, and free what waited for them; bad ones change nothing", async () => {
  const clock = new FakeClock();
  await using daemon = await TestDaemon.start({ clock });
  const path = join(daemon.home, "config.toml");
  const change = async (text: string): Promise<void> => {
    writeFileSync(path, text);
    // A file is looked at twice a second and has to stand for a moment.
    await clock.advance(1_000);
  };
  const defaults = async (): Promise<string[]> => {
    const { items } = await daemon.json<{ items: ModelInfo[] }>("GET", "/models");
    return items.filter((model) => model.default).map(({ id }) => id);
  };
  const settings = (model: string): string =>
    `model = "${model}"\n[providers.gone]\nkind = "openai-compatible"\n` +
    'base_url = "http://127.0.0.1:9/v1"\nmodels = ["a"]\n';
  await change(settings("test/scripted"));
  expect(await defaults()).toEqual(["test/scripted"]);
  const sessionId = await daemon.session({ model: "gone/a" });
  await change('model = "test/scripted"\n');
  const inputId = await daemon.say(sessionId, "hello");
  await until("the reason", async () => (await daemon.input(sessionId, inputId)).blocking_reason);
  await change('model = "demo/demo"\nmodle = 1\n');
  expect(await defaults()).toEqual(["test/scripted"]);
  expect((await daemon.input(sessionId, inputId)).state).toBe("pending");
  await change(settings("demo/demo"));
  expect(await defaults()).toEqual(["demo/demo"]);
  await until("the turn", async () => (await daemon.input(sessionId, inputId)).turn);
});

test("sessions are unloaded by the time that was set, unless they are watched; lists and histories load none", async () => {
  const clock = new FakeClock();
  await using daemon = await TestDaemon.start({ clock, unloadSeconds: 300 });
  const [quiet, watched] = [await daemon.session(), await daemon.session()];
  const loaded = async (): Promise<string[]> => {
    const { items } = await daemon.json<SessionPage>("GET", "/sessions");
    return items.filter((session) => session.loaded).map(({ id }) => id);
  };
  await daemon.resource(quiet);
  const reader = await daemon.stream(watched);
  await reader.event("reset");
  expect((await loaded()).toSorted()).toEqual([quiet, watched].toSorted());
  // A session stays for the whole time; the next sweep after it takes it.
  await clock.advance(300_000);
  expect((await loaded()).toSorted()).toEqual([quiet, watched].toSorted());
  await clock.advance(SWEEP_INTERVAL_MS);
  expect(await loaded()).toEqual([watched]);
  await daemon.json("GET", `/sessions/${quiet}/history`);
  expect(await loaded()).toEqual([watched]);
  await daemon.resource(quiet);
  expect((await loaded()).toSorted()).toEqual([quiet, watched].toSorted());
});

test("a start that fails leaves the home free and nothing listening", async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", () => resolve()));
  const address = taken.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const failure = await daemon.restart({ port }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ListenError);
  expect((failure as ListenError).message).toContain(`Port ${port} is in use`);
  expect(existsSync(join(daemon.home, "daemon.json"))).toBe(false);
  await daemon.restart();
  expect((await daemon.request("/health")).status).toBe(200);
  taken.close();
});

test("two daemons never share a port", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const port = Number(new URL(daemon.url).port);
  const second = TestDaemon.start({ clock: new FakeClock(), port });
  expect(await second.catch((error: unknown) => error)).toBeInstanceOf(ListenError);
  expect((await daemon.request("/server")).status).toBe(200);
});

test("two daemons of one home never listen at once", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const second = startDaemon({ home: daemon.home, clock: new FakeClock(), log: silentLog });
  expect(await second.catch((error: Error) => error.message)).toContain("Another daemon");
  expect((await daemon.request("/server")).status).toBe(200);
});

test("a daemon whose home was taken away stops, and leaves the next one's alone", async () => {
  const clock = new FakeClock();
  await using daemon = await TestDaemon.start({ clock });
  const { daemon: first, home } = daemon;
  await daemon.session();
  // Moved away and back between two looks: nothing happens.
  renameSync(home, `${home}.away`);
  await clock.advance(500);
  renameSync(`${home}.away`, home);
  await clock.advance(2000);
  expect((await daemon.request("/server")).status).toBe(200);
  rmSync(home, { recursive: true });
  const next = await startDaemon({ home, clock: new FakeClock(), log: silentLog });
  await clock.advance(1000);
  await first.stopping;
  expect(first.homeLost).toBe(true);
  await daemon.stop();
  expect(await isRefused(first.url)).toBe(true);
  expect((await fetch(`${next.url}/health`)).status).toBe(200);
  expect(existsSync(join(home, "daemon.json"))).toBe(true);
  expect(existsSync(join(home, "albedo.db-wal"))).toBe(true);
  expect(next.homeLost).toBe(false);
  await next.stop();
});

test("a start says once a clock that was ahead has removed receipts that new ids are not newer than", async () => {
  const clock = new FakeClock();
  await using daemon = await TestDaemon.start({ clock });
  const now = clock.now();
  await daemon.session();
  clock.setWall(now + 2 * RECEIPT_RETENTION_MS);
  await clock.advance(SWEEP_INTERVAL_MS);
  await until("a sweep", () => daemon.daemon.store.operations.floor() > 0);
  clock.setWall(now);
  const warnings: string[] = [];
  const log = { ...silentLog, warn: (message: string) => void warnings.push(message) };
  await daemon.restart({ log });
  expect(warnings).toEqual([expect.stringContaining("The clock was ahead")]);
});

test("a start that finds no room for what it must store says so, and what to do", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const sessionId = await daemon.session();
  const inputId = await daemon.say(sessionId, "hello");
  await daemon.model.next();
  await daemon.stop();
  leaveTurnRunning(daemon.home);
  const reached = (name: string): void => {
    if (name !== "recover.after_turn") return;
    throw Object.assign(new Error("database or disk is full"), { code: "SQLITE_FULL" });
  };
  const failure = await daemon.restart({ points: { reached } }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ name: "StoreOpenError", code: "disk_full" });
  expect((failure as Error).message).toContain("free some space, then start again");
  await daemon.restart();
  expect((await daemon.input(sessionId, inputId)).turn?.state).toBe("interrupted");
});

test("each start has its own instance and its own token, and the home is private", async () => {
  await using daemon = await TestDaemon.start({ clock: new FakeClock() });
  const { token } = daemon;
  const { instanceId } = daemon.daemon;
  await daemon.restart();
  expect(daemon.token).not.toBe(token);
  expect(daemon.daemon.instanceId).not.toBe(instanceId);
  expect(statSync(daemon.home).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(daemon.home)) {
    const mode = statSync(join(daemon.home, name)).mode & 0o077;
    expect([name, mode]).toEqual([name, 0]);
  }
});
