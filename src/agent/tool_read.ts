import { type FileHandle, open, readdir, stat } from "node:fs/promises";
import * as v from "valibot";
import { KIB, MIB } from "../base/limits.ts";
import type { Tool, ToolContext } from "./tool.ts";
import { defineTool, PathSchema, resolvePath, ToolFailure } from "./tool_definition.ts";
import { cleanText, cutLine, cutText, TOOL_OUTPUT_BYTES_MAX } from "./tool_output.ts";

/**
 * Owns the `read` tool: lines of a text file with their numbers, or the entries of a directory, bounded. A file is
 * read in pieces, so that one of any size costs the memory of what is shown.
 */
const LINES_DEFAULT = 2000;
const LINE_CHARS_MAX = 2000;
const ENTRIES_MAX = 1000;
const PIECE_BYTES = 64 * KIB;
/** Further in than this no line is looked for. */
const SCANNED_BYTES_MAX = 512 * MIB;
/** Room for the note that says how to go on. */
const SHOWN_BYTES_MAX = TOOL_OUTPUT_BYTES_MAX - 256;
/** A longer line is held only as far as it can be shown. */
const HELD_BYTES_MAX = LINE_CHARS_MAX * 4;

const ReadSchema = v.strictObject({
  path: v.pipe(PathSchema, v.description("The file or directory.")),
  offset: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.description("The first line to show, from 1."),
    ),
  ),
  limit: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.description(`How many lines to show; ${LINES_DEFAULT} when left out.`),
    ),
  ),
});

export function createReadTool(): Tool {
  return defineTool({
    name: "read",
    description:
      "Shows lines of a text file, each behind its number, or lists a directory. Use offset and limit for a long file.",
    schema: ReadSchema,
    run: async ({ path, offset = 1, limit = LINES_DEFAULT }, context) => {
      const full = resolvePath(context, path);
      const { isDirectory, isFile } = await kindOf(full);
      if (isDirectory) return listDirectory(full);
      if (!isFile) throw new ToolFailure(`It is neither a file nor a directory: ${full}`);
      const file = await open(full, "r");
      try {
        return await showLines(file, offset, limit, context);
      } finally {
        await file.close();
      }
    },
  });
}

async function kindOf(path: string): Promise<{ isDirectory: boolean; isFile: boolean }> {
  const found = await stat(path);
  return { isDirectory: found.isDirectory(), isFile: found.isFile() };
}

async function listDirectory(path: string): Promise<string> {
  const entries = await readdir(path, { withFileTypes: true });
  if (entries.length === 0) return "(an empty directory)";
  const names = entries
    .map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name))
    .sort();
  const shown = names.slice(0, ENTRIES_MAX);
  if (shown.length < names.length) shown.push(`[${names.length - ENTRIES_MAX} more entries]`);
  return shown.join("\n");
}

async function showLines(
  file: FileHandle,
  offset: number,
  limit: number,
  context: ToolContext,
): Promise<string> {
  const shown: string[] = [];
  let bytes = 0;
  let count = 0;
  for await (const line of readLines(file, context.signal)) {
    count += 1;
    if (count < offset) continue;
    const text = `${String(count).padStart(6)}\t${line}`;
    bytes += Buffer.byteLength(text) + 1;
    if (shown.length >= limit || (bytes > SHOWN_BYTES_MAX && shown.length > 0)) {
      shown.push(`[more lines follow; go on with offset ${count}]`);
      return shown.join("\n");
    }
    shown.push(text);
  }
  if (shown.length > 0) return shown.join("\n");
  if (count === 0 && offset === 1) return "(an empty file)";
  throw new ToolFailure(`The file has ${count} lines; there is no line ${offset}`);
}

/**
 * The lines of a text file, as they are shown.
 *
 * @throws {ToolFailure} when the file holds what no text does
 */
async function* readLines(file: FileHandle, signal: AbortSignal): AsyncGenerator<string> {
  const piece = new Uint8Array(PIECE_BYTES);
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  let scanned = 0;
  const hold = (part: Uint8Array): void => {
    if (heldBytes < HELD_BYTES_MAX) held.push(part.slice(0, HELD_BYTES_MAX - heldBytes));
    heldBytes += part.length;
  };
  const take = (): string => {
    const line = lineText(Buffer.concat(held), heldBytes);
    held = [];
    heldBytes = 0;
    return line;
  };
  let isFirst = true;
  for (;;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(piece, 0, PIECE_BYTES);
    if (bytesRead === 0) break;
    const part = piece.subarray(0, bytesRead);
    if (part.includes(0)) throw new ToolFailure("It is a binary file");
    scanned += bytesRead;
    if (scanned > SCANNED_BYTES_MAX)
      throw new ToolFailure("The file is too large to look that far");
    let start = isFirst && part[0] === 0xef && part[1] === 0xbb && part[2] === 0xbf ? 3 : 0;
    isFirst = false;
    for (let end = part.indexOf(10, start); end !== -1; end = part.indexOf(10, start)) {
      hold(part.subarray(start, end));
      start = end + 1;
      yield take();
    }
    if (start < bytesRead) hold(part.subarray(start));
  }
  if (heldBytes > 0) yield take();
}

/** A line as it is shown; `held` is its beginning, or all of it. */
function lineText(held: Uint8Array, lineBytes: number): string {
  const text = cleanText(new TextDecoder().decode(held));
  if (lineBytes > held.length)
    return `${cutText(text, LINE_CHARS_MAX)}… [a line of ${lineBytes} bytes]`;
  return cutLine(text.endsWith("\r") ? text.slice(0, -1) : text, LINE_CHARS_MAX);
}
