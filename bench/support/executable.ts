import { Glob } from "bun";
import { statSync } from "node:fs";
import { join } from "node:path";
import { cacheDirectory, ROOT } from "./paths.ts";

/** Owns the compiled daemon that benches run: built aside, again where the source is newer. */
let built: Promise<string> | null = null;

export function compiledDaemon(): Promise<string> {
  built ??= build();
  return built;
}

async function build(): Promise<string> {
  const given = process.env.BENCH_EXECUTABLE;
  if (given !== undefined && given !== "") return given;
  const path = join(cacheDirectory(), "albedo");
  const builtAt = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (newestSource() <= builtAt) return path;
  const build = Bun.spawn([process.execPath, join(ROOT, "scripts", "build.ts"), "--out", path], {
    stdout: "ignore",
    stderr: "inherit",
  });
  if ((await build.exited) !== 0) throw new Error("The executable could not be compiled");
  return path;
}

function newestSource(): number {
  const patterns = ["src/**/*.ts", "migrations/*.sql", "package.json", "scripts/build.ts"];
  const paths = patterns.flatMap((pattern) => [...new Glob(pattern).scanSync(ROOT)]);
  return Math.max(...paths.map((path) => statSync(join(ROOT, path)).mtimeMs));
}
