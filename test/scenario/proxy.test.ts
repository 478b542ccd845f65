import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { systemClock } from "../../src/base/clock.ts";
import { Api } from "../support/api.ts";
import { TestDaemon } from "../support/daemon.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: "a 40-byte event followed by silence is decoded by the client within 50 ms, in each coding, through nginx with
 * its default settings too" (contract.md, What others' users ran into).
 * Method: a whole daemon, an nginx in front of it that is told nothing but where it is, and small events with nothing
 * behind them. A proxy that holds them back would hold them until the next keepalive.
 */
const NGINX = Bun.which("nginx", { PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` });
const DECODED_MS_MAX = 50;
const EVENTS = 10;

class Behind extends Api {
  readonly url: string;
  readonly token: string;

  constructor(daemon: TestDaemon, url: string) {
    super(daemon.ids);
    this.url = url;
    this.token = daemon.token;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

async function startNginx(command: string, upstream: string) {
  const directory = tempDir("albedo-nginx-");
  const port = await freePort();
  const places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => {
    mkdirSync(join(directory.path, name));
    return `${name}_temp_path ${join(directory.path, name)};`;
  });
  const path = join(directory.path, "nginx.conf");
  writeFileSync(
    path,
    `daemon off; master_process off; pid ${join(directory.path, "pid")}; error_log stderr;
    events {}
    http {
      access_log off; ${places.join(" ")}
      server { listen 127.0.0.1:${port}; location / { proxy_pass ${upstream}; } }
    }`,
  );
  const child = Bun.spawn([command, "-p", directory.path, "-c", path], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const url = `http://127.0.0.1:${port}`;
  await until("nginx to listen", async () => {
    if (child.exitCode !== null) throw new Error(await new Response(child.stderr).text());
    return fetch(`${url}/health`).then(
      ({ status }) => status === 200,
      () => false,
    );
  });
  return {
    url,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
      directory[Symbol.dispose]();
    },
  };
}

async function expectPrompt(daemon: TestDaemon, api: Api, coding: string): Promise<void> {
  const sessionId = await daemon.session();
  const reader = await api.stream(sessionId, { headers: { "accept-encoding": coding } });
  expect(reader.response.headers.get("content-encoding") ?? "identity").toBe(coding);
  await reader.event("reset");
  const tookMs: number[] = [];
  for (let event = 0; event < EVENTS; event += 1) {
    const before = reader.events.length;
    const patched = await daemon.send("PATCH", `/sessions/${sessionId}`, { title: String(event) });
    expect(patched.status).toBe(200);
    // It was published before the answer was given.
    const published = systemClock.monotonic();
    expect((await reader.event("session", before)).title).toBe(String(event));
    tookMs.push(systemClock.monotonic() - published);
  }
  // A machine that is busy with other things may be late now and then, a proxy that holds back always is.
  expect(Math.min(...tookMs)).toBeLessThan(DECODED_MS_MAX);
  await reader.cancel();
}

test.each(["identity", "zstd"])(
  "a small event before a silence comes at once, in %s",
  async (coding) => {
    await using daemon = await TestDaemon.start();
    await expectPrompt(daemon, daemon, coding);
  },
);

test.skipIf(NGINX === null).each(["identity", "zstd"])(
  "a small event before a silence comes at once through nginx as it is, in %s",
  async (coding) => {
    await using daemon = await TestDaemon.start();
    await using nginx = await startNginx(NGINX ?? "", daemon.url);
    await expectPrompt(daemon, new Behind(daemon, nginx.url), coding);
  },
);
