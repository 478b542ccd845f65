import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "../base/clock.ts";
import { LOG_FILE_NAME } from "../base/log.ts";
import type { Context } from "./context.ts";
import { CliError, EXIT, hasCode } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import type { Piece, Style } from "./output.ts";

/** Owns `albedo logs`: the end of the daemon's log, and what is added to it. It needs no daemon. */
export interface LogsOptions {
  readonly follow: boolean;
  readonly lines: number;
  /** The lines as they stand in the file. */
  readonly json: boolean;
}

const POLL_MS = 200;
const CHUNK_BYTES = 64 * 1024;

export async function logs(context: Context, options: LogsOptions): Promise<ExitCode> {
  const path = join(context.home, "logs", LOG_FILE_NAME);
  const { stdout } = context.output;
  const print = (line: string): void => {
    if (options.json) stdout.line(line);
    else stdout.line(...readable(line));
  };
  const tail = await lastLines(path, options.lines);
  if (tail === null && !options.follow) {
    throw new CliError(`There is no log at '${path}'`, {
      hints: ["No daemon ran in this home yet"],
    });
  }
  for (const line of tail?.lines ?? []) print(line);
  if (!options.follow) return EXIT.done;
  const stop = new AbortController();
  context.signals.listen(
    () => stop.abort(),
    () => process.exit(EXIT.interrupted),
  );
  await follow(path, tail?.end ?? 0, print, context, stop.signal);
  return EXIT.done;
}

/** The last whole lines of a file and where they end; `null` where there is no file. */
async function lastLines(
  path: string,
  count: number,
): Promise<{ lines: string[]; end: number } | null> {
  let size: number;
  try {
    ({ size } = await stat(path));
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  }
  let start = size;
  let text = "";
  while (start > 0 && text.split("\n").length <= count + 1) {
    start = Math.max(0, start - CHUNK_BYTES);
    text = await Bun.file(path).slice(start, size).text();
  }
  // A line that is being written is left for later.
  const end = size - Buffer.byteLength(text.slice(text.lastIndexOf("\n") + 1));
  const lines = text.split("\n").slice(0, -1);
  return { lines: count === 0 ? [] : lines.slice(-count), end };
}

/** Prints what is added; a file that became shorter was set aside, and a new one begun. */
async function follow(
  path: string,
  from: number,
  print: (line: string) => void,
  context: Context,
  signal: AbortSignal,
): Promise<void> {
  let position = from;
  let inode: number | null = null;
  let rest = "";
  const decoder = new TextDecoder();
  while (!signal.aborted) {
    const chunk = await readFrom(path, position, inode);
    if (chunk !== null) {
      inode = chunk.inode;
      position = chunk.end;
      const lines = (rest + decoder.decode(chunk.bytes, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) print(line);
    }
    await sleep(context.clock, POLL_MS, signal).catch(() => undefined);
  }
}

async function readFrom(
  path: string,
  position: number,
  inode: number | null,
): Promise<{ bytes: Uint8Array; end: number; inode: number } | null> {
  let file: Awaited<ReturnType<typeof open>>;
  try {
    file = await open(path, "r");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  }
  try {
    const { size, ino } = await file.stat();
    const isNew = (inode !== null && ino !== inode) || size < position;
    const start = isNew ? 0 : position;
    const bytes = Buffer.alloc(size - start);
    const { bytesRead } = await file.read(bytes, 0, bytes.length, start);
    return { bytes: bytes.subarray(0, bytesRead), end: start + bytesRead, inode: ino };
  } finally {
    await file.close();
  }
}

const LEVEL_STYLES: Readonly<Record<string, Style>> = {
  debug: "faint",
  warn: "yellow",
  error: "red",
};

/** `time level message fields`, for people. */
function readable(line: string): Piece[] {
  let entry: unknown;
  try {
    entry = JSON.parse(line);
  } catch {
    return [line];
  }
  if (typeof entry !== "object" || entry === null) return [line];
  const { time, level, message, ...fields } = entry as Record<string, unknown>;
  if (typeof time !== "string" || typeof level !== "string") return [line];
  const style = LEVEL_STYLES[level];
  const rest = Object.entries(fields)
    .map(([name, value]) => ` ${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("");
  const word = level.padEnd(5);
  return [
    ["faint", `${time} `],
    style === undefined ? word : [style, word],
    ` ${String(message)}`,
    ["faint", rest],
  ];
}
