import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { tempDir } from "../support/temp_dir.ts";
import type { TempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";
import { CliWorld } from "./cli_process.ts";

/**
 * Goal: the one file works alone, in an empty directory, and minds nothing that lies beside the user. Method: it
 * is compiled once, into a temporary directory, as `bun run build` compiles it.
 */
const BUILD = resolve(import.meta.dir, "../../scripts/build.ts");

let directory: TempDir;
let executable: string;

beforeAll(async () => {
  directory = tempDir("albedo-build-");
  executable = join(directory.path, "albedo");
  const build = Bun.spawn([process.execPath, BUILD, "--out", executable], {
    stdout: "pipe",
    stderr: "pipe",
  });
  const words = await new Response(build.stderr).text();
  if ((await build.exited) !== 0) throw new Error(`The build failed: ${words}`);
}, 120_000);

afterAll(() => directory[Symbol.dispose]());

describe("the executable", () => {
  test("leaves nothing but itself where it is built", () => {
    expect(readdirSync(directory.path)).toEqual(["albedo"]);
    expect(statSync(executable).mode & 0o111).toBe(0o111);
  });

  test("answers a prompt from an empty directory, with its migrations and its daemon in itself", async () => {
    await using world = new CliWorld();
    const { code, stdout, stderr } = await world.run(
      ["prompt", "!bash echo from a tool\n!say Hello"],
      {
        command: [executable],
      },
    );
    expect(stderr).toContain("started a daemon");
    expect(stdout).toContain("Hello");
    expect(code).toBe(0);
    expect(readdirSync(world.workspace)).toEqual([]);
    expect((await world.run(["daemon", "--stop"], { command: [executable] })).code).toBe(0);
  });

  test("ignores .env and bunfig.toml of the directory it runs in", async () => {
    await using world = new CliWorld();
    const other = join(world.workspace, "other home");
    writeFileSync(
      join(world.workspace, ".env"),
      `ALBEDO_HOME=${other}\nALBEDO_PORT=not a port\nNO_COLOR=\nFORCE_COLOR=1\n`,
    );
    writeFileSync(join(world.workspace, ".env.local"), "ALBEDO_PORT=99999999\n");
    writeFileSync(join(world.workspace, "bunfig.toml"), 'preload = ["./preload.ts"]\n');
    writeFileSync(
      join(world.workspace, "preload.ts"),
      'console.log("preloaded"); process.exit(9);\n',
    );
    writeFileSync(join(world.workspace, "package.json"), "{ not json");
    writeFileSync(join(world.workspace, "tsconfig.json"), "{ not json");
    const { code, stdout, stderr } = await world.run(["prompt", "-q", "!say Hello"], {
      command: [executable],
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toStartWith("Hello\n");
    expect(readdirSync(world.home)).toContain("albedo.db");
    const daemon = world.start(["daemon", "--status"], { command: [executable] });
    expect((await daemon.outcome).code).toBe(0);
  });

  test("runs the daemon in the foreground under its own process id", async () => {
    await using world = new CliWorld();
    const empty = join(world.workspace, "empty");
    mkdirSync(empty);
    const daemon = world.start(["daemon"], { command: [executable], cwd: empty });
    const file = await until("daemon.json", () => world.daemonFile());
    expect(file.pid).toBe(daemon.process.pid);
    daemon.process.kill("SIGTERM");
    expect((await daemon.outcome).code).toBe(0);
  });
});
