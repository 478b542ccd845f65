import type { Variables } from "../base/environment.ts";
import type { RandomSource } from "../base/ids.ts";
import type { Tool } from "./tool.ts";

export interface ToolsDependencies {
  /** The data directory: what runs is noted in it, so that a later daemon can end what this one left behind. */
  readonly home: string;
  /** What commands see of the environment; secrets of the daemon are taken out. */
  readonly env: Variables;
  readonly random?: RandomSource;
  /** Further names of variables that hold keys. */
  readonly secretVariables?: () => readonly string[];
}

/** The tools a turn offers to its model. */
export function createTools(_dependencies: ToolsDependencies): readonly Tool[] {
  return [];
}
