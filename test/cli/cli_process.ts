import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { isAlive } from "../../src/base/process_alive.ts";
import type { DaemonFile } from "../../src/wire/server.ts";
import { tempDir } from "../support/temp_dir.ts";
import { until } from "../support/until.ts";

/**
 * Runs `albedo` as a person does: a process of its own, a home of its own. From source, or as the executable that
 * `ALBEDO_EXECUTABLE` names.
 */
const MAIN = resolve(import.meta.dir, "../../src/main.ts");

export function albedoCommand(): string[] {
  const executable = process.env.ALBEDO_EXECUTABLE;
  return executable === undefined || executable === "" ? [process.execPath, MAIN] : [executable];
}

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Its text, or `open` for a pipe that nobody writes to and nobody closes. @default nothing at all */
  readonly stdin?: string | { readonly open: true };
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly command?: readonly string[];
}

/** A verb that is under way; what it printed so far can be read. */
export class Running {
  stdout = "";
  stderr = "";
  readonly process: Bun.Subprocess<"pipe" | "ignore", "pipe", "pipe">;
  readonly outcome: Promise<Outcome>;

  constructor(process: Bun.Subprocess<"pipe" | "ignore", "pipe", "pipe">) {
    this.process = process;
    this.outcome = this.#read();
  }

  async #read(): Promise<Outcome> {
    const collect = async (name: "stdout" | "stderr"): Promise<void> => {
      const decoder = new TextDecoder();
      for await (const bytes of this.process[name]) {
        this[name] += decoder.decode(bytes, { stream: true });
      }
    };
    const [code] = await Promise.all([this.process.exited, collect("stdout"), collect("stderr")]);
    return { code, stdout: this.stdout, stderr: this.stderr };
  }
}

function stdinOf(stdin: RunOptions["stdin"]): "ignore" | "pipe" | Uint8Array<ArrayBuffer> {
  if (stdin === undefined) return "ignore";
  return typeof stdin === "string" ? new TextEncoder().encode(stdin) : "pipe";
}

/** A home, a workspace, and the daemon that comes to run in it; all of it goes at the end. */
export class CliWorld implements AsyncDisposable {
  readonly home: string;
  readonly workspace: string;
  readonly #directory = tempDir("albedo-cli-");

  /** @param homeName the home's directory below a temporary one */
  constructor(homeName = "home") {
    this.home = join(this.#directory.path, homeName);
    this.workspace = join(this.#directory.path, "workspace");
    mkdirSync(this.workspace);
  }

  start(args: readonly string[], options: RunOptions = {}): Running {
    const child = Bun.spawn([...(options.command ?? albedoCommand()), ...args], {
      cwd: options.cwd ?? this.workspace,
      env: this.environment(options.env),
      stdin: stdinOf(options.stdin),
      stdout: "pipe",
      stderr: "pipe",
    });
    return new Running(child as Bun.Subprocess<"pipe" | "ignore", "pipe", "pipe">);
  }

  run(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
    return this.start(args, options).outcome;
  }

  /** Runs a verb with `--json` and gives the objects it printed. */
  async json<T = Record<string, unknown>>(
    args: readonly string[],
    options: RunOptions = {},
  ): Promise<T[]> {
    const { stdout } = await this.run([...args, "--json"], options);
    return jsonLines<T>(stdout);
  }

  /** The environment of a verb: nothing of the tester's own settings, no provider to be found. */
  environment(extra: Readonly<Record<string, string>> = {}): Record<string, string> {
    return {
      PATH: process.env.PATH ?? "",
      HOME: this.#directory.path,
      ALBEDO_HOME: this.home,
      // Nothing listens there: a model server of this machine must not answer the tests.
      OLLAMA_HOST: "127.0.0.1:1",
      ...extra,
    };
  }

  daemonFile(): DaemonFile | null {
    try {
      return JSON.parse(readFileSync(join(this.home, "daemon.json"), "utf8")) as DaemonFile;
    } catch {
      return null;
    }
  }

  /** As the kernel does it when memory runs out. */
  async killDaemon(): Promise<void> {
    const file = this.daemonFile();
    if (file === null) throw new Error("No daemon runs");
    process.kill(file.pid, "SIGKILL");
    await until("the daemon's death", () => !isAlive(file.pid));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const file = this.daemonFile();
    if (file !== null && isAlive(file.pid)) {
      process.kill(file.pid, "SIGTERM");
      await until("the daemon's end", () => !isAlive(file.pid));
    }
    this.#directory[Symbol.dispose]();
  }
}

export function jsonLines<T = Record<string, unknown>>(text: string): T[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as T);
}
