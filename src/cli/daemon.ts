import { homedir } from "node:os";
import { join } from "node:path";
import { systemClock, waitingClock } from "../base/clock.ts";
import { ConfigError } from "../base/config.ts";
import { EnvironmentError, readEnvironment } from "../base/environment.ts";
import { SHUTDOWN_MS_MAX } from "../base/limits.ts";
import { type LogFile, type LogLevel, createLog } from "../base/log.ts";
import { type Daemon, startDaemon } from "../http/daemon.ts";
import { DaemonFileError } from "../http/daemon_file.ts";
import { ListenError } from "../http/listener.ts";
import { prepareHome } from "../store/home.ts";
import { explainOpenFailure, StoreOpenError } from "../store/store_open_error.ts";
import { EXIT, type ExitCode } from "./exit.ts";

/**
 * Owns the verb `daemon` in the foreground: the daemon as a process (contract.md, Files, process, safety).
 *
 * SIGTERM, SIGINT and SIGHUP stop it in order, a second one at once. An error that nothing caught is logged and the
 * process goes on: what was accepted is on disk, a transaction is never left half done, and one session's bug is no
 * reason to stop the turns of all others.
 */
export interface DaemonFlags {
  /** The port to listen on; `null` leaves it to `ALBEDO_PORT`, else to the system. */
  readonly port: number | null;
}

/** The longest a timer can be set to. */
const FOR_EVER_MS = 2 ** 31 - 1;

/**
 * The executable starts with a compiler that holds back (`--compile-jit-policy` in scripts/build.ts), which spares a
 * tenth of the start. After so long what runs is worth compiling.
 */
const STARTED_MS = 250;

const SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP"] as const;

/** Runs the daemon until it is told to stop. */
export async function runDaemon(flags: DaemonFlags): Promise<ExitCode> {
  // The daemon's own timers keep no process alive, and before it listens and after it does nothing else would.
  const held = waitingClock.timer(FOR_EVER_MS, () => {});
  let log: LogFile | null = null;
  try {
    const environment = readEnvironment(process.env, homedir());
    const { home, logLevel, origins, idleSeconds, unloadSeconds } = environment;
    prepareHome(home);
    log = openLog(join(home, "logs"), logLevel);
    surviveErrors(log);
    // A signal may come while the daemon starts; then it stops as soon as it can.
    const told = listenForSignals();
    const daemon = await startDaemon({
      home,
      clock: systemClock,
      log,
      env: process.env,
      port: flags.port ?? environment.port ?? 0,
      origins,
      idleSeconds,
      unloadSeconds,
    });
    void told.then(() => daemon.stop());
    return await serve(daemon, home);
  } catch (error) {
    // Clients that start one at the same time are many, and one wins.
    const gaveWay = error instanceof StoreOpenError && error.code === "running";
    log?.[gaveWay ? "info" : "error"]("The daemon could not start", { reason: reasonOf(error) });
    process.stderr.write(`albedo: ${reasonOf(error)}\n`);
    const isSetting = error instanceof ConfigError || error instanceof EnvironmentError;
    return isSetting ? EXIT.usage : EXIT.failed;
  } finally {
    held.cancel();
    log?.close();
  }
}

/** Says where it listens, and waits until it has stopped. */
async function serve(daemon: Daemon, home: string): Promise<ExitCode> {
  // Not through `process.stdout`, whose streams take as long to load as the store to open, while clients wait; and
  // whoever started it may not read what it says, which a console does not mind.
  console.log(`albedo listens on ${daemon.url}`);
  systemClock.timer(STARTED_MS, () => Bun.unsafe.setJITPolicy(1));
  await daemon.stopped;
  if (!daemon.homeLost) return EXIT.done;
  process.stderr.write(
    `albedo: "${home}" was removed or replaced while the daemon ran, so it stopped\n`,
  );
  return EXIT.failed;
}

/** @throws {StoreOpenError} */
function openLog(directory: string, level: LogLevel): LogFile {
  try {
    return createLog({ directory, level, clock: systemClock });
  } catch (error) {
    throw explainOpenFailure(error, directory);
  }
}

/** Resolves at the first signal; a second one ends the process at once. */
function listenForSignals(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let told = false;
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      if (told) process.exit(EXIT.interrupted);
      told = true;
      resolve();
      // The stop bounds each of its steps; this holds should one of them not give way.
      waitingClock.timer(SHUTDOWN_MS_MAX, () => process.exit(EXIT.failed));
    });
  }
  return promise;
}

function surviveErrors(log: LogFile): void {
  const report = (message: string) => (error: unknown) => {
    const stack = error instanceof Error ? (error.stack ?? "") : "";
    log.error(message, {
      error: error instanceof Error ? error.name : typeof error,
      at: stack.split("\n").filter((line) => line.trimStart().startsWith("at ")),
    });
  };
  process.on("uncaughtException", report("An error was not caught"));
  process.on("unhandledRejection", report("A rejection was not handled"));
}

/** Messages of these are written for the person who starts the daemon; anything else is a bug. */
function reasonOf(error: unknown): string {
  const isExpected =
    error instanceof StoreOpenError ||
    error instanceof ConfigError ||
    error instanceof EnvironmentError ||
    error instanceof ListenError ||
    error instanceof DaemonFileError;
  if (isExpected) return error.message;
  return `The daemon could not start: ${error instanceof Error ? (error.stack ?? error.name) : String(error)}`;
}
