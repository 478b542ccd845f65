import { Client } from "../client/client.ts";
import type { Endpoint } from "../client/client.ts";
import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import { PROTOCOL_VERSION, SESSION_REPLAY_VERSION } from "../wire/server.ts";
import type { DaemonFile, ServerInfo } from "../wire/server.ts";
import { startDaemon } from "./autostart.ts";
import type { Start } from "./autostart.ts";
import { isAlive } from "../base/process_alive.ts";
import { findDaemon, readDaemonFile } from "./discovery.ts";
import { CliError } from "./exit.ts";

/**
 * Owns the way from a verb to its daemon: finds it, starts it where none runs, and finds it again after a restart
 * under another port and token.
 *
 * A daemon that was stopped in order took its `daemon.json` along and is not started behind the person's back; one
 * that was killed left it, and is started again, since it has accepted work to go on with.
 */
export interface ConnectionOptions extends Pick<Start, "command"> {
  readonly home: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly ids: Ids;
  /** Says something to the person. */
  readonly notice: (text: string) => void;
}

/** How many killed daemons one verb replaces; more than that is a daemon that cannot stay up. */
const RESTARTS_MAX = 3;

export class Connection {
  readonly client: Client;
  readonly #options: ConnectionOptions;
  #restarts = 0;
  #starting: Promise<DaemonFile> | null = null;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.client = new Client({
      endpoint: () => this.#endpoint(),
      clock: options.clock,
      ids: options.ids,
    });
  }

  /**
   * @returns a client of a daemon that has answered; where none ran, one was started
   * @throws {CliError} when there is none and none could be started
   */
  async open(): Promise<Client> {
    const found = await findDaemon(this.#options.home);
    if (found.state === "running") {
      const mismatch = mismatchOf(found.server);
      if (mismatch !== null) throw mismatch;
    } else {
      await this.#start();
    }
    return this.client;
  }

  async #endpoint(): Promise<Endpoint> {
    const file = await readDaemonFile(this.#options.home);
    if (file === null) throw new Error("No daemon runs");
    if (isAlive(file.pid)) return file;
    if (this.#restarts >= RESTARTS_MAX) throw new Error("The daemon was killed again and again");
    this.#restarts += 1;
    this.#options.notice("the daemon was killed; starting it again");
    return await this.#start();
  }

  /** One start at a time, whoever asks. */
  #start(): Promise<DaemonFile> {
    this.#starting ??= this.#startOnce().finally(() => {
      this.#starting = null;
    });
    return this.#starting;
  }

  async #startOnce(): Promise<DaemonFile> {
    const { notice } = this.#options;
    const { file, others } = await startDaemon(this.#options);
    if (!others) notice(`started a daemon at ${file.url} (process ${file.pid})`);
    return file;
  }
}

/** An attachment needs what both sides understand in the same way (sessions.md, Stream failures and recovery). */
function mismatchOf({ protocol, capabilities }: ServerInfo): CliError | null {
  if (protocol !== PROTOCOL_VERSION) return otherVersion("protocol", protocol, PROTOCOL_VERSION);
  const replay = capabilities["session_replay"] ?? 0;
  if (replay === SESSION_REPLAY_VERSION) return null;
  return otherVersion("session_replay", replay, SESSION_REPLAY_VERSION);
}

function otherVersion(what: string, theirs: number, ours: number): CliError {
  return new CliError(`The daemon speaks ${what} ${theirs} and this program ${ours}`, {
    hints: ["`albedo daemon --stop` ends it; the next verb then starts this program's own"],
  });
}
