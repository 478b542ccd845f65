import type { Clock } from "../base/clock.ts";

/**
 * Owns what a turn knows of a tool: a name and a schema for the model, and one bounded run (contract.md, Turns,
 * models, tools).
 */
export interface ToolContext {
  /** The session's workspace, an absolute path; relative paths of a tool start there. */
  readonly workspace: string;
  /** Aborts when the turn is interrupted; the tool then ends what it started, its process group included. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Where a tool may put what did not fit into its output; an existing private directory. */
  readonly overflowDirectory: string;
  /** Shows a bounded look at what goes on; may be called as often as wanted. */
  progress(preview: string): void;
}

export interface ToolResult {
  /** What the model reads; bounded, and says how much was cut and where the rest is. */
  readonly output: string;
  readonly isError: boolean;
}

export interface Tool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments. */
  readonly parameters: Record<string, unknown>;
  /**
   * Runs once. Bad arguments and failures are results with `isError`, so that the model can mend them; only the
   * signal's reason is thrown.
   */
  run(input: unknown, context: ToolContext): Promise<ToolResult>;
}

/** How the result of a call begins that was stopped before it ended. */
export const INTERRUPTED_TOOL_OUTPUT = "[interrupted]";
