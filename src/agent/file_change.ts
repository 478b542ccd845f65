import { mkdir, open, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ToolFailure } from "./tool_definition.ts";

/**
 * Owns how tools change files: whole or not at all, one change of a file at a time.
 */
export class FileChanges {
  readonly #tails = new Map<string, Promise<unknown>>();
  #drafts = 0;

  /** Runs after every earlier change of the same path; parallel calls of one turn would else undo one another. */
  async exclusively<T>(path: string, run: () => Promise<T>): Promise<T> {
    const earlier = this.#tails.get(path) ?? Promise.resolve();
    const now = earlier.then(run, run);
    const tail = now.catch(() => {});
    this.#tails.set(path, tail);
    try {
      return await now;
    } finally {
      if (this.#tails.get(path) === tail) this.#tails.delete(path);
    }
  }

  /**
   * Puts a file in place with one rename. Its directories are made, its mode is kept, and where the path is a link
   * the file behind it is written.
   *
   * @returns whether the file was there before
   * @throws {ToolFailure} when the path is something other than a file
   */
  async replace(path: string, content: string | Uint8Array): Promise<boolean> {
    const target = await realpath(path).catch(() => path);
    const found = await stat(target).catch(() => null);
    if (found !== null && !found.isFile()) throw new ToolFailure(`It is not a file: ${path}`);
    await mkdir(dirname(target), { recursive: true });
    this.#drafts += 1;
    const draft = join(dirname(target), `.${basename(target)}.${process.pid}-${this.#drafts}.new`);
    const file = await open(draft, "wx", 0o666);
    try {
      await file.writeFile(content);
      if (found !== null) await file.chmod(found.mode & 0o7777);
      await file.close();
      await rename(draft, target);
    } catch (error) {
      await file.close().catch(() => {});
      await rm(draft, { force: true });
      throw error;
    }
    return found !== null;
  }
}
