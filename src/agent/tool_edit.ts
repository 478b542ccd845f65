import { readFile, stat } from "node:fs/promises";
import * as v from "valibot";
import { MIB } from "../base/limits.ts";
import type { FileChanges } from "./file_change.ts";
import type { Tool } from "./tool.ts";
import { defineTool, PathSchema, resolvePath, ToolFailure } from "./tool_definition.ts";

/**
 * Owns the `edit` tool: replaces a text that stands in a file exactly once (or every time, when asked). Line ends,
 * a byte order mark and everything else in the file stay as they are.
 */
const FILE_BYTES_MAX = 16 * MIB;
const LINES_NAMED_MAX = 5;

const EditSchema = v.strictObject({
  path: v.pipe(PathSchema, v.description("The file.")),
  old_string: v.pipe(
    v.string(),
    v.minLength(1, "Must not be empty; use write for a new file"),
    v.description("What stands there, exactly, with enough around it to be there once."),
  ),
  new_string: v.pipe(v.string(), v.description("What is to stand there.")),
  replace_all: v.optional(
    v.pipe(v.boolean(), v.description("Replaces every place; else there must be only one.")),
  ),
});

export function createEditTool(changes: FileChanges): Tool {
  return defineTool({
    name: "edit",
    description:
      "Replaces a text in a file. old_string must be in the file exactly once, unless replace_all is set.",
    schema: EditSchema,
    run: ({ path, old_string, new_string, replace_all }, context) => {
      const full = resolvePath(context, path);
      return changes.exclusively(full, async () => {
        const text = await readText(full);
        const edit = applyEdit(text, {
          oldText: old_string,
          newText: new_string.toWellFormed(),
          all: replace_all ?? false,
        });
        await changes.replace(full, edit.text);
        const places = edit.count === 1 ? "1 place" : `${edit.count} places`;
        return `Replaced ${places} in ${full} (${namedLines(edit.lines, edit.count)}).`;
      });
    },
  });
}

async function readText(path: string): Promise<string> {
  const found = await stat(path);
  if (!found.isFile()) throw new ToolFailure(`It is not a file: ${path}`);
  if (found.size > FILE_BYTES_MAX) {
    throw new ToolFailure(
      `The file has ${found.size} bytes; at most ${FILE_BYTES_MAX} can be edited`,
    );
  }
  const bytes = await readFile(path);
  if (bytes.includes(0)) throw new ToolFailure("It is a binary file");
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new ToolFailure("The file is not UTF-8 text; editing it would damage it");
  }
}

export interface EditRequest {
  readonly oldText: string;
  readonly newText: string;
  readonly all: boolean;
}

export interface AppliedEdit {
  readonly text: string;
  readonly count: number;
  /** The lines where the first few replaced texts began, from 1. */
  readonly lines: readonly number[];
}

/**
 * Replaces in a text. In a file with CRLF, texts given with LF alone are taken to mean its line ends.
 *
 * @throws {ToolFailure} when there is not exactly one place and `all` is not set, or nothing would change
 */
export function applyEdit(text: string, request: EditRequest): AppliedEdit {
  let { oldText, newText } = request;
  if (!text.includes(oldText) && text.includes("\r\n")) {
    oldText = withCrlf(oldText);
    newText = withCrlf(newText);
  }
  const step = request.all ? oldText.length : 1;
  const { first, count } = findPlaces(text, oldText, step);
  if (count === 0) throw new ToolFailure(notFound(text, request.oldText));
  if (oldText === newText) throw new ToolFailure("old_string and new_string are the same");
  const lines = linesOf(text, first);
  if (count > 1 && !request.all) {
    throw new ToolFailure(
      `old_string is there ${count} times (${namedLines(lines, count)}); give more of what is around it, or set replace_all`,
    );
  }
  // A function as the replacement, so that `$&` in the new text stays what it is.
  return { text: text.replaceAll(oldText, () => newText), count, lines };
}

/**
 * Counts the places and gives the first few. A step of 1 finds those that overlap too: a text that could be meant
 * in two ways is not unique.
 */
function findPlaces(
  text: string,
  part: string,
  step: number,
): { readonly first: readonly number[]; readonly count: number } {
  const first: number[] = [];
  let count = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + step)) {
    if (count < LINES_NAMED_MAX) first.push(at);
    count += 1;
  }
  return { first, count };
}

function withCrlf(text: string): string {
  return text.replace(/\r?\n/g, "\r\n");
}

function linesOf(text: string, places: readonly number[]): readonly number[] {
  const lines: number[] = [];
  let line = 1;
  let seen = 0;
  for (const place of places) {
    for (
      let at = text.indexOf("\n", seen);
      at !== -1 && at < place;
      at = text.indexOf("\n", at + 1)
    ) {
      line += 1;
      seen = at + 1;
    }
    lines.push(line);
  }
  return lines;
}

function namedLines(lines: readonly number[], count: number): string {
  const more = count > lines.length ? " and more" : "";
  return `${count === 1 ? "line" : "lines"} ${lines.join(", ")}${more}`;
}

/** Says where something like it stands, since blanks are what goes wrong most. */
function notFound(text: string, oldText: string): string {
  const wanted = oldText
    .split("\n")
    .find((line) => line.trim() !== "")
    ?.trim();
  const lines = text.split("\n");
  const near = wanted === undefined ? -1 : lines.findIndex((line) => line.trim() === wanted);
  if (near === -1) return "old_string is not in the file";
  return `old_string is not in the file exactly as given; line ${near + 1} has its first line, perhaps with other blanks or another line after it`;
}
