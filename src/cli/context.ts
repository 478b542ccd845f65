import { homedir } from "node:os";
import { waitingClock } from "../base/clock.ts";
import type { Clock } from "../base/clock.ts";
import { readEnvironment } from "../base/environment.ts";
import { createIds } from "../base/ids.ts";
import type { Client } from "../client/client.ts";
import { Connection } from "./connection.ts";
import { Sink, standardStream } from "./output.ts";
import type { Output } from "./output.ts";
import { Signals } from "./signals.ts";
import { StateFile } from "./state_file.ts";

/** Owns what a verb is given: the world, and the way to the daemon. */
export interface Context {
  readonly variables: Readonly<Record<string, string | undefined>>;
  /** The data directory; it may not exist yet. */
  readonly home: string;
  readonly workingDirectory: string;
  readonly clock: Clock;
  readonly output: Output;
  readonly signals: Signals;
  /** Operations whose outcome is not known. */
  readonly state: StateFile;
  /** Says something on stderr, unless the person asked for quiet. */
  readonly notice: (text: string) => void;
  /** Finds the daemon, or starts one. */
  readonly connect: () => Promise<Client>;
}

/** The context of this process. @throws {EnvironmentError} when a variable cannot be used */
export function processContext(options: { readonly quiet: boolean }): Context {
  const variables = process.env;
  const output: Output = {
    stdout: new Sink(standardStream("stdout"), variables),
    stderr: new Sink(standardStream("stderr"), variables),
  };
  const { home } = readEnvironment(variables, homedir());
  const notice = (text: string): void => {
    if (options.quiet) return;
    output.stdout.endLineOnTerminal();
    output.stderr.line(["faint", `albedo: ${text}`]);
  };
  const connection = new Connection({
    home,
    variables,
    clock: waitingClock,
    ids: createIds(waitingClock),
    notice,
  });
  return {
    variables,
    home,
    workingDirectory: process.cwd(),
    clock: waitingClock,
    output,
    signals: new Signals(process),
    state: new StateFile(home),
    notice,
    connect: () => connection.open(),
  };
}
