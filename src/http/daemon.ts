import { homedir } from "node:os";
import type { Model } from "../agent/provider.ts";
import { Models } from "../agent/models.ts";
import { Skills } from "../agent/skills.ts";
import type { Tool } from "../agent/tool.ts";
import { createTools } from "../agent/tools.ts";
import { ProcessGroups } from "../agent/processes.ts";
import { assert } from "../base/assert.ts";
import { type Clock, sleep } from "../base/clock.ts";
import { ConfigFile } from "../base/config.ts";
import type { Variables } from "../base/environment.ts";
import { type Ids, type RandomSource, createIds, systemRandom } from "../base/ids.ts";
import {
  IDLE_SECONDS_DEFAULT,
  OPERATION_AGE_MS_MAX,
  UNLOAD_SECONDS_DEFAULT,
} from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { Sessions } from "../session/sessions.ts";
import type { FaultPoints } from "../store/database.ts";
import { type Store, openStore } from "../store/store.ts";
import { explainOpenFailure } from "../store/store_open_error.ts";
import { HomeWatch } from "../work/home_watch.ts";
import { Sweep } from "../work/sweep.ts";
import { type App, createApp } from "./app.ts";
import { removeDaemonFile, writeDaemonFile } from "./daemon_file.ts";
import { type Listener, listen } from "./listener.ts";
import { originRules } from "./origins.ts";
import { serverInfo } from "./server_info.ts";

/**
 * Owns a daemon from its start to its stop (contract.md, Files, process, safety).
 *
 * I1. Nothing listens before everything behind it is ready: the home is ours, the store is open, what an earlier
 *     daemon left open has been ended.
 * I2. `daemon.json` is there only while something listens, and names this daemon.
 * I3. A stop takes the opposite way: admissions end, turns stop, streams end, the socket closes, the file goes, the
 *     store is brought in order. Each step has its share of `SHUTDOWN_MS_MAX` and is left behind when it is used up.
 */
export interface DaemonOptions {
  /** The data directory, an absolute path; made where it is missing. */
  readonly home: string;
  readonly clock: Clock;
  readonly log: Log;
  /** @default {systemRandom} */
  readonly random?: RandomSource;
  /** `0` means a free one. @default {0} */
  readonly port?: number;
  /** What models and tools see of the environment. @default {{}} */
  readonly env?: Variables;
  /** Origins of web pages that may use the daemon. @default {[]} */
  readonly origins?: readonly string[];
  /** @default {IDLE_SECONDS_DEFAULT} */
  readonly idleSeconds?: number;
  /** @default {UNLOAD_SECONDS_DEFAULT} */
  readonly unloadSeconds?: number;
  /** Further models by id; tests put scripted ones here. */
  readonly models?: readonly Model[];
  /** In place of the built-in tools. */
  readonly tools?: readonly Tool[];
  /** Named places at which a test may let the process die. */
  readonly points?: FaultPoints;
}

export interface Daemon {
  readonly url: string;
  readonly token: string;
  readonly instanceId: string;
  readonly store: Store;
  readonly sessions: Sessions;
  /** The home was removed or replaced, which is why the daemon stops. */
  readonly homeLost: boolean;
  /** Resolves when a stop has begun, whoever asked for it. */
  readonly stopping: Promise<void>;
  /** Resolves when the daemon has stopped. */
  readonly stopped: Promise<void>;
  /** Stops in order; the same promise however often it is asked. Never rejects. */
  stop(): Promise<void>;
}

/** What steps of a stop may take; together less than `SHUTDOWN_MS_MAX`. */
const STOP_SESSIONS_MS = 2_500;
const STOP_STEP_MS = 250;
const STOP_STORE_MS = 1_250;

const TOKEN_BYTES = 32;
const HOST = "127.0.0.1";

/**
 * Starts a daemon on a home.
 *
 * @throws {StoreOpenError | ConfigError | ListenError} with a message for the person who starts it
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const ids = createIds(options.clock, options.random);
  const config = new ConfigFile(options);
  const store = openStore({ ...options, ids });
  const daemon = new RunningDaemon(options, { ids, config, store });
  try {
    await daemon.start();
  } catch (error) {
    await daemon.stop();
    throw error;
  }
  return daemon;
}

interface Foundations {
  readonly ids: Ids;
  readonly config: ConfigFile;
  readonly store: Store;
}

class RunningDaemon implements Daemon {
  readonly instanceId: string;
  readonly token: string;
  readonly store: Store;
  readonly sessions: Sessions;
  readonly stopping: Promise<void>;
  readonly stopped: Promise<void>;
  readonly #options: DaemonOptions;
  readonly #config: ConfigFile;
  readonly #models: Models;
  readonly #skills: Skills;
  readonly #processes: ProcessGroups;
  readonly #sweep: Sweep;
  readonly #homeWatch: HomeWatch;
  readonly #startedAt: number;
  readonly #begun = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<void>();
  #listener: Listener | null = null;
  #isStopping = false;
  #homeLost = false;

  constructor(options: DaemonOptions, { ids, config, store }: Foundations) {
    const { home, clock, log, env = {}, random = systemRandom } = options;
    const { unloadSeconds = UNLOAD_SECONDS_DEFAULT } = options;
    this.#options = options;
    this.#config = config;
    this.store = store;
    this.#startedAt = clock.now();
    this.instanceId = ids.uuidv7();
    this.token = createToken(random);
    this.#models = new Models({ config, env, clock, log, extra: options.models ?? [] });
    this.#skills = new Skills({ home });
    this.#processes = new ProcessGroups({ home, clock, log, random });
    this.sessions = new Sessions({
      store,
      models: this.#models,
      skills: this.#skills,
      tools: options.tools ?? builtInTools(this.#processes, this.#skills, env, config),
      clock,
      ids,
      random,
      log,
      home,
      instanceId: this.instanceId,
      unloadSeconds,
      defaultWorkspace: homedir(),
    });
    this.#sweep = new Sweep({
      sessions: this.sessions,
      clock,
      log,
      unloadSeconds,
      collect: giveMemoryBack,
    });
    this.#homeWatch = new HomeWatch({
      clock,
      isInPlace: () => store.isInPlace(),
      onLost: () => this.#loseHome(),
    });
    this.stopping = this.#begun.promise;
    this.stopped = this.#ended.promise;
  }

  get url(): string {
    assert(this.#listener !== null, "The daemon has been started");
    return this.#listener.url;
  }

  get homeLost(): boolean {
    return this.#homeLost;
  }

  /** @throws {StoreOpenError | ListenError | DaemonFileError} */
  async start(): Promise<void> {
    const { home, log, port = 0 } = this.#options;
    await this.#processes.reapOrphans();
    await this.#recover();
    const listener = listen(this.#createApp(), { host: HOST, port });
    this.#listener = listener;
    const { url } = listener;
    writeDaemonFile(home, {
      url,
      token: this.token,
      pid: process.pid,
      instance_id: this.instanceId,
    });
    this.#config.watch();
    this.#sweep.start();
    this.#homeWatch.start();
    log.info("The daemon listens", { url, instance_id: this.instanceId, pid: process.pid });
  }

  async #recover(): Promise<void> {
    const { home, clock, log } = this.#options;
    try {
      await this.sessions.recover();
    } catch (error) {
      throw explainOpenFailure(error, home);
    }
    const refusedUntil = this.store.operations.floor();
    if (refusedUntil <= clock.now() - OPERATION_AGE_MS_MAX) return;
    log.warn(
      "The clock was ahead when receipts were removed; ids are refused until it is there again",
      {
        refused_until: new Date(refusedUntil).toISOString(),
      },
    );
  }

  #loseHome(): void {
    const { home, log } = this.#options;
    this.#homeLost = true;
    log.error("The home was removed or replaced while the daemon ran", { home });
    void this.stop();
  }

  stop(): Promise<void> {
    if (!this.#isStopping) {
      this.#isStopping = true;
      this.#begun.resolve();
      void this.#stop().finally(this.#ended.resolve);
    }
    return this.stopped;
  }

  #createApp(): App {
    const { clock, log, origins = [], idleSeconds, unloadSeconds } = this.#options;
    const identity = {
      instanceId: this.instanceId,
      pid: process.pid,
      startedAt: this.#startedAt,
    };
    return createApp({
      sessions: this.sessions,
      models: this.#models,
      skills: this.#skills,
      info: serverInfo(identity, {
        idleSeconds: idleSeconds ?? IDLE_SECONDS_DEFAULT,
        unloadSeconds: unloadSeconds ?? UNLOAD_SECONDS_DEFAULT,
      }),
      rules: originRules(HOST, origins),
      token: this.token,
      clock,
      log,
      shutdown: () => void this.stop(),
    });
  }

  async #stop(): Promise<void> {
    const { home, log } = this.#options;
    log.info("The daemon stops", { instance_id: this.instanceId });
    this.#homeWatch.stop();
    await this.#step("sessions", STOP_SESSIONS_MS, () => this.sessions.stop(STOP_SESSIONS_MS));
    await this.#step("tools", STOP_STEP_MS, () => this.#processes.endAll());
    await this.#step("sweep", STOP_STEP_MS, () => this.#sweep.stop());
    await this.#step("requests", STOP_STEP_MS, () => this.#listener?.drain());
    await this.#step("connections", STOP_STEP_MS, () => this.#listener?.close());
    await this.#step("file", STOP_STEP_MS, () => removeDaemonFile(home, this.instanceId));
    this.#config.close();
    await this.#step("store", STOP_STORE_MS, () => this.store.close());
    log.info("The daemon has stopped", { instance_id: this.instanceId });
  }

  /** Takes a step of the stop; one that fails or hangs keeps the others from nothing. */
  async #step(
    name: string,
    msMax: number,
    run: () => Promise<void> | void | undefined,
  ): Promise<void> {
    const { clock, log } = this.#options;
    const limit = new AbortController();
    const late = sleep(clock, msMax, limit.signal).then(
      () => log.warn("A step of the stop took too long and was left behind", { step: name }),
      () => {},
    );
    try {
      await Promise.race([Promise.resolve(run()), late]);
    } catch (error) {
      log.error("A step of the stop failed", {
        step: name,
        error: error instanceof Error ? error.name : typeof error,
      });
    } finally {
      limit.abort();
    }
  }
}

function createToken(random: RandomSource): string {
  const bytes = new Uint8Array(TOKEN_BYTES);
  random(bytes);
  return bytes.toBase64({ alphabet: "base64url", omitPadding: true });
}

/** What a busy hour grew; the runtime keeps it for as long as nothing new is allocated. */
function giveMemoryBack(): void {
  Bun.gc(true);
  Bun.shrink();
}

/** Commands see the environment without the keys that the settings name. */
function builtInTools(
  processes: ProcessGroups,
  skills: Skills,
  env: Variables,
  config: ConfigFile,
): readonly Tool[] {
  const secretVariables = (): string[] =>
    [...config.current().providers.values()].flatMap(({ apiKeyEnv }) => apiKeyEnv ?? []);
  return createTools({ processes, skills, env, secretVariables });
}
