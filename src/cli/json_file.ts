import { readFile } from "node:fs/promises";
import * as v from "valibot";
import { hasCode } from "./exit.ts";

/**
 * Owns reading a JSON file that another process may be replacing, or that something else may have written.
 *
 * @returns `null` where there is none, or where it holds something else
 */
export async function readJsonFile<S extends v.GenericSchema>(
  path: string,
  schema: S,
): Promise<v.InferOutput<S> | null> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT") || hasCode(error, "ENOTDIR")) return null;
    throw error;
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const parsed = v.safeParse(schema, value);
  return parsed.success ? parsed.output : null;
}
