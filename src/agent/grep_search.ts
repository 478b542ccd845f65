/**
 * Owns the search that `grep` runs in a process of its own: a regular expression may take endless time on one line,
 * and only a process can be stopped in the midst of one. The daemon's event loop never waits for it.
 *
 * `searchMain` is sent as source text, so it may use nothing but the language and Bun's globals.
 */
export interface SearchRequest {
  readonly root: string;
  /** Paths from the root. */
  readonly files: readonly string[];
  readonly pattern: string;
  readonly flags: string;
  readonly matchesMax: number;
}

/** A line of its output, as JSON. */
export type SearchReport =
  /** A line that matches: the index of its file, its number from 1, and the text around the match. */
  | { readonly file: number; readonly line: number; readonly text: string }
  /** The search is through, or has as many matches as were wanted. */
  | { readonly complete: boolean };

/** The program for `bun -e`; it reads a `SearchRequest` as JSON. */
export function searchProgram(): string {
  return `(${searchMain.toString()})().then(() => process.exit(0));`;
}

/** Searches, and writes a `SearchReport` a line. */
export async function searchMain(): Promise<void> {
  const pieceBytes = 4 * 1024 * 1024;
  const heldCharsMax = 1024 * 1024;
  const shownChars = 300;
  const request = (await Bun.stdin.json()) as SearchRequest;
  const regexp = new RegExp(request.pattern, request.flags);
  const output = Bun.stdout.writer();
  let matches = 0;
  const report = async (value: SearchReport): Promise<void> => {
    await output.write(`${JSON.stringify(value)}\n`);
    await output.flush();
  };
  const searchLine = async (file: number, line: number, given: string): Promise<void> => {
    const text = given.endsWith("\r") ? given.slice(0, -1) : given;
    const at = text.search(regexp);
    if (at === -1) return;
    matches += 1;
    const start = Math.max(0, at - shownChars / 2);
    const end = start + shownChars;
    const shown = text.slice(start, end).toWellFormed();
    await report({
      file,
      line,
      text: `${start > 0 ? "…" : ""}${shown}${end < text.length ? "…" : ""}`,
    });
  };
  const searchFile = async (file: number, path: string): Promise<void> => {
    const content = Bun.file(`${request.root}/${path}`);
    const decoder = new TextDecoder();
    let held = "";
    let line = 0;
    for (let offset = 0; ; offset += pieceBytes) {
      const bytes = await content.slice(offset, offset + pieceBytes).bytes();
      // No text holds a NUL character.
      if (offset === 0 && bytes.subarray(0, 8192).includes(0)) return;
      const lines = (held + decoder.decode(bytes, { stream: bytes.length > 0 })).split("\n");
      held = bytes.length === 0 ? "" : (lines.pop() ?? "");
      if (held.length > heldCharsMax) lines.push(held.slice(0, heldCharsMax));
      if (held.length > heldCharsMax) held = held.slice(heldCharsMax);
      if (bytes.length === 0 && lines.at(-1) === "") lines.pop();
      for (const text of lines) {
        line += 1;
        await searchLine(file, line, text);
        if (matches >= request.matchesMax) return;
      }
      if (bytes.length === 0) return;
    }
  };
  for (const [file, path] of request.files.entries()) {
    // A file that went away or may not be read is passed over.
    await searchFile(file, path).catch(() => {});
    if (matches >= request.matchesMax) break;
  }
  await report({ complete: matches < request.matchesMax });
}
