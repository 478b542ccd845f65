import { describe, expect, test } from "bun:test";
import { chmodSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONFIG_FILE_NAME, ConfigError, ConfigFile, parseConfig } from "../../src/base/config.ts";
import type { Log } from "../../src/base/log.ts";
import { silentLog } from "../../src/base/log.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

// Goal: "a bad file is a clear error that names the line, and the last good settings stay" (contract.md, Files,
// process, safety). Method: texts in a table, and a real file with a clock that is moved by hand.

const GOOD = `
model = "local/qwen3"

[providers.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:11434/v1/"
api_key_env = "LOCAL_API_KEY"
models = ["qwen3", "org/other:latest"]

[providers.claude]
kind = "anthropic"
`;

function problemOf(text: string): string {
  try {
    parseConfig(text, "config.toml");
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as ConfigError).message;
  }
  throw new Error(`Was accepted: ${text}`);
}

describe("parseConfig()", () => {
  test("reads every setting of the contract", () => {
    const config = parseConfig(GOOD, "config.toml");
    expect(config.model).toBe("local/qwen3");
    expect([...config.providers]).toEqual([
      [
        "local",
        {
          kind: "openai-compatible",
          baseUrl: "http://127.0.0.1:11434/v1",
          apiKeyEnv: "LOCAL_API_KEY",
          models: ["qwen3", "org/other:latest"],
        },
      ],
      ["claude", { kind: "anthropic", baseUrl: null, apiKeyEnv: null, models: null }],
    ]);
    expect(parseConfig("", "config.toml")).toEqual({ model: null, providers: new Map() });
  });

  test.each([
    ["a = = 3", 1, "column 5"],
    ['model = "a/b"\nmodel = "a/c"', 2, "column"],
    ['modle = "x/y"', 1, "Unknown key 'modle'"],
    ["# one\n\nmodel = 3", 3, "'model'"],
    ['model = "no slash"', 1, 'form "provider/model"'],
    ["providers = 3", 1, "'providers': must be a table"],
    ["providers.a = 1", 1, "'providers.a' must be a table"],
    ["[providers.a]\n", 1, "Missing key 'providers.a.kind'"],
    ['[providers.a]\nkind = "nope"', 2, "'providers.a.kind'"],
    ['[providers.a]\nkind = "anthropic"\n\napi_key = "x"', 4, "Unknown key 'providers.a.api_key'"],
    ['[providers.a]\nkind = "anthropic"\nmodels = [\n  "a",\n  3,\n]', 3, "'providers.a.models.1'"],
    ['[providers.a]\nkind = "anthropic"\nmodels = ["a b"]', 3, "without blanks"],
    ['[providers.A]\nkind = "anthropic"', 1, "name is made of"],
    ['[providers.demo]\nkind = "anthropic"', 1, "'demo' belongs"],
    ['[providers.a]\nkind = "openai-compatible"', 1, "needs a 'base_url'"],
    ['[providers.a]\nkind = "anthropic"\nbase_url = "ftp://x"', 3, "http or https URL"],
    ['[providers.a]\nkind = "anthropic"\nbase_url = "http://me:secret@x/"', 3, "without user"],
    ['model = "a/b"\nproviders.a = { kind = "nope" }', 2, "'providers.a.kind'"],
  ])("refuses %j and names line %p", (text, line, words) => {
    const message = problemOf(text);
    expect(message).toStartWith(`config.toml, line ${line}: `);
    expect(message).toContain(words);
  });

  test("a key in the place of its variable's name is refused and not shown", () => {
    for (const text of [
      '[providers.a]\nkind = "anthropic"\napi_key_env = "sk-ant-verysecret"',
      '[providers.a]\nkind = "anthropic"\napi_key = "sk-ant-verysecret"',
      '[providers.a]\napi_key = "sk-ant-verysecret" oops',
    ]) {
      expect(problemOf(text)).not.toContain("verysecret");
    }
  });

  test("a name that is special to JavaScript is refused, not passed over", () => {
    for (const name of ["__proto__", "constructor", "prototype"]) {
      const message = problemOf(`[providers.${name}]\nkind = "anthropic"`);
      expect(message).toBe(`config.toml, line 1: A provider cannot be named '${name}'`);
    }
  });
});

describe("ConfigFile", () => {
  function open(home: string, log: Log = silentLog): { file: ConfigFile; clock: FakeClock } {
    const clock = new FakeClock();
    return { file: new ConfigFile({ home, clock, log }), clock };
  }

  test("no file means no settings; a bad one, a huge one and an unreadable one stop the start", () => {
    using home = tempDir();
    const path = join(home.path, CONFIG_FILE_NAME);
    expect(open(home.path).file.current()).toEqual({ model: null, providers: new Map() });
    writeFileSync(path, "model = 3");
    expect(() => open(home.path)).toThrow(`${path}, line 1: 'model'`);
    writeFileSync(path, `# ${"x".repeat(64 * 1024)}`);
    expect(() => open(home.path)).toThrow(ConfigError);
    writeFileSync(path, new Uint8Array([0x61, 0xff]));
    expect(() => open(home.path)).toThrow("UTF-8");
    rmSync(path);
    using directory = tempDir();
    renameSync(directory.path, path);
    expect(() => open(home.path)).toThrow("Cannot be read");
    rmSync(path, { recursive: true });
  });

  test("reload() keeps the last good settings on an error, logs it, and tells of a change", () => {
    using home = tempDir();
    const path = join(home.path, CONFIG_FILE_NAME);
    writeFileSync(path, GOOD);
    const logged: string[] = [];
    const log = { ...silentLog, error: (message: string) => void logged.push(message) };
    const { file } = open(home.path, log);
    const seen: (string | null)[] = [];
    const stop = file.onChange((config) => void seen.push(config.model));
    writeFileSync(path, "model = ");
    expect(file.reload()).toBeInstanceOf(ConfigError);
    expect(file.current().model).toBe("local/qwen3");
    expect(logged).toHaveLength(1);
    expect(seen).toEqual([]);
    writeFileSync(path, 'model = "local/other"');
    expect(file.reload()).toBeNull();
    expect(file.current().model).toBe("local/other");
    expect(seen).toEqual(["local/other"]);
    stop();
    rmSync(path);
    expect(file.reload()).toBeNull();
    expect(file.current().model).toBeNull();
    expect(seen).toEqual(["local/other"]);
  });

  test("watch() sees a change once it has stood for a moment, however it was made", async () => {
    using home = tempDir();
    const path = join(home.path, CONFIG_FILE_NAME);
    const { file, clock } = open(home.path);
    const seen: (string | null)[] = [];
    file.onChange((config) => void seen.push(config.model));
    file.watch();
    await clock.advance(5_000);
    expect(seen).toEqual([]);
    // Made, then replaced the way editors do, then written in place, then taken away.
    writeFileSync(path, 'model = "a/1"');
    await clock.advance(500);
    expect(seen).toEqual([]);
    await clock.advance(500);
    expect(seen).toEqual(["a/1"]);
    writeFileSync(`${path}.new`, 'model = "a/2"');
    renameSync(`${path}.new`, path);
    await clock.advance(1_000);
    writeFileSync(path, 'model = "a/33"');
    await clock.advance(1_000);
    rmSync(path);
    await clock.advance(1_000);
    expect(seen).toEqual(["a/1", "a/2", "a/33", null]);
    // A half-written file is looked at again when it is whole.
    writeFileSync(path, "model = ");
    await clock.advance(500);
    writeFileSync(path, 'model = "a/4"');
    await clock.advance(1_000);
    expect(seen.at(-1)).toBe("a/4");
    file.close();
    expect(clock.waiting).toBe(0);
  });

  test("a file that may not be read later is an error, not the end", () => {
    // A superuser may read everything.
    if (process.getuid?.() === 0) return;
    using home = tempDir();
    const path = join(home.path, CONFIG_FILE_NAME);
    writeFileSync(path, GOOD);
    const { file } = open(home.path);
    chmodSync(path, 0o000);
    expect(file.reload()?.message).toContain("EACCES");
    expect(file.current().model).toBe("local/qwen3");
  });
});
