import { describe, expect, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { createLog, formatLine, LOG_FILE_NAME, type LogLevel } from "../../src/base/log.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

// Goal: a log with levels that is private, bounded, on disk when the call returns, and holds no token, key,
// header, body or prompt. Method: real files; secrets are put where code puts them by mistake.

function lines(path: string): Record<string, unknown>[] {
  return readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

describe("createLog()", () => {
  test("writes a line of JSON with the clock's time at once, in a private file", () => {
    using home = tempDir();
    const directory = join(home.path, "logs");
    const log = createLog({ directory, level: "info", clock: new FakeClock() });
    log.info("It listens", { port: 8080, session_id: "s", nested: { ok: true } });
    expect(lines(log.path)).toEqual([
      {
        time: "2026-01-01T00:00:00.000Z",
        level: "info",
        message: "It listens",
        port: 8080,
        session_id: "s",
        nested: { ok: true },
      },
    ]);
    expect(statSync(log.path).mode & 0o777).toBe(0o600);
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    log.close();
  });

  test("a file that others could read becomes private", () => {
    using home = tempDir();
    const path = join(home.path, LOG_FILE_NAME);
    createLog({ directory: home.path, level: "info", clock: new FakeClock() }).close();
    chmodSync(path, 0o644);
    createLog({ directory: home.path, level: "info", clock: new FakeClock() }).close();
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test.each([
    ["debug", 4],
    ["info", 3],
    ["warn", 2],
    ["error", 1],
  ] as const)("at level %s %p of four lines are written", (level: LogLevel, count) => {
    using home = tempDir();
    const log = createLog({ directory: home.path, level, clock: new FakeClock() });
    log.debug("a");
    log.info("b");
    log.warn("c");
    log.error("d");
    expect(lines(log.path)).toHaveLength(count);
    log.close();
  });

  test("files are set aside when they are full, and only five are kept", () => {
    using home = tempDir();
    const log = createLog({
      directory: home.path,
      level: "info",
      clock: new FakeClock(),
      fileBytesMax: 300,
    });
    for (let count = 0; count < 40; count += 1) log.info("A line", { count });
    const counts: number[] = [];
    for (const age of [".4", ".3", ".2", ".1", ""]) {
      const path = `${log.path}${age}`;
      expect(statSync(path).size).toBeLessThanOrEqual(300);
      expect(statSync(path).mode & 0o777).toBe(0o600);
      counts.push(...lines(path).map((line) => line.count as number));
    }
    expect(existsSync(`${log.path}.5`)).toBe(false);
    // The newest ones, in order and without a gap.
    expect(counts.at(-1)).toBe(39);
    expect(counts).toEqual(Array.from(counts, (_, index) => 40 - counts.length + index));
    log.close();
  });

  test("a log that cannot be written fails nothing, and says later what it lost", () => {
    using home = tempDir();
    const directory = join(home.path, "logs");
    const log = createLog({ directory, level: "info", clock: new FakeClock(), fileBytesMax: 150 });
    log.info("Before it broke, with a text that fills most of the file", { a: "b".repeat(20) });
    rmSync(directory, { recursive: true });
    log.info("Lost since there is nowhere to set the full file aside", { a: "b".repeat(20) });
    log.info("Lost too, as the directory is still away", { a: "b".repeat(20) });
    mkdirSync(directory);
    log.info("Back");
    expect(lines(log.path)).toMatchObject([{ lost: 2 }, { message: "Back" }]);
    log.close();
  });
});

describe("formatLine()", () => {
  const SECRET = "Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";

  function logged(fields: Record<string, unknown>, message = "Something"): string {
    return formatLine(0, "info", message, fields);
  }

  test.each([
    [{ token: SECRET }],
    [{ api_key: "short" }],
    [{ apiKey: "short" }],
    [{ Authorization: "Basic short" }],
    [{ headers: { "x-anything": "short" } }],
    [{ nested: { deeper: { accessToken: "short" } } }],
    [{ list: [{ password: "short" }] }],
    [{ body: "short" }],
    [{ requestBody: { text: "short" } }],
    [{ modelText: "short" }],
    [{ display_text: "short" }],
    [{ prompt: "short" }],
    [{ system_prompt: "short" }],
    [{ content: "short" }],
    [{ arguments: "short" }],
    [{ data: new TextEncoder().encode("short") }],
    [{ cookie: "short" }],
    [{ title: "short" }],
    [{ env: { ANTHROPIC: "short" } }],
  ])("%j gets in without what it holds", (fields) => {
    const line = logged(fields);
    expect(line).not.toContain("short");
    expect(line).not.toContain(SECRET);
    expect(line).toContain("[redacted]");
  });

  test.each([
    `Bearer ${SECRET}`,
    "authorization: bearer abc.def",
    "sk-ant-api03-abcdefghijklmnop",
    "sk-proj-abcdefghijklmnop",
    "AIzaSyabcdefghijklmnop",
    "ghp_abcdefghijklmnopqrst",
    SECRET,
    "a".repeat(64),
  ])("a secret in the text of a field or a message is scrubbed: %s", (secret) => {
    const hidden = secret.split(/[\s:]+/).at(-1)!;
    expect(logged({ reason: `It said ${secret} to me` })).not.toContain(hidden);
    expect(logged({}, `It said ${secret} to me`)).not.toContain(hidden);
    expect(logged({ error: new Error(`It said ${secret} to me`) })).not.toContain(hidden);
  });

  test("a URL keeps neither user nor the values of its query", () => {
    const line = logged({ url: "http://me:pass@127.0.0.1:80/x?token=short&limit=5" });
    expect(line).toContain("127.0.0.1:80/x");
    expect(line).not.toContain("pass");
    expect(line).not.toContain("short");
  });

  test("ids, paths and numbers stay readable", () => {
    const fields = {
      session_id: "01930000-0000-7000-8000-000000000001",
      path: "/home/me/.local/share/albedo/albedo.db",
      output_tokens: 12,
      status: 429,
      ok: true,
      nothing: null,
    };
    expect(JSON.parse(logged(fields))).toMatchObject(fields);
  });

  test("an error is told with its code, its place and its cause, and nothing else it carries", () => {
    const cause = Object.assign(new Error("disk"), { code: "ENOSPC" });
    const error = Object.assign(new Error("It failed", { cause }), { requestBodyValues: "short" });
    const line = JSON.parse(logged({ error })) as { error: Record<string, unknown> };
    expect(line.error).toMatchObject({
      name: "Error",
      message: "It failed",
      cause: { code: "ENOSPC", message: "disk" },
    });
    expect(String((line.error.at as string[])[0])).toContain("log.test.ts");
    expect(JSON.stringify(line)).not.toContain("short");
  });

  test("fields cannot stand in for time, level and message", () => {
    const line = JSON.parse(logged({ level: "error", message: "x", time: 5 })) as object;
    expect(line).toEqual({ time: "1970-01-01T00:00:00.000Z", level: "info", message: "Something" });
  });

  test("is one bounded line of JSON, whatever it is given", () => {
    const cyclic: Record<string, unknown> = {};
    cyclic.self = cyclic;
    expect(JSON.parse(logged(cyclic))).toMatchObject({ message: "Something" });
    expect(logged({ a: "x\ny".repeat(1_000_000) }).length).toBeLessThan(20_000);
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.anything()),
        fc.string({ unit: "binary" }),
        (fields, message) => {
          const line = logged(fields, message);
          expect(line.endsWith("\n")).toBe(true);
          expect(line.slice(0, -1)).not.toContain("\n");
          expect(line.isWellFormed()).toBe(true);
          expect(JSON.parse(line)).toMatchObject({ level: "info" });
        },
      ),
    );
  });
});
