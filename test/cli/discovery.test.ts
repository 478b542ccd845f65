import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { isAlive } from "../../src/base/process_alive.ts";
import { findDaemon, readDaemonFile } from "../../src/cli/discovery.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";

/**
 * Goal: a `daemon.json` that is left over is told apart from a daemon, and the token is shown to nothing else.
 * Method: files by hand, and servers that answer as a daemon, as another instance or as anything.
 */
const TOKEN = "the token";
const INSTANCE = "0198c1d2-0000-7000-8000-00000000000a";

interface Server extends Disposable {
  readonly url: string;
  /** The paths asked for, with the authorization that came along. */
  readonly seen: (readonly [string, string | null])[];
}

function serve(answer: (path: string) => Response): Server {
  const seen: (readonly [string, string | null])[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const path = new URL(request.url).pathname;
      seen.push([path, request.headers.get("authorization")]);
      return answer(path);
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    seen,
    [Symbol.dispose]: () => void server.stop(true),
  };
}

function daemon(instanceId = INSTANCE): Server {
  return serve((path) => {
    if (path === "/health") return Response.json({ status: "ok" });
    return Response.json({
      name: "albedo",
      version: "0",
      protocol: 1,
      instance_id: instanceId,
      pid: process.pid,
      started_at: 1,
      capabilities: {},
      limits: {},
    });
  });
}

function write(home: string, url: string, pid = process.pid): void {
  const file = { url, token: TOKEN, pid, instance_id: INSTANCE };
  writeFileSync(join(home, "daemon.json"), JSON.stringify(file));
}

/** The id of a process that has ended. */
function deadPid(): number {
  return Bun.spawnSync([process.execPath, "--version"]).pid;
}

describe("findDaemon", () => {
  test("finds the daemon that the file names", async () => {
    using home = tempDir();
    using server = daemon();
    write(home.path, server.url);
    expect(await findDaemon(home.path)).toMatchObject({
      state: "running",
      file: { url: server.url },
      server: { instance_id: INSTANCE },
    });
    expect(server.seen).toEqual([
      ["/health", null],
      ["/server", `Bearer ${TOKEN}`],
    ]);
  });

  test("says absent where there is no file, no home or no sense in the file", async () => {
    using home = tempDir();
    expect(await findDaemon(home.path)).toEqual({ state: "absent" });
    expect(await findDaemon(join(home.path, "missing"))).toEqual({ state: "absent" });
    for (const text of ["", "{", '{"url":1}']) {
      writeFileSync(join(home.path, "daemon.json"), text);
      expect(await findDaemon(home.path)).toEqual({ state: "absent" });
    }
  });

  test("says dead without asking anyone where the process is gone", async () => {
    using home = tempDir();
    using server = daemon();
    write(home.path, server.url, deadPid());
    expect((await findDaemon(home.path)).state).toBe("dead");
    expect(server.seen).toEqual([]);
  });

  test("says silent where the connection is refused", async () => {
    using home = tempDir();
    const server = daemon();
    const { url } = server;
    server[Symbol.dispose]();
    write(home.path, url);
    expect((await findDaemon(home.path)).state).toBe("silent");
  });

  test("says silent where another instance answers", async () => {
    using home = tempDir();
    using server = daemon("0198c1d2-0000-7000-8000-00000000000b");
    write(home.path, server.url);
    expect(await findDaemon(home.path)).toMatchObject({
      state: "silent",
      reason: "another instance answers there",
    });
  });

  test("shows the token to no other program that has the port by now", async () => {
    for (const answer of [
      () => new Response("hello"),
      () => new Response(null, { status: 404 }),
      () => Response.json({ status: "fine" }),
      () => Response.redirect("http://127.0.0.1:1/health"),
    ]) {
      using home = tempDir();
      using server = serve(answer);
      write(home.path, server.url);
      expect((await findDaemon(home.path)).state).toBe("silent");
      expect(server.seen.map(([, authorization]) => authorization)).toEqual([null]);
    }
  });
});

describe("readDaemonFile", () => {
  test("gives what stands in the file", async () => {
    using home = tempDir();
    write(home.path, "http://127.0.0.1:1");
    expect(await readDaemonFile(home.path)).toEqual({
      url: "http://127.0.0.1:1",
      token: TOKEN,
      pid: process.pid,
      instance_id: INSTANCE,
    });
  });
});

describe("isAlive", () => {
  test("takes a process that has ended for gone, although its parent has not noticed", async () => {
    // The shell becomes a program that never asks for its child.
    const parent = Bun.spawn(["sh", "-c", "sleep 0.01 & echo $!; exec sleep 60"], {
      stdout: "pipe",
    });
    try {
      const { value } = await parent.stdout.getReader().read();
      const pid = Number(new TextDecoder().decode(value));
      await until("the zombie", () => !isAlive(pid));
      if (process.platform === "linux") expect(() => process.kill(pid, 0)).not.toThrow();
    } finally {
      parent.kill();
    }
  });

  test("knows this process, and none of the ids that are none", () => {
    expect(isAlive(process.pid)).toBe(true);
    for (const pid of [0, -1, 1.5, Number.NaN, deadPid()]) expect(isAlive(pid)).toBe(false);
  });
});
