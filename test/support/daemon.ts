import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { createIds } from "../../src/base/ids.ts";
import { SHUTDOWN_MS_MAX } from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { type Daemon, type DaemonOptions, startDaemon } from "../../src/http/daemon.ts";
import type { DaemonFile } from "../../src/wire/server.ts";
import { Api } from "./api.ts";
import { FakeClock } from "./fake_clock.ts";
import { ScriptedModel } from "./scripted_model.ts";
import { type TempDir, tempDir } from "./temp_dir.ts";
import { until } from "./until.ts";

const ROOT = join(import.meta.dir, "..", "..");

export interface TestDaemonOptions extends Partial<DaemonOptions> {
  readonly clock?: Clock;
}

/**
 * A daemon in this process, on a home of its own, over real sockets. `restart` stops it in order and starts another
 * on the same home.
 */
export class TestDaemon extends Api implements AsyncDisposable {
  readonly home: string;
  readonly workspace: string;
  readonly clock: Clock;
  readonly model: ScriptedModel;
  readonly #options: TestDaemonOptions;
  readonly #directory: TempDir;
  #daemon: Daemon;

  private constructor(options: TestDaemonOptions, directory: TempDir, daemon: Daemon) {
    super(createIds(options.clock ?? systemClock));
    this.#options = options;
    this.#directory = directory;
    this.#daemon = daemon;
    this.home = homeIn(directory);
    this.workspace = workspaceIn(directory);
    this.clock = options.clock ?? systemClock;
    this.model =
      options.models?.find((model) => model instanceof ScriptedModel) ?? new ScriptedModel();
  }

  static async start(options: TestDaemonOptions = {}): Promise<TestDaemon> {
    const directory = tempDir("albedo-daemon-");
    mkdirSync(workspaceIn(directory), { mode: 0o700 });
    const whole = { ...options, models: options.models ?? [new ScriptedModel()] };
    try {
      return new TestDaemon(whole, directory, await startOn(directory, whole));
    } catch (error) {
      directory[Symbol.dispose]();
      throw error;
    }
  }

  get daemon(): Daemon {
    return this.#daemon;
  }

  override get url(): string {
    return this.#daemon.url;
  }

  override get token(): string {
    return this.#daemon.token;
  }

  /** A session in the workspace, with the scripted model unless another is named. */
  async session(fields: Readonly<Record<string, unknown>> = {}): Promise<string> {
    return this.created({ workspace: this.workspace, model: this.model.id, ...fields });
  }

  /**
   * Stops in order. A clock that stands still is moved for it, as far as a stop may take.
   *
   * @returns how much of the clock's time it took, milliseconds
   */
  async stop(): Promise<number> {
    const { clock } = this;
    const began = clock.monotonic();
    let stopped = false;
    const stop = this.#daemon.stop().then(() => (stopped = true));
    while (clock instanceof FakeClock && !stopped && clock.monotonic() - began < SHUTDOWN_MS_MAX) {
      await clock.advance(10);
    }
    await stop;
    return clock.monotonic() - began;
  }

  async restart(options: TestDaemonOptions = {}): Promise<void> {
    await this.stop();
    this.#daemon = await startOn(this.#directory, { ...this.#options, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    this.#directory[Symbol.dispose]();
  }
}

function homeIn(directory: TempDir): string {
  return join(directory.path, "home");
}

function workspaceIn(directory: TempDir): string {
  return join(directory.path, "workspace");
}

function startOn(directory: TempDir, options: TestDaemonOptions): Promise<Daemon> {
  return startDaemon({ clock: systemClock, log: silentLog, ...options, home: homeIn(directory) });
}

export interface ChildOptions {
  /** An entry instead of the program's own. */
  readonly entry?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** The program from source, or the executable that `ALBEDO_TEST_EXECUTABLE` names. */
function programOf({ entry }: ChildOptions): readonly string[] {
  const executable = process.env.ALBEDO_TEST_EXECUTABLE;
  if (entry === undefined && executable !== undefined && executable !== "") return [executable];
  return [process.execPath, entry ?? join(ROOT, "src", "main.ts")];
}

/** A daemon as a process of its own; it can be killed and started again on the same home. */
export class ChildDaemon extends Api implements AsyncDisposable {
  readonly home: string;
  readonly workspace: string;
  readonly #directory = tempDir("albedo-child-");
  readonly #options: ChildOptions;
  #child: Bun.Subprocess<"ignore", "pipe", "pipe"> | null = null;
  #file: DaemonFile | null = null;
  #output: Promise<string> = Promise.resolve("");
  #errors: Promise<string> = Promise.resolve("");

  constructor(options: ChildOptions = {}) {
    super(createIds(systemClock));
    this.#options = options;
    this.home = homeIn(this.#directory);
    this.workspace = workspaceIn(this.#directory);
    mkdirSync(this.workspace, { mode: 0o700 });
  }

  static async start(options: ChildOptions = {}): Promise<ChildDaemon> {
    const child = new ChildDaemon(options);
    await child.start();
    return child;
  }

  override get url(): string {
    return this.file.url;
  }

  override get token(): string {
    return this.file.token;
  }

  get file(): DaemonFile {
    if (this.#file === null) throw new Error("The daemon does not run");
    return this.#file;
  }

  get pid(): number {
    if (this.#child === null) throw new Error("The daemon does not run");
    return this.#child.pid;
  }

  /** `null` while the process runs. */
  get exitCode(): number | null {
    return this.#child?.exitCode ?? null;
  }

  /** What the process wrote to stdout and stderr, once it has ended. */
  async output(): Promise<{ readonly stdout: string; readonly stderr: string }> {
    return { stdout: await this.#output, stderr: await this.#errors };
  }

  /** Starts the process without waiting for anything. */
  spawn(env: Readonly<Record<string, string>> = {}): Bun.Subprocess<"ignore", "pipe", "pipe"> {
    const child = Bun.spawn([...programOf(this.#options), "daemon"], {
      cwd: this.workspace,
      env: {
        PATH: process.env.PATH ?? "",
        HOME: this.#directory.path,
        ALBEDO_HOME: this.home,
        ...this.#options.env,
        ...env,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    this.#output = new Response(child.stdout).text();
    this.#errors = new Response(child.stderr).text();
    return child;
  }

  /** Starts the process and waits until it listens. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    const child = this.spawn(env);
    this.#file = await until("the daemon to listen", async () => {
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`The daemon ended with ${child.exitCode}: ${(await this.output()).stderr}`);
      }
      const file = this.readFile();
      return file?.pid === child.pid ? file : null;
    });
  }

  /** `daemon.json`, where it is there and whole. */
  readFile(): DaemonFile | null {
    try {
      return JSON.parse(readFileSync(join(this.home, "daemon.json"), "utf8")) as DaemonFile;
    } catch {
      return null;
    }
  }

  /** Sends a signal and waits for the end of the process. */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (child === null) return null;
    child.kill(signal);
    await child.exited;
    return child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end("SIGKILL");
    this.#directory[Symbol.dispose]();
  }
}
