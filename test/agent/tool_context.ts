import { ProcessGroups } from "../../src/agent/processes.ts";
import { Skills } from "../../src/agent/skills.ts";
import type { Tool, ToolContext, ToolResult } from "../../src/agent/tool.ts";
import { createTools } from "../../src/agent/tools.ts";
import { systemClock } from "../../src/base/clock.ts";
import { silentLog } from "../../src/base/log.ts";
import { type TempDir, tempDir } from "../support/temp_dir.ts";

/** The tools over real directories and processes. Ends what they left when its scope ends. */
export class ToolBench implements AsyncDisposable {
  readonly #home: TempDir = tempDir();
  readonly #workspace: TempDir = tempDir();
  readonly #overflow: TempDir = tempDir();
  readonly processes: ProcessGroups;
  readonly progress: string[] = [];
  readonly #tools: ReadonlyMap<string, Tool>;

  constructor(env: Record<string, string | undefined> = process.env) {
    this.processes = new ProcessGroups({
      home: this.#home.path,
      clock: systemClock,
      log: silentLog,
    });
    const tools = createTools({
      processes: this.processes,
      skills: new Skills({ home: this.#home.path }),
      env,
      secretVariables: () => ["MY_KEY"],
    });
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  get home(): string {
    return this.#home.path;
  }

  get workspace(): string {
    return this.#workspace.path;
  }

  get overflow(): string {
    return this.#overflow.path;
  }

  tool(name: string): Tool {
    return this.#tools.get(name)!;
  }

  run(name: string, input: unknown, given: Partial<ToolContext> = {}): Promise<ToolResult> {
    return this.tool(name).run(input, {
      workspace: this.workspace,
      signal: new AbortController().signal,
      clock: systemClock,
      overflowDirectory: this.overflow,
      progress: (preview) => void this.progress.push(preview),
      ...given,
    });
  }

  /** The output of a call that must succeed. */
  async output(name: string, input: unknown): Promise<string> {
    const result = await this.run(name, input);
    if (result.isError) throw new Error(result.output);
    return result.output;
  }

  /** The output of a call that must fail. */
  async failure(name: string, input: unknown): Promise<string> {
    const result = await this.run(name, input);
    if (!result.isError) throw new Error(`Succeeded: ${result.output}`);
    return result.output;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.processes.endAll();
    for (const directory of [this.#home, this.#workspace, this.#overflow]) {
      directory[Symbol.dispose]();
    }
  }
}
