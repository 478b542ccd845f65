import { mkdirSync, openSync, closeSync } from "node:fs";
import { mkdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "../base/clock.ts";
import type { Clock } from "../base/clock.ts";
import { SHUTDOWN_MS_MAX } from "../base/limits.ts";
import type { DaemonFile } from "../wire/server.ts";
import { findDaemon, notAnswering } from "./discovery.ts";
import { CliError, errorText, EXIT } from "./exit.ts";

/**
 * Owns starting a daemon that outlives the verb that needed it: the same executable, in a session of its own, so
 * that Ctrl-C reaches the verb alone.
 *
 * I1 Several clients may start one at once. The store's lock lets one of them win; the clients of the others find
 *    the winner and say nothing.
 * I2 A daemon that stops still holds its home: the start is tried again until it is gone.
 * I3 What a failing daemon says on stderr is what the person reads.
 */

/** A start takes well under a second; a store to be recovered on a slow disk may take some. */
const READY_MS_MAX = 20_000;
const POLL_MS = 5;
/**
 * How long another's daemon may take to answer, or to be gone, after ours has given way to it: one that stops holds
 * the home for `SHUTDOWN_MS_MAX` at most.
 */
const GIVEN_WAY_MS = SHUTDOWN_MS_MAX + 2_000;
/** How often ours is started again in the meantime. */
const START_AGAIN_MS = 250;

export interface Start {
  readonly home: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** The command that runs the daemon in the foreground. @default this very program with `daemon` */
  readonly command?: readonly string[];
}

export interface Started {
  readonly file: DaemonFile;
  /** Another client's daemon was there first. */
  readonly others: boolean;
}

/**
 * @returns as soon as a daemon of this home answers
 * @throws {CliError} with the daemon's own words when it could not start
 */
export async function startDaemon(start: Start): Promise<Started> {
  const { home, clock } = start;
  const errors = prepare(home);
  const startedAt = clock.monotonic();
  let child = spawnDaemon(start, errors);
  /** When ours ended for the first time, and for the last. */
  let gaveWayAt: number | null = null;
  let endedAt: number | null = null;
  try {
    for (;;) {
      const found = await findDaemon(home);
      if (found.state === "running") {
        const others = found.file.pid !== child.pid;
        // What it says later, a crash for one, is kept where its log is.
        if (!others) await keep(errors, home);
        return { file: found.file, others };
      }
      const now = clock.monotonic();
      if (child.exitCode !== null || child.signalCode !== null) endedAt ??= now;
      if (endedAt !== null) {
        const words = await readFile(errors, "utf8");
        gaveWayAt ??= now;
        if (!gaveWay(words)) throw startError(words, child);
        if (now - gaveWayAt > GIVEN_WAY_MS) {
          throw found.state === "silent" ? notAnswering(found) : startError(words, child);
        }
        if (now - endedAt > START_AGAIN_MS) {
          child = spawnDaemon(start, errors);
          endedAt = null;
        }
      }
      if (now - startedAt > READY_MS_MAX) {
        child.kill("SIGTERM");
        throw new CliError(`The daemon was not ready within ${READY_MS_MAX / 1000} s`, {
          hints: ["`albedo daemon` shows what it does", "`albedo logs` shows what it did"],
        });
      }
      await sleep(clock, POLL_MS);
    }
  } finally {
    await rm(errors, { force: true });
  }
}

function spawnDaemon({ home, variables, command }: Start, errors: string): Bun.Subprocess {
  const descriptor = openSync(errors, "w", 0o600);
  try {
    const child = Bun.spawn([...(command ?? ownCommand())], {
      cwd: home,
      env: { ...variables, ALBEDO_HOME: home },
      detached: true,
      stdio: ["ignore", "ignore", descriptor],
    });
    child.unref();
    return child;
  } finally {
    closeSync(descriptor);
  }
}

/** This very program with the verb `daemon`, compiled or from source. */
export function ownCommand(): string[] {
  return [process.execPath, ...(Bun.isStandaloneExecutable ? [] : [Bun.main]), "daemon"];
}

function prepare(home: string): string {
  try {
    mkdirSync(join(home, "client"), { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new CliError(`Cannot use '${home}' as the data directory: ${errorText(error)}`, {
      hints: ["`ALBEDO_HOME` names another one"],
      cause: error,
    });
  }
  return join(home, "client", `start-${process.pid}.log`);
}

async function keep(errors: string, home: string): Promise<void> {
  const logs = join(home, "logs");
  await mkdir(logs, { recursive: true, mode: 0o700 });
  await rename(errors, join(logs, "daemon.stderr"));
}

/** Whether it ended since another daemon has the home, or is about to (store/home.ts, `running`). */
function gaveWay(words: string): boolean {
  return words.includes("Another daemon");
}

function startError(
  words: string,
  child: Pick<Bun.Subprocess, "exitCode" | "signalCode">,
): CliError {
  const lines = words
    .trim()
    .split("\n")
    .filter((line) => line !== "");
  const [first, ...rest] = lines;
  const ended = child.signalCode ?? `code ${child.exitCode}`;
  return new CliError(
    first === undefined
      ? `The daemon could not start and ended with ${ended}`
      : `The daemon could not start: ${first.replace(/^albedo: /, "")}`,
    // A setting that is wrong is so whoever starts the daemon.
    {
      hints: first === undefined ? ["`albedo daemon` says why"] : rest,
      exitCode: child.exitCode === EXIT.usage ? EXIT.usage : EXIT.failed,
    },
  );
}
