import type { Tool } from "./tool.ts";

/** The tools a turn offers to its model. */
export function createTools(): readonly Tool[] {
  return [];
}
