import { chmod, mkdir, rename, rm, stat, utimes } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";

/**
 * Builds `dist/albedo`, the one executable, and `dist/client.js`, the client library for Node and browsers.
 *
 *   bun scripts/build.ts                for this machine
 *   bun scripts/build.ts --all          for every platform that is released
 *   bun scripts/build.ts --executable   the executable alone
 *   bun scripts/build.ts --out FILE     the executable alone, to FILE
 *
 * The executable loads neither `.env` nor `bunfig.toml` of the folder it runs in: without the two flags a file
 * beside the user would change its environment.
 */
const ROOT = resolve(import.meta.dir, "..");
const DIST = join(ROOT, "dist");

interface Platform {
  /** As `file name` and documentation call it. */
  readonly name: string;
  /** What `bun build --target` calls it. */
  readonly target: string;
  /** The npm package that carries Bun for it. */
  readonly npmPackage: string;
  readonly executable: string;
}

const PLATFORMS: readonly Platform[] = [
  platform("linux-x64", "linux-x64", "bun"),
  platform("linux-arm64", "linux-aarch64", "bun"),
  platform("macos-x64", "darwin-x64", "bun"),
  platform("macos-arm64", "darwin-aarch64", "bun"),
  platform("windows-x64", "windows-x64", "bun.exe"),
];

function platform(name: string, bunName: string, executable: string): Platform {
  return {
    name,
    target: `bun-${bunName.replace("aarch64", "arm64")}`,
    npmPackage: `@oven/bun-${bunName}`,
    executable,
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      all: { type: "boolean", default: false },
      executable: { type: "boolean", default: false },
      out: { type: "string" },
    },
  });
  await mkdir(DIST, { recursive: true });
  if (values.out !== undefined) {
    await compile(resolve(values.out), []);
    return;
  }
  await compile(join(DIST, process.platform === "win32" ? "albedo.exe" : "albedo"), []);
  if (!values.executable) await buildClient();
  if (values.all) {
    for (const each of PLATFORMS) await compileFor(each);
  }
}

/** Compiles aside and renames, so that nobody ever runs half an executable or loses the one that runs. */
async function compile(outfile: string, options: readonly string[]): Promise<void> {
  // What was written while the compiler read must count as newer than its product.
  const startedAt = new Date();
  const suffix = outfile.endsWith(".exe") ? ".exe" : "";
  const aside = `${outfile}.${process.pid}${suffix}`;
  try {
    await run(process.execPath, [
      "build",
      "--compile",
      "--minify",
      "--keep-names",
      "--bytecode",
      "--format=esm",
      // One chunk a verb: what a verb does not need is not even read.
      "--splitting",
      "--sourcemap=none",
      // What runs once at the start is not worth compiling; the daemon goes back to normal when it is up.
      "--compile-jit-policy=10",
      "--no-compile-autoload-dotenv",
      "--no-compile-autoload-bunfig",
      ...options,
      "--outfile",
      aside,
      join(ROOT, "src", "main.ts"),
    ]);
    if (suffix === "") await chmod(aside, 0o755);
    await utimes(aside, startedAt, startedAt);
    await rename(aside, outfile);
  } finally {
    await rm(aside, { force: true });
  }
  console.log(`${outfile}  ${((await stat(outfile)).size / 1e6).toFixed(1)} MB`);
}

async function compileFor(each: Platform): Promise<void> {
  const suffix = each.executable.endsWith(".exe") ? ".exe" : "";
  await compile(join(DIST, `albedo-${each.name}${suffix}`), [
    `--target=${each.target}`,
    `--compile-executable-path=${await bunFor(each)}`,
  ]);
}

/** The Bun of another platform, out of its npm package. Its version is this one's. */
async function bunFor(each: Platform): Promise<string> {
  const cache = join(ROOT, "node_modules", ".cache", "albedo", `${each.name}-${Bun.version}`);
  const executable = join(cache, "package", "bin", each.executable);
  if (await Bun.file(executable).exists()) return executable;
  await mkdir(cache, { recursive: true });
  const packed = await run("npm", [
    "pack",
    "--silent",
    "--pack-destination",
    cache,
    `${each.npmPackage}@${Bun.version}`,
  ]);
  const archive = join(cache, packed.trim().split("\n").at(-1) ?? "");
  await run("tar", ["-xzf", archive, "-C", cache]);
  await rm(archive);
  return executable;
}

/** One module without dependencies, and the declarations that belong to it. */
async function buildClient(): Promise<void> {
  const built = await Bun.build({
    entrypoints: [join(ROOT, "src", "client", "client.ts")],
    outdir: DIST,
    naming: "client.js",
    target: "browser",
    format: "esm",
  });
  for (const artifact of built.outputs) {
    console.log(`${artifact.path}  ${(artifact.size / 1e3).toFixed(1)} kB`);
  }
  const types = join(DIST, "types");
  await rm(types, { recursive: true, force: true });
  await run(process.execPath, [
    join(ROOT, "node_modules", "typescript", "bin", "tsc"),
    "--project",
    join(ROOT, "scripts", "tsconfig.client.json"),
    "--outDir",
    types,
  ]);
}

async function run(command: string, args: readonly string[]): Promise<string> {
  const child = Bun.spawn([command, ...args], {
    cwd: ROOT,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (code !== 0) {
    console.error(stdout + stderr);
    throw new Error(`'${command} ${args[0] ?? ""}' ended with ${code}`);
  }
  return stdout;
}

await main();
