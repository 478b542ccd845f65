import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { waitingClock } from "../../src/base/clock.ts";
import { createIds } from "../../src/base/ids.ts";
import { Connection } from "../../src/cli/connection.ts";
import { CliError } from "../../src/cli/exit.ts";
import { PROTOCOL_VERSION, SESSION_REPLAY_VERSION } from "../../src/wire/server.ts";
import { tempDir } from "../support/temp_dir.ts";

/**
 * Goal: "Attachment requires `session_replay` capability version 2" (sessions.md): a daemon that speaks otherwise is
 * named and not talked to. Method: servers that answer `/health` and `/server` as such a daemon would.
 */
const INSTANCE = "0198c1d2-0000-7000-8000-00000000000a";

/** What opening a connection to a daemon that says this of itself comes to. */
async function open(server: Readonly<Record<string, unknown>>): Promise<string> {
  using home = tempDir();
  const paths: string[] = [];
  const listener = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const { pathname } = new URL(request.url);
      paths.push(pathname);
      if (pathname === "/health") return Response.json({ status: "ok" });
      return Response.json({
        name: "albedo",
        version: "0",
        protocol: PROTOCOL_VERSION,
        instance_id: INSTANCE,
        pid: process.pid,
        started_at: 1,
        capabilities: { session_replay: SESSION_REPLAY_VERSION },
        limits: {},
        ...server,
      });
    },
  });
  const file = {
    url: `http://127.0.0.1:${listener.port}`,
    token: "the token",
    pid: process.pid,
    instance_id: INSTANCE,
  };
  writeFileSync(join(home.path, "daemon.json"), JSON.stringify(file));
  const connection = new Connection({
    home: home.path,
    variables: {},
    clock: waitingClock,
    ids: createIds(waitingClock),
    notice: () => {},
    // Nothing may be started in place of a daemon that answers.
    command: ["/nonexistent/daemon"],
  });
  try {
    await connection.open();
    return "open";
  } catch (error) {
    expect(error).toBeInstanceOf(CliError);
    return (error as CliError).message;
  } finally {
    expect(paths).toEqual(["/health", "/server"]);
    await listener.stop(true);
  }
}

test("a daemon of this version is opened", async () => {
  expect(await open({})).toBe("open");
});

test.each([
  ["protocol 2 and this program 1", { protocol: PROTOCOL_VERSION + 1 }],
  ["session_replay 1 and this program 2", { capabilities: { session_replay: 1 } }],
  ["session_replay 3 and this program 2", { capabilities: { session_replay: 3 } }],
  ["session_replay 0 and this program 2", { capabilities: {} }],
])("a daemon that speaks %s is refused with words", async (words, server) => {
  expect(await open(server)).toBe(`The daemon speaks ${words}`);
});
