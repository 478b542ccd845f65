import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { type IgnoreScope, isIgnored, parseIgnoreRules } from "./ignore_rules.ts";

/**
 * Owns the way through a tree of files for `glob` and `grep`: in order, bounded in entries and time, without links,
 * `.git`, `node_modules` and what `.gitignore` names.
 */
const ENTRIES_MAX = 200_000;
const DEPTH_MAX = 64;
const WALK_MS_MAX = 20_000;
const SKIPPED_DIRECTORIES = [".git", ".hg", ".svn", ".jj", "node_modules"];

export interface WalkOptions {
  /** The root; an absolute path. */
  readonly root: string;
  /** Directories that would be skipped and are wanted all the same. */
  readonly wanted: readonly string[];
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** Why a walk ended before it was through. */
export type WalkEnd = "complete" | "too_many" | "too_long";

export class FileWalk {
  readonly #options: WalkOptions;
  readonly #deadline: number;
  #entries = 0;
  #end: WalkEnd = "complete";

  constructor(options: WalkOptions) {
    this.#options = options;
    this.#deadline = options.clock.monotonic() + WALK_MS_MAX;
  }

  get end(): WalkEnd {
    return this.#end;
  }

  /**
   * The files below the root, as paths from it.
   *
   * @throws the signal's reason when it aborts
   */
  async *files(): AsyncGenerator<string> {
    yield* this.#directory("", [], 0);
  }

  async *#directory(
    directory: string,
    outer: readonly IgnoreScope[],
    depth: number,
  ): AsyncGenerator<string> {
    if (!this.#mayGoOn(depth)) return;
    const entries = await readdir(join(this.#options.root, directory), {
      withFileTypes: true,
    }).catch(() => []);
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    const hasRules = entries.some((entry) => entry.name === ".gitignore" && entry.isFile());
    const scopes = hasRules ? [...outer, await this.#readScope(directory)] : outer;
    const below: string[] = [];
    for (const entry of entries) {
      this.#entries += 1;
      const path = directory === "" ? entry.name : `${directory}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!this.#isSkipped(entry.name) && !isIgnored(scopes, path, true)) below.push(path);
      } else if (entry.isFile() && !isIgnored(scopes, path, false)) {
        yield path;
      }
    }
    for (const path of below) yield* this.#directory(path, scopes, depth + 1);
  }

  #mayGoOn(depth: number): boolean {
    this.#options.signal.throwIfAborted();
    if (this.#entries > ENTRIES_MAX || depth > DEPTH_MAX) this.#end = "too_many";
    else if (this.#options.clock.monotonic() > this.#deadline) this.#end = "too_long";
    else return true;
    return false;
  }

  #isSkipped(name: string): boolean {
    return SKIPPED_DIRECTORIES.includes(name) && !this.#options.wanted.includes(name);
  }

  async #readScope(directory: string): Promise<IgnoreScope> {
    const path = join(this.#options.root, directory, ".gitignore");
    const text = await readFile(path, "utf8").catch(() => "");
    return { directory, rules: parseIgnoreRules(text) };
  }
}

/** What a result says of a walk that did not get through. */
export function describeEnd(end: WalkEnd): string | null {
  switch (end) {
    case "complete":
      return null;
    case "too_many":
      return "[there are too many files; not all were looked at]";
    case "too_long":
      return "[it took too long; not all files were looked at]";
  }
}
