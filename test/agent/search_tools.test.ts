import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isIgnored, parseIgnoreRules } from "../../src/agent/ignore_rules.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";
import { ToolBench } from "./tool_context.ts";

/*
 * Goal: glob and grep find what is there, pass over what nobody means, and are bounded in results and time, also
 * with a pattern that would take for ever.
 */

setDefaultTimeout(60_000);

function put(root: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

const TREE = {
  "README.md": "# Title\nneedle in the readme\n",
  "src/a.ts": "const a = 1;\n// needle\n",
  "src/b.tsx": "needle needle\n",
  "src/deep/c.ts": "nothing\r\nNeedle at the end",
  "node_modules/m/index.ts": "needle\n",
  ".git/HEAD": "needle\n",
  "dist/out.js": "needle\n",
  ".gitignore": "/dist/\n*.log\n!keep.log\n",
  "x.log": "needle\n",
  "keep.log": "needle\n",
  "binary.bin": "needle\0needle\n",
};

describe("glob", () => {
  test("finds files in order, by name anywhere or by path", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, TREE);
    const find = async (pattern: string, path?: string): Promise<string[]> =>
      (await bench.output("glob", { pattern, path: path ?? null })).split("\n");
    expect(await find("*.ts")).toEqual(["src/a.ts", "src/deep/c.ts"]);
    expect(await find("src/*.{ts,tsx}")).toEqual(["src/a.ts", "src/b.tsx"]);
    expect(await find("./src/**/c.ts")).toEqual(["src/deep/c.ts"]);
    expect(await find("*.ts", "src")).toEqual(["src/a.ts", "src/deep/c.ts"]);
    expect(await find("**/*.log")).toEqual(["keep.log"]);
    expect(await find("**/*.js")).toEqual(["[no file matches]"]);
    expect(await find("node_modules/**/*.ts")).toEqual(["node_modules/m/index.ts"]);
    expect(await find("*.ts", bench.workspace)).toEqual([
      `${bench.workspace}/src/a.ts`,
      `${bench.workspace}/src/deep/c.ts`,
    ]);
  });

  test("goes round no circle of links, and shows no more than a thousand", async () => {
    await using bench = new ToolBench();
    mkdirSync(join(bench.workspace, "a"));
    symlinkSync("..", join(bench.workspace, "a/up"));
    for (let index = 0; index < 1005; index += 1) {
      writeFileSync(join(bench.workspace, `a/${index}.txt`), "");
    }
    const lines = (await bench.output("glob", { pattern: "*.txt" })).split("\n");
    expect(lines).toHaveLength(1001);
    expect(lines.at(-1)).toBe("[more files match; only 1000 are shown]");
  });

  test("says what it cannot look in", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, { file: "" });
    expect(await bench.failure("glob", { pattern: "*", path: "file" })).toContain(
      "not a directory",
    );
    expect(await bench.failure("glob", { pattern: "*", path: "nope" })).toContain("no such file");
    expect(await bench.failure("glob", { pattern: "" })).toContain("'pattern'");
  });

  test("an interrupt ends it with its reason", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, TREE);
    const abort = new AbortController();
    const running = bench.run("glob", { pattern: "*" }, { signal: abort.signal });
    abort.abort("stop");
    expect(await running.catch((error: unknown) => error)).toBe("stop");
  });
});

describe("grep", () => {
  test("shows path, line and text of each line that matches", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, TREE);
    const search = async (input: Record<string, unknown>): Promise<string[]> =>
      (await bench.output("grep", input)).split("\n").sort();
    expect(await search({ pattern: "needle" })).toEqual([
      "README.md:2:needle in the readme",
      "keep.log:1:needle",
      "src/a.ts:2:// needle",
      "src/b.tsx:1:needle needle",
    ]);
    expect(await search({ pattern: "needle", path: "src", glob: "*.ts" })).toEqual([
      "src/a.ts:2:// needle",
    ]);
    expect(await search({ pattern: "NEEDLE at the end$", ignore_case: true })).toEqual([
      "src/deep/c.ts:2:Needle at the end",
    ]);
    expect(await search({ pattern: "^nothing$", path: "src/deep" })).toEqual([
      "src/deep/c.ts:1:nothing",
    ]);
    expect(await search({ pattern: "needle", path: "dist/out.js" })).toEqual([
      "dist/out.js:1:needle",
    ]);
    expect(await search({ pattern: "absent" })).toEqual(["[no line matches]"]);
    expect(await search({ pattern: "needle", glob: "*.none" })).toEqual(["[no line matches]"]);
    expect(readdirSync(join(bench.home, "processes"))).toEqual([]);
  });

  test("a pattern that is none is a result that says so", async () => {
    await using bench = new ToolBench();
    expect(await bench.failure("grep", { pattern: "(" })).toContain("no regular expression");
    expect(await bench.failure("grep", { pattern: "" })).toContain("'pattern'");
    expect(await bench.failure("grep", { pattern: "x", path: "nope" })).toContain("no such file");
  });

  test("stops at the number and the size that are bounded, and says so", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, {
      a: "match\n".repeat(5000),
      b: `${"y".repeat(250)}match\n`.repeat(5000),
    });
    const few = (await bench.output("grep", { pattern: "match", path: "a", limit: 3 })).split("\n");
    expect(few).toEqual([
      "a:1:match",
      "a:2:match",
      "a:3:match",
      "[more lines may match; only 3 are shown]",
    ]);
    const usual = (await bench.output("grep", { pattern: "match", path: "a" })).split("\n");
    expect(usual).toHaveLength(201);
    const large = await bench.output("grep", { pattern: "match", path: "b", limit: 1000 });
    expect(Buffer.byteLength(large)).toBeLessThan(50_000);
    expect(large.split("\n").at(-1)).toContain("more lines match");
  });

  test("a line of megabytes shows what is around the match, in whole characters", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, {
      "min.js": `${"🌍".repeat(400_000)}needle${"🌍".repeat(400_000)}\nneedle\n`,
    });
    const [long, short] = (await bench.output("grep", { pattern: "needle" })).split("\n");
    expect(long).toContain("needle");
    expect(long!.length).toBeLessThan(400);
    expect(long!.isWellFormed()).toBe(true);
    expect(short).toBe("min.js:2:needle");
  });

  test("lines across the pieces a file is read in are found, with their numbers", async () => {
    await using bench = new ToolBench();
    const line = `${"z".repeat(99)}\n`;
    const text = line.repeat(100_000);
    const at = 4 * 1024 * 1024 - 3;
    put(bench.workspace, { big: `${text.slice(0, at)}needle${text.slice(at + 6)}` });
    const output = await bench.output("grep", { pattern: "needle" });
    expect(output).toStartWith(`big:${Math.floor(at / 100) + 1}:`);
  });

  test("a pattern that takes for ever is ended by an interrupt, while other work goes on", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, { evil: `${"a".repeat(1_500)}\n` });
    const abort = new AbortController();
    // On a clock that stands still only the interrupt can end it.
    const given = { signal: abort.signal, clock: new FakeClock() };
    const running = bench.run("grep", { pattern: ".*.*.*x" }, given);
    await until("the search to run", () => existsSync(join(bench.home, "processes")));
    let turns = 0;
    while (turns < 100) {
      turns += 1;
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    abort.abort("stop");
    expect(await running.catch((error: unknown) => error)).toBe("stop");
    expect(readdirSync(join(bench.home, "processes"))).toEqual([]);
  });

  test("a pattern that takes for ever is ended by the clock, and what was found stays", async () => {
    await using bench = new ToolBench();
    put(bench.workspace, { "1": "find this aax\n", "2": `${"a".repeat(1_500)}\n` });
    const clock = new FakeClock();
    const running = bench.run("grep", { pattern: ".*.*.*x" }, { clock });
    await until("the first match", () => bench.progress.length === 1);
    await clock.advance(29_999);
    await clock.advance(1);
    expect(await running).toEqual({
      output: "1:1:find this aax\n[it took more than 30 s; not all files were searched]",
      isError: false,
    });
    expect(clock.waiting).toBe(0);
  });
});

describe("searchProgram()", () => {
  test("works as it comes out of the build: minified, with names kept", async () => {
    await using bench = new ToolBench();
    const module = new URL("../../src/agent/grep_search.ts", import.meta.url).pathname;
    put(bench.workspace, {
      "entry.ts": `import { searchProgram } from ${JSON.stringify(module)}; console.log(searchProgram());`,
      "found.txt": "one\nneedle\n",
    });
    const built = await Bun.build({
      entrypoints: [join(bench.workspace, "entry.ts")],
      outdir: join(bench.workspace, "out"),
      target: "bun",
      minify: { whitespace: true, syntax: true, identifiers: true, keepNames: true },
    });
    const run = async (args: readonly string[], input: string): Promise<string> => {
      const child = Bun.spawn([process.execPath, ...args], {
        stdin: new TextEncoder().encode(input),
        stdout: "pipe",
        stderr: "inherit",
      });
      return new Response(child.stdout).text();
    };
    const program = await run([built.outputs[0]!.path], "");
    const request = {
      root: bench.workspace,
      files: ["found.txt", "gone.txt"],
      pattern: "n.{4}e",
      flags: "",
      matchesMax: 5,
    };
    const reports = (await run(["-e", program], JSON.stringify(request))).trim().split("\n");
    expect(reports.map((line) => JSON.parse(line) as object)).toEqual([
      { file: 0, line: 2, text: "needle" },
      { complete: true },
    ]);
  });
});

describe("isIgnored()", () => {
  // What git says of the same, checked with git check-ignore.
  test.each([
    ["*.log", "a.log", false, true],
    ["*.log", "deep/er/a.log", false, true],
    ["/a.log", "deep/a.log", false, false],
    ["/a.log", "a.log", false, true],
    ["build", "x/build", true, true],
    ["build/", "build", true, true],
    ["build/", "build", false, false],
    ["doc/*.txt", "doc/a.txt", false, true],
    ["doc/*.txt", "doc/x/a.txt", false, false],
    ["doc/*.txt", "x/doc/a.txt", false, false],
    ["**/logs", "a/b/logs", true, true],
    ["logs/**", "logs/a/b", false, true],
    ["a/**/z", "a/z", false, true],
    ["a/**/z", "a/b/c/z", false, true],
    ["?.c", "a.c", false, true],
    ["?.c", "ab.c", false, false],
    ["[a-c].h", "b.h", false, true],
    ["[a-c].h", "d.h", false, false],
    ["# comment", "# comment", false, false],
    ["\\#file", "#file", false, true],
    ["trailing   ", "trailing", false, true],
    ["*\n!keep", "keep", false, false],
    ["*\n!keep", "other", false, true],
    ["!keep\n*", "keep", false, true],
    ["{a,b}", "a", false, false],
    ["", "a", false, false],
  ])("%j, %j (directory: %p): %p", (text, path, isDirectory, expected) => {
    const scopes = [{ directory: "", rules: parseIgnoreRules(text) }];
    expect(isIgnored(scopes, path, isDirectory)).toBe(expected);
  });

  test("a file of rules speaks for its directory, and the inner one has the last word", () => {
    const scopes = [
      { directory: "", rules: parseIgnoreRules("*.tmp") },
      { directory: "sub", rules: parseIgnoreRules("!a.tmp\n/b.txt") },
    ];
    expect(isIgnored(scopes, "sub/a.tmp", false)).toBe(false);
    expect(isIgnored(scopes, "sub/c.tmp", false)).toBe(true);
    expect(isIgnored(scopes, "sub/b.txt", false)).toBe(true);
    expect(isIgnored(scopes, "sub/x/b.txt", false)).toBe(false);
  });
});
