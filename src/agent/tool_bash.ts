import { existsSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import type { Timer } from "../base/clock.ts";
import type { Variables } from "../base/environment.ts";
import type { ProcessGroup, ProcessGroups } from "./processes.ts";
import type { Tool, ToolContext, ToolResult } from "./tool.ts";
import { defineTool, ToolFailure } from "./tool_definition.ts";
import { OutputCollector } from "./tool_output.ts";
import { settledWithin } from "./waiting.ts";

/**
 * Owns the `bash` tool: one command in the workspace, bounded in time and output, ended with all it started when
 * the turn is interrupted or its time is over (contract.md, Turns, models, tools).
 */
const TIMEOUT_SECONDS_DEFAULT = 120;
const TIMEOUT_SECONDS_MAX = 600;
/** How long output is waited for after the command has ended; a process in the background may hold it open. */
const DRAIN_MS = 250;
const PROGRESS_INTERVAL_MS = 100;
const PREVIEW_CHARS_MAX = 400;

const BashSchema = v.strictObject({
  command: v.pipe(
    v.string(),
    v.minLength(1, "Must not be empty"),
    v.maxLength(100_000),
    v.check((command) => !command.includes("\0"), "Must not hold a NUL character"),
    v.description("The command, as bash reads it."),
  ),
  timeout_seconds: v.optional(
    v.pipe(
      v.number(),
      v.minValue(1),
      v.maxValue(TIMEOUT_SECONDS_MAX),
      v.description(
        `After this many seconds it is ended; ${TIMEOUT_SECONDS_DEFAULT} when left out, at most ${TIMEOUT_SECONDS_MAX}.`,
      ),
    ),
  ),
});

export interface BashDependencies {
  readonly processes: ProcessGroups;
  /** What the command sees. */
  readonly environment: () => Variables;
}

export function createBashTool(dependencies: BashDependencies): Tool {
  const shell = existsSync("/bin/bash") ? "/bin/bash" : "/bin/sh";
  return defineTool({
    name: "bash",
    description:
      "Runs a command with bash in the workspace and returns what it writes, errors included. Nothing can be typed " +
      "into it. A process it leaves in the background goes on.",
    schema: BashSchema,
    run: async ({ command, timeout_seconds }, context) => {
      const timeoutSeconds = timeout_seconds ?? TIMEOUT_SECONDS_DEFAULT;
      const group = start(dependencies, [shell, "-c", command], context);
      return new BashRun(group, context).finish(timeoutSeconds);
    },
  });
}

function start(
  { processes, environment }: BashDependencies,
  command: readonly string[],
  context: ToolContext,
): ProcessGroup {
  // A missing directory and a missing program give the same error.
  if (!existsSync(context.workspace)) {
    throw new ToolFailure(`The workspace is missing: ${context.workspace}`);
  }
  return processes.spawn({ command, cwd: context.workspace, env: environment() });
}

type Ending = "exited" | "timed_out" | "aborted";

class BashRun {
  readonly #group: ProcessGroup;
  readonly #context: ToolContext;
  readonly #output: OutputCollector;
  #shownAt = Number.NEGATIVE_INFINITY;

  constructor(group: ProcessGroup, context: ToolContext) {
    this.#group = group;
    this.#context = context;
    this.#output = new OutputCollector(join(context.overflowDirectory, `bash-${group.mark}.txt`));
  }

  /** @throws the signal's reason when it aborts */
  async finish(timeoutSeconds: number): Promise<ToolResult> {
    const reader = this.#group.output.getReader();
    const reading = this.#read(reader);
    const ending = await this.#ending(timeoutSeconds);
    if (ending !== "exited") await this.#group.end();
    await settledWithin(reading, DRAIN_MS, this.#context.clock);
    await reader.cancel().catch(() => {});
    await reading;
    const text = await this.#output.end();
    this.#context.signal.throwIfAborted();
    return this.#result(text, ending, timeoutSeconds);
  }

  async #result(text: string, ending: Ending, timeoutSeconds: number): Promise<ToolResult> {
    const notes: string[] = [];
    const { code, signal } = await this.#group.exited;
    if (ending === "timed_out") {
      notes.push(`[ended after ${timeoutSeconds} s, with all it had started]`);
    } else if (signal !== null) notes.push(`[ended by ${signal}]`);
    else if (code !== 0) notes.push(`[exit code ${code}]`);
    if (this.#group.isAlive()) {
      notes.push(`[it left processes in the background; their group is ${this.#group.pid}]`);
    }
    if (text === "" && notes.length === 0) notes.push("[no output]");
    // A note stands on a line of its own; an output without one stays as it is.
    const separator = text === "" || text.endsWith("\n") || notes.length === 0 ? "" : "\n";
    return {
      output: `${text}${separator}${notes.join("\n")}`,
      isError: ending !== "exited" || code !== 0,
    };
  }

  #ending(timeoutSeconds: number): Promise<Ending> {
    const { signal, clock } = this.#context;
    return new Promise((resolve) => {
      let timer: Timer | null = null;
      const finish = (ending: Ending): void => {
        timer?.cancel();
        signal.removeEventListener("abort", onAbort);
        resolve(ending);
      };
      const onAbort = (): void => finish("aborted");
      signal.addEventListener("abort", onAbort, { once: true });
      timer = clock.timer(timeoutSeconds * 1000, () => finish("timed_out"));
      void this.#group.exited.then(() => finish("exited"));
      if (signal.aborted) onAbort();
    });
  }

  async #read(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    for (;;) {
      const piece = await reader.read().catch(() => ({ done: true, value: undefined }));
      if (piece.done || piece.value === undefined) return;
      await this.#output.add(piece.value);
      this.#show();
    }
  }

  #show(): void {
    const now = this.#context.clock.monotonic();
    if (now - this.#shownAt < PROGRESS_INTERVAL_MS) return;
    this.#shownAt = now;
    this.#context.progress(this.#output.newest(PREVIEW_CHARS_MAX));
  }
}
