import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { isUuidv7 } from "../base/ids.ts";
import { UuidSchema } from "../wire/ids.ts";
import { CliError, errorText, hasCode } from "./exit.ts";
import { readJsonFile } from "./json_file.ts";

/**
 * Owns the operations whose outcome this client does not know yet: one file each in `<home>/client/operations/`,
 * mode 0600 (operations.md, Client recovery boundaries).
 *
 * I1 An operation is written before its first byte is sent, so that a killed client leaves its handle behind.
 * I2 A file appears whole or not at all: it is written aside and renamed.
 * I3 It goes only when the outcome is known, or when the person forgets it.
 */
const KeptOperationSchema = v.object({
  version: v.literal(1),
  operation_id: UuidSchema,
  /** The session addressed; `null` for a creation. */
  session_id: v.nullable(UuidSchema),
  kept_at: v.number(),
  /** What is not known: whether it was accepted, or how it went on after an unconfirmed cancellation. */
  awaits: v.picklist(["admission", "outcome"]),
  /** Its id is too old to be asked for: it can no longer be resolved by itself. */
  expired: v.boolean(),
  /** What it was for, as a person knows it again. */
  summary: v.string(),
  /** The client library's own serialized handle: id, method, path and the encoded body. */
  handle: v.unknown(),
});
export type KeptOperation = v.InferOutput<typeof KeptOperationSchema>;

const SUFFIX = ".json";

export class StateFile {
  readonly #directory: string;

  /** @param home the data directory; it may not exist yet */
  constructor(home: string) {
    this.#directory = join(home, "client", "operations");
  }

  /** @throws {CliError} when it cannot be written */
  async keep(operation: Omit<KeptOperation, "version">): Promise<void> {
    const path = this.#path(operation.operation_id);
    try {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      const aside = `${path}.${process.pid}`;
      await writeFile(aside, JSON.stringify({ version: 1, ...operation }), { mode: 0o600 });
      await rename(aside, path);
    } catch (error) {
      throw new CliError(`Cannot keep the operation in '${this.#directory}': ${errorText(error)}`, {
        cause: error,
      });
    }
  }

  /** The outcome is known; harmless when nothing was kept. */
  async forget(operationId: string): Promise<void> {
    await rm(this.#path(operationId), { force: true });
  }

  /** @returns `null` when none is kept under this id */
  async find(operationId: string): Promise<KeptOperation | null> {
    if (!isUuidv7(operationId)) return null;
    return await readJsonFile(this.#path(operationId), KeptOperationSchema);
  }

  /** Oldest first. Files that hold something else are passed over. */
  async list(): Promise<KeptOperation[]> {
    let names: string[];
    try {
      names = await readdir(this.#directory);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return [];
      throw error;
    }
    const kept: KeptOperation[] = [];
    for (const name of names) {
      if (!name.endsWith(SUFFIX)) continue;
      const operation = await this.find(name.slice(0, -SUFFIX.length));
      if (operation !== null) kept.push(operation);
    }
    return kept.toSorted((a, b) => a.kept_at - b.kept_at);
  }

  #path(operationId: string): string {
    return join(this.#directory, `${operationId}${SUFFIX}`);
  }
}
