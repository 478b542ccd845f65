import { chmodSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { type DaemonFile, DaemonFileSchema } from "../wire/server.ts";

/**
 * Owns `daemon.json`, by which clients of this machine find the daemon and its token (contract.md, Files, process,
 * safety). It is there only while the daemon listens; only the daemon that holds the home writes it.
 */
const DAEMON_FILE = "daemon.json";
const PRIVATE_FILE = 0o600;

/** The file cannot be written; the message says why and what to do. */
export class DaemonFileError extends Error {
  override readonly name = "DaemonFileError";
}

/**
 * Puts the file in place whole: a reader sees the old one, none, or this one.
 *
 * @throws {DaemonFileError}
 */
export function writeDaemonFile(home: string, file: DaemonFile): void {
  const path = join(home, DAEMON_FILE);
  const next = `${path}.next`;
  try {
    // One that was left behind may have other rights, which writing would keep.
    rmSync(next, { force: true });
    writeFileSync(next, `${JSON.stringify(file, null, 2)}\n`, { mode: PRIVATE_FILE, flag: "wx" });
    chmodSync(next, PRIVATE_FILE);
    renameSync(next, path);
  } catch (error) {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    throw new DaemonFileError(
      `"${path}" cannot be written (${code}): free some space or make the directory writable, then start again`,
      { cause: error },
    );
  }
}

/** Takes the file away, unless another instance has put its own there. */
export function removeDaemonFile(home: string, instanceId: string): void {
  const path = join(home, DAEMON_FILE);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    // It has gone already, or cannot be read and is not known to be ours.
    return;
  }
  if (instanceOf(text) === instanceId) rmSync(path, { force: true });
}

function instanceOf(text: string): string | null {
  try {
    return v.parse(DaemonFileSchema, JSON.parse(text)).instance_id;
  } catch {
    return null;
  }
}
