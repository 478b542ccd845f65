import { describe, expect, test } from "bun:test";
import { appendFileSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { waitingClock } from "../../src/base/clock.ts";
import type { Context } from "../../src/cli/context.ts";
import { CliError, EXIT } from "../../src/cli/exit.ts";
import { logs } from "../../src/cli/logs.ts";
import { Signals } from "../../src/cli/signals.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";
import { Paper } from "./paper.ts";

/** Goal: the end of the log, and each line added to it once, also when the file is set aside. */
function world(home: string) {
  const paper = new Paper();
  const state = { paper, interrupt: () => undefined as void };
  const source = {
    on(signal: string, listener: () => void) {
      if (signal === "SIGINT") state.interrupt = listener;
    },
    off: () => undefined,
  };
  const context = {
    home,
    clock: waitingClock,
    output: { stdout: paper.sink, stderr: paper.sink },
    signals: new Signals(source),
  } as unknown as Context;
  return { context, state };
}

function logFile(home: string): string {
  mkdirSync(join(home, "logs"), { recursive: true });
  return join(home, "logs", "daemon.log");
}

describe("logs", () => {
  test("prints the last lines, readable or as they are", async () => {
    using home = tempDir();
    const line = '{"time":"2026-01-01T00:00:00.000Z","level":"warn","message":"Slow","ms":7}';
    writeFileSync(logFile(home.path), `{"old":1}\n${line}\nnot json\n`);
    const readable = world(home.path);
    expect(await logs(readable.context, { follow: false, lines: 2, json: false })).toBe(EXIT.done);
    expect(readable.state.paper.text).toBe("2026-01-01T00:00:00.000Z warn  Slow ms=7\nnot json\n");
    const raw = world(home.path);
    await logs(raw.context, { follow: false, lines: 2, json: true });
    expect(raw.state.paper.text).toBe(`${line}\nnot json\n`);
  });

  test("reads the end of a log that is larger than one chunk", async () => {
    using home = tempDir();
    const lines = Array.from(
      { length: 3000 },
      (_, index) => `{"line":${index},"pad":"${"é".repeat(40)}"}`,
    );
    writeFileSync(logFile(home.path), `${lines.join("\n")}\n`);
    const { context, state } = world(home.path);
    await logs(context, { follow: false, lines: 2500, json: true });
    expect(state.paper.text).toBe(`${lines.slice(-2500).join("\n")}\n`);
  });

  test("says that there is no log yet", async () => {
    using home = tempDir();
    const { context } = world(home.path);
    const error = await logs(context, { follow: false, lines: 1, json: false }).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(CliError);
  });

  test("follows a file that appears, grows and is set aside", async () => {
    using home = tempDir();
    const { context, state } = world(home.path);
    const following = logs(context, { follow: true, lines: 10, json: true });
    const path = logFile(home.path);
    writeFileSync(path, "one\ntw");
    await until("the first line", () => state.paper.text === "one\n");
    appendFileSync(path, "o\n");
    await until("the second line", () => state.paper.text === "one\ntwo\n");
    renameSync(path, `${path}.1`);
    writeFileSync(path, "three\n");
    await until("the new file", () => state.paper.text === "one\ntwo\nthree\n");
    state.interrupt();
    expect(await following).toBe(EXIT.done);
  });
});
