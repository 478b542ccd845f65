import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";

/**
 * Goal: the house rules that no linter has (style.md, sections 4 and 5; architecture.md). Method: every file of the
 * work tree is read and its imports are walked, type imports included, which Bun's own scanner leaves out. Each
 * check is also run on a sample that breaks its rule, so that a check that went blind is seen.
 */
const ROOT = resolve(import.meta.dir, "..");
const SOURCE_DIRECTORIES = ["src", "test", "bench", "scripts"];

/** What a floor may stand on. */
const FLOORS: Readonly<Record<string, readonly string[]>> = {
  base: [],
  wire: ["base"],
  store: ["base", "wire"],
  agent: ["base", "wire", "store"],
  session: ["base", "wire", "store", "agent"],
  work: ["base", "wire", "store", "agent", "session"],
  http: ["base", "wire", "store", "agent", "session", "work"],
  client: ["base", "wire"],
  cli: ["base", "wire", "store", "agent", "session", "work", "http", "client"],
};

/** Packages that belong to one place, and where that is. */
const PACKAGE_HOMES: readonly (readonly [RegExp, RegExp])[] = [
  [/^elysia$|^@elysiajs\//, /^src\/http\//],
  [/^bun:sqlite$/, /^src\/store\//],
  [/^@ai-sdk\//, /^src\/agent\/(provider|sdk)_\w+\.ts$/],
  [/^commander$/, /^src\/cli\//],
  [/^eventsource-parser$/, /^src\/client\//],
];

interface Import {
  readonly file: string;
  readonly specifier: string;
}

/** Imports and re-exports, static, dynamic and of types. */
function importsOf(file: string, source: string): Import[] {
  const code = source.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/(^|\s)\/\/.*$/gm, "$1");
  const patterns = [
    /\b(?:import|export)\b[^;'"`]*?\bfrom\s*["']([^"']+)["']/g,
    /\bimport\s*["']([^"']+)["']/g,
    /\bimport\s*\(\s*["']([^"']+)["']/g,
  ];
  return patterns.flatMap((pattern) =>
    [...code.matchAll(pattern)].map((match) => ({ file, specifier: match[1] ?? "" })),
  );
}

/** What is wrong with where an import points; `null` when nothing is. */
function misdirection({ file, specifier }: Import): string | null {
  if (!specifier.startsWith(".")) {
    const home = PACKAGE_HOMES.find(([name]) => name.test(specifier));
    return home === undefined || home[1].test(file)
      ? null
      : `'${specifier}' has no place in ${file}`;
  }
  const target = relative(ROOT, resolve(ROOT, dirname(file), specifier));
  if (!/\.(ts|json|sql)$/.test(specifier)) return `${file}: '${specifier}' lacks its extension`;
  if (!target.startsWith("src/")) return null;
  const from = file.split("/")[1] ?? "";
  const to = target.split("/")[1] ?? "";
  if (file === "src/main.ts" || from === to) return null;
  return FLOORS[from]?.includes(to) === true ? null : `${file} must not import ${target}`;
}

/** Words that do not belong in a repository, taken apart here so that this file may hold them. */
const BANNED: readonly (readonly [string, RegExp])[] = [
  ["an open end", new RegExp(`\\b(${["TO" + "DO", "FIX" + "ME", "X" + "XX"].join("|")})\\b`)],
  ["a placeholder", new RegExp(`\\b${"st" + "ub"}(s|bed)?\\b|in the ma${"king"}`, "i")],
  ["a path of one machine", new RegExp(`(^|[\\s"'\`(=])/${"wo" + "rk"}(/|\\b)`)],
  ["a registry's host", new RegExp(`regis${"try"}\\.(npmjs|yarnpkg)|npm\\.pkg|deb${"ian"}\\.org`)],
  ["a lost test", new RegExp(`\\b(test|it|describe)\\.(on${"ly"}|to${"do"}|sk${"ip"})\\(`)],
];

function bannedIn(text: string): string[] {
  return BANNED.filter(([, pattern]) => pattern.test(text)).map(([name]) => name);
}

function walk(directory: string): string[] {
  if (!existsSync(join(ROOT, directory))) return [];
  return readdirSync(join(ROOT, directory), { withFileTypes: true }).flatMap((entry) => {
    const path = `${directory}/${entry.name}`;
    return entry.isDirectory() ? walk(path) : [path];
  });
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

const sources = walk("src").filter((path) => path.endsWith(".ts") && !path.endsWith(".d.ts"));
const tests = walk("test").filter((path) => path.endsWith(".ts"));
const code = SOURCE_DIRECTORIES.flatMap(walk);
const texts = [
  ...code,
  ...walk("migrations"),
  ".ci/run",
  "README.md",
  "package.json",
  "tsconfig.json",
  "bunfig.toml",
  ".oxlintrc.json",
].filter((path) => existsSync(join(ROOT, path)));

describe("imports", () => {
  const all = sources.flatMap((path) => importsOf(path, read(path)));

  test("are found in every form", () => {
    const sample = [
      'import { a } from "./a.ts";',
      'import type { B } from "./b.ts";',
      'export type { C } from "./c.ts";',
      'import {\n  d,\n  type E,\n} from "./d.ts";',
      'const f = await import("./f.ts");',
      'import "./g.ts";',
      '// import { no } from "./comment.ts";',
    ].join("\n");
    const found = importsOf("src/cli/x.ts", sample).map((each) => each.specifier);
    expect(found.toSorted()).toEqual(["./a.ts", "./b.ts", "./c.ts", "./d.ts", "./f.ts", "./g.ts"]);
  });

  test("that point up, or lack an extension, or leave their floor's packages, are seen", () => {
    const wrong = [
      { file: "src/store/a.ts", specifier: "../session/b.ts" },
      { file: "src/client/a.ts", specifier: "../store/b.ts" },
      { file: "src/base/a.ts", specifier: "./b" },
      { file: "src/session/a.ts", specifier: "bun:sqlite" },
      { file: "src/agent/tools.ts", specifier: "@ai-sdk/anthropic" },
    ];
    for (const each of wrong) expect(misdirection(each)).not.toBeNull();
    expect(misdirection({ file: "src/session/a.ts", specifier: "../store/b.ts" })).toBeNull();
  });

  test("point down", () => {
    expect(all.map(misdirection).filter((wrong) => wrong !== null)).toEqual([]);
  });

  test("go to files that are there", () => {
    const missing = all.filter(
      ({ file, specifier }) =>
        specifier.startsWith(".") && !existsSync(resolve(ROOT, dirname(file), specifier)),
    );
    expect(missing).toEqual([]);
  });
});

describe("files", () => {
  test("of a floor stand on one level, in snake case", () => {
    const wrong = sources.filter((path) => !/^src\/(main|[a-z]+\/[a-z0-9_]+)\.ts$/.test(path));
    expect(wrong).toEqual([]);
    const floors = new Set(sources.map((path) => path.split("/")[1] ?? ""));
    expect([...floors].filter((floor) => floor !== "main.ts" && !(floor in FLOORS))).toEqual([]);
  });

  test("of tests bear the name of what they test", () => {
    const wrong = tests.filter((path) => {
      if (path === "test/tidy.test.ts" || path.startsWith("test/support/")) return false;
      if (!/^test\/[a-z]+\/[a-z0-9_]+(\.test)?\.ts$/.test(path)) return true;
      if (!path.endsWith(".test.ts") || /^test\/(scenario|fault)\//.test(path)) return false;
      // A test of more than one module says in its opening what it is about.
      if (read(path).includes("/*")) return false;
      const module = path.replace(/^test\//, "src/").replace(/\.test\.ts$/, ".ts");
      return !existsSync(join(ROOT, module));
    });
    expect(wrong).toEqual([]);
  });

  test("open with what they own", () => {
    const silent = sources.filter((path) => !read(path).includes("/**"));
    expect(silent).toEqual([]);
  });

  test("are of a size that can be read", () => {
    const long = sources.filter((path) => read(path).split("\n").length > 800);
    expect(long).toEqual([]);
    const large = texts.filter((path) => statSync(join(ROOT, path)).size > 128 * 1024);
    expect(large).toEqual([]);
  });

  test("hold no banned word", () => {
    const samples = ["// TO" + "DO: later", "a st" + "ub", " /wo" + "rk/x", "test.on" + "ly("];
    for (const sample of samples) expect(bannedIn(sample)).not.toEqual([]);
    const found = texts
      .filter((path) => path !== "test/tidy.test.ts")
      .flatMap((path) => bannedIn(read(path)).map((word) => `${path}: ${word}`));
    expect(found).toEqual([]);
  });

  test("print only in the command line", () => {
    const printing = sources.filter(
      (path) => !path.startsWith("src/cli/") && /\bconsole\s*\./.test(read(path)),
    );
    expect(printing).toEqual([]);
  });
});

describe("migrations", () => {
  const files = walk("migrations")
    .map((path) => basename(path))
    .toSorted();

  test("are numbered from one without a gap", () => {
    expect(files.length).toBeGreaterThan(0);
    for (const [index, name] of files.entries()) {
      expect(name).toMatch(/^\d{4}_[a-z0-9_]+\.sql$/);
      expect(Number(name.slice(0, 4))).toBe(index + 1);
    }
  });

  test("are all imported, in order", () => {
    const imported = importsOf("src/store/migrations.ts", read("src/store/migrations.ts"))
      .map((each) => each.specifier)
      .filter((specifier) => specifier.endsWith(".sql"))
      .map((specifier) => basename(specifier));
    expect(imported).toEqual(files);
  });
});

describe("README.md", () => {
  test("names commands that package.json has", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    const named = [...read("README.md").matchAll(/\b(?:npm|bun) run ([a-z][a-z:_-]*)/g)].map(
      (match) => match[1],
    );
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => name === undefined || !(name in scripts))).toEqual([]);
  });

  test("has the test command that CI runs", () => {
    const command = "npm ci && npm test";
    expect(read("README.md")).toContain(command);
    expect(read(".ci/run")).toContain(command);
  });
});
