import { stat } from "node:fs/promises";
import { basename, dirname } from "node:path";
import * as v from "valibot";
import type { Timer } from "../base/clock.ts";
import { describeEnd, FileWalk } from "./file_walk.ts";
import { type SearchReport, type SearchRequest, searchProgram } from "./grep_search.ts";
import type { ProcessGroup, ProcessGroups } from "./processes.ts";
import type { Tool, ToolContext } from "./tool.ts";
import { defineTool, PathSchema, resolvePath, ToolFailure } from "./tool_definition.ts";
import { cleanText, TOOL_OUTPUT_BYTES_MAX } from "./tool_output.ts";
import { compileGlob, pathPrefix } from "./tool_glob.ts";

/** Owns the `grep` tool: lines that match a regular expression, bounded in number, size and time. */
const MATCHES_DEFAULT = 200;
const MATCHES_MAX = 1000;
const SEARCH_MS_MAX = 30_000;
const FILES_MAX = 100_000;

const GrepSchema = v.strictObject({
  pattern: v.pipe(
    v.string(),
    v.minLength(1, "Must not be empty"),
    v.maxLength(2000),
    v.description("A regular expression of JavaScript; it is looked for in each line."),
  ),
  path: v.optional(
    v.pipe(PathSchema, v.description("The directory or file; the workspace when left out.")),
  ),
  glob: v.optional(
    v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(1000),
      v.description("Only in files whose name matches, such as '*.ts'."),
    ),
  ),
  ignore_case: v.optional(v.boolean()),
  limit: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.maxValue(MATCHES_MAX),
      v.description(`At most this many lines; ${MATCHES_DEFAULT} when left out.`),
    ),
  ),
});

type GrepInput = v.InferOutput<typeof GrepSchema>;

export function createGrepTool(dependencies: { readonly processes: ProcessGroups }): Tool {
  return defineTool({
    name: "grep",
    description:
      "Searches in files and shows 'path:line:text'. Binary files, .git, node_modules and what .gitignore names are " +
      "passed over.",
    schema: GrepSchema,
    run: async (input, context) => {
      const flags = input.ignore_case === true ? "i" : "";
      refuseBadPattern(input.pattern, flags);
      const place = await findFiles(input, context);
      const found = await new Search(dependencies.processes, context, place.prefix).run({
        root: place.root,
        files: place.files,
        pattern: input.pattern,
        flags,
        matchesMax: input.limit ?? MATCHES_DEFAULT,
      });
      const notes = [found.note, place.note].filter((note) => note !== null);
      if (found.lines.length === 0) notes.unshift("[no line matches]");
      return [...found.lines, ...notes].join("\n");
    },
  });
}

/** Compiling is quick whatever the pattern; only matching is not. */
function refuseBadPattern(pattern: string, flags: string): void {
  try {
    void new RegExp(pattern, flags);
  } catch (error) {
    throw new ToolFailure(`The pattern is no regular expression: ${(error as Error).message}`);
  }
}

interface Place {
  readonly root: string;
  /** What stands before a file's name, so that the model can use it as a path. */
  readonly prefix: string;
  readonly files: readonly string[];
  readonly note: string | null;
}

async function findFiles(input: GrepInput, context: ToolContext): Promise<Place> {
  const full = resolvePath(context, input.path ?? ".");
  const found = await stat(full);
  const given = input.path ?? ".";
  if (found.isFile()) {
    const prefix = given.slice(0, given.lastIndexOf("/") + 1);
    return { root: dirname(full), prefix, files: [basename(full)], note: null };
  }
  if (!found.isDirectory()) throw new ToolFailure(`It is neither a file nor a directory: ${full}`);
  const matches = input.glob === undefined ? () => true : compileGlob(input.glob);
  const { signal, clock } = context;
  const walk = new FileWalk({ root: full, wanted: (input.glob ?? "").split("/"), signal, clock });
  const files: string[] = [];
  for await (const file of walk.files()) {
    if (!matches(file)) continue;
    if (files.length >= FILES_MAX) break;
    files.push(file);
  }
  const note = files.length < FILES_MAX ? describeEnd(walk.end) : describeEnd("too_many");
  return { root: full, prefix: pathPrefix(given), files, note };
}

interface Found {
  readonly lines: readonly string[];
  readonly note: string | null;
}

class Search {
  readonly #processes: ProcessGroups;
  readonly #context: ToolContext;
  readonly #prefix: string;
  readonly #lines: string[] = [];
  #bytes = 0;
  #note: string | null = null;

  constructor(processes: ProcessGroups, context: ToolContext, prefix: string) {
    this.#processes = processes;
    this.#context = context;
    this.#prefix = prefix;
  }

  /** @throws the signal's reason when it aborts */
  async run(request: SearchRequest): Promise<Found> {
    if (request.files.length === 0) return { lines: [], note: null };
    const { clock, signal } = this.#context;
    const group = this.#start(request);
    let timer: Timer | null = null;
    const stop = (): void => void group.end();
    try {
      signal.addEventListener("abort", stop, { once: true });
      timer = clock.timer(SEARCH_MS_MAX, () => {
        this.#note = `[it took more than ${SEARCH_MS_MAX / 1000} s; not all files were searched]`;
        stop();
      });
      if (signal.aborted) stop();
      await this.#read(group, request);
      const { code } = await group.exited;
      signal.throwIfAborted();
      if (code !== 0 && this.#note === null) throw new ToolFailure("The search failed");
      return { lines: this.#lines, note: this.#note };
    } finally {
      timer?.cancel();
      signal.removeEventListener("abort", stop);
      await group.end();
    }
  }

  #start(request: SearchRequest): ProcessGroup {
    return this.#processes.spawn({
      // The program is Bun itself, or the executable that is told to act as Bun.
      command: [process.execPath, "-e", searchProgram()],
      env: { BUN_BE_BUN: "1" },
      // Not in the workspace: Bun reads settings from where it starts, and those may name programs.
      cwd: "/",
      stdin: new TextEncoder().encode(JSON.stringify(request)),
    });
  }

  async #read(group: ProcessGroup, request: SearchRequest): Promise<void> {
    const decoder = new TextDecoder();
    let held = "";
    for await (const piece of group.output) {
      const lines = (held + decoder.decode(piece, { stream: true })).split("\n");
      held = lines.pop() ?? "";
      for (const line of lines) {
        this.#take(line, request);
        if (this.#bytes > TOOL_OUTPUT_BYTES_MAX - 512) {
          this.#note = `[more lines match; only ${this.#lines.length} are shown]`;
          return void group.end();
        }
      }
    }
  }

  #take(line: string, request: SearchRequest): void {
    const report = readReport(line);
    if (report === null) return;
    if ("complete" in report) {
      if (!report.complete) {
        this.#note = `[more lines may match; only ${this.#lines.length} are shown]`;
      }
      return;
    }
    const shown =
      `${this.#prefix}${request.files[report.file]}:${report.line}:${cleanText(report.text)}`.toWellFormed();
    this.#lines.push(shown);
    this.#context.progress(shown);
    this.#bytes += Buffer.byteLength(shown) + 1;
  }
}

/** `null` for what the process wrote besides, such as a warning of Bun's. */
function readReport(line: string): SearchReport | null {
  try {
    const value = JSON.parse(line) as unknown;
    return typeof value === "object" ? (value as SearchReport | null) : null;
  } catch {
    return null;
  }
}
