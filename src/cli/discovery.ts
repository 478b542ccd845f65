import { join } from "node:path";
import * as v from "valibot";
import { isAlive } from "../base/process_alive.ts";
import { DaemonFileSchema, HealthSchema, ServerSchema } from "../wire/server.ts";
import type { DaemonFile, ServerInfo } from "../wire/server.ts";
import { CliError } from "./exit.ts";
import { readJsonFile } from "./json_file.ts";

/**
 * Owns how a client on this machine finds the daemon: `<home>/daemon.json`, and whether what it names is that
 * daemon. The file can be left over from a daemon that was killed, and its port can be another program's by now,
 * so the token is shown to nobody before the process lives and `/health` has answered.
 */
export const DAEMON_FILE_NAME = "daemon.json";

/** A local daemon answers within a millisecond; this long only where the machine is very busy. */
const PROBE_MS = 2_000;

export type Found =
  | { readonly state: "running"; readonly file: DaemonFile; readonly server: ServerInfo }
  /** There is no `daemon.json`: the daemon never ran here, or was stopped in order. */
  | { readonly state: "absent" }
  /** `daemon.json` names a daemon that is gone: it was killed. */
  | { readonly state: "dead"; readonly file: DaemonFile }
  /** The process lives but does not answer as this daemon. */
  | { readonly state: "silent"; readonly file: DaemonFile; readonly reason: string };

/** @returns `null` when there is none, or when it holds something else */
export function readDaemonFile(home: string): Promise<DaemonFile | null> {
  return readJsonFile(join(home, DAEMON_FILE_NAME), DaemonFileSchema);
}

/** Finds the daemon of a home and asks it who it is. */
export async function findDaemon(home: string): Promise<Found> {
  const file = await readDaemonFile(home);
  if (file === null) return { state: "absent" };
  if (!isAlive(file.pid)) return { state: "dead", file };
  try {
    await ask(file.url, "/health", HealthSchema, {});
    const server = await ask(file.url, "/server", ServerSchema, {
      authorization: `Bearer ${file.token}`,
    });
    if (server.instance_id !== file.instance_id) {
      return { state: "silent", file, reason: "another instance answers there" };
    }
    return { state: "running", file, server };
  } catch (error) {
    return { state: "silent", file, reason: error instanceof Error ? error.message : "no answer" };
  }
}

/** A process has the daemon's place and does not answer as the daemon does: a person has to decide about it. */
export function notAnswering({ file, reason }: Extract<Found, { state: "silent" }>): CliError {
  return new CliError(`The daemon does not answer: ${reason}`, {
    hints: [`If process ${file.pid} is albedo, \`kill ${file.pid}\` ends it`],
  });
}

async function ask<S extends v.GenericSchema>(
  url: string,
  path: string,
  schema: S,
  headers: Record<string, string>,
): Promise<v.InferOutput<S>> {
  const response = await fetch(new URL(path, url), {
    headers,
    redirect: "error",
    signal: AbortSignal.timeout(PROBE_MS),
  });
  if (!response.ok) throw new Error(`'${path}' answered with status ${response.status}`);
  const parsed = v.safeParse(schema, await response.json());
  if (!parsed.success) throw new Error(`'${path}' did not answer as albedo does`);
  return parsed.output;
}
