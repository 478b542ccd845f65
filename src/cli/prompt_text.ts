import { extname } from "node:path";
import { readFile } from "node:fs/promises";
import { inspectImage } from "../agent/images.ts";
import { IMAGE_BYTES_MAX, IMAGES_MAX, MIB, TEXT_BYTES_MAX } from "../base/limits.ts";
import type { Upload } from "../client/client.ts";
import { Problem } from "../wire/problem.ts";
import { type CliError, errorText, usageError } from "./exit.ts";

/** Owns what a prompt is made of: words, stdin and image files, refused here where the daemon would refuse them. */
export interface Stdin {
  readonly isTerminal: boolean;
  chunks(): AsyncIterable<Uint8Array>;
}

export const processStdin: Stdin = {
  get isTerminal() {
    return process.stdin.isTTY === true;
  },
  chunks: () => Bun.stdin.stream(),
};

/** What is cut off at the end: whoever pipes a text in ends it with a line break. */
const LINE_BREAK_BYTES_MAX = 2;

/**
 * The words of the command line. `-` stands for stdin, and so does the absence of words where stdin is no terminal.
 *
 * @throws {CliError} when there is nothing to send, or too much
 */
export async function promptText(
  words: readonly string[],
  imageCount: number,
  stdin: Stdin,
): Promise<string> {
  const readsStdin = words.includes("-") || (words.length === 0 && !stdin.isTerminal);
  const said = words.filter((word) => word !== "-").join(" ");
  const piped = readsStdin ? (await readAll(stdin)).replace(/\r?\n$/, "") : "";
  const text = [said, piped].filter((part) => part !== "").join("\n\n");
  if (text.trim() === "" && imageCount === 0) {
    throw usageError("There is nothing to send", 'Give a text: albedo prompt "…", or pipe one in');
  }
  if (Buffer.byteLength(text) > TEXT_BYTES_MAX) throw tooLong();
  return text;
}

/** Reads no further than what could still be sent: a pipe may never end. */
async function readAll(stdin: Stdin): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stdin.chunks()) {
    bytes += chunk.length;
    if (bytes > TEXT_BYTES_MAX + LINE_BREAK_BYTES_MAX) throw tooLong();
    chunks.push(chunk);
  }
  return new TextDecoder().decode(Buffer.concat(chunks));
}

function tooLong(): CliError {
  return usageError(`A text may have ${TEXT_BYTES_MAX / MIB} MiB at most`);
}

const MIME_TYPES: Readonly<Record<string, string>> = {
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
};

/**
 * The images of a message. They are looked at before anything is sent: a refusal by the daemon would leave an empty
 * session behind.
 *
 * @throws {CliError} naming the file that cannot be sent
 */
export async function readImages(paths: readonly string[]): Promise<Upload[]> {
  if (paths.length > IMAGES_MAX) {
    throw usageError(`A message takes ${IMAGES_MAX} images at most: ${paths.length} were given`);
  }
  const uploads: Upload[] = [];
  for (const path of paths) {
    let data: Uint8Array;
    try {
      data = await readFile(path);
    } catch (error) {
      throw usageError(`Cannot read the image '${path}': ${errorText(error)}`);
    }
    if (data.length > IMAGE_BYTES_MAX) {
      throw usageError(`The image '${path}' is larger than ${IMAGE_BYTES_MAX / MIB} MiB`);
    }
    await assertImage(path, data);
    // Only a label: the daemon looks at the content.
    const mimeType = MIME_TYPES[extname(path).toLowerCase()] ?? "application/octet-stream";
    uploads.push({ mimeType, data });
  }
  return uploads;
}

async function assertImage(path: string, data: Uint8Array): Promise<void> {
  try {
    await inspectImage(data, path);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const reasons = error.fields.map(({ detail }) => detail).join("; ");
    throw usageError(`The image '${path}' cannot be used: ${reasons}`);
  }
}
