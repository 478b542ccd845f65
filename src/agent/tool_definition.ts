import { homedir } from "node:os";
import { resolve } from "node:path";
import { toJsonSchema } from "@valibot/to-json-schema";
import * as v from "valibot";
import type { Tool, ToolContext, ToolResult } from "./tool.ts";

/**
 * Owns what all tools have in common: arguments are checked against one schema, which is also what the model is
 * told, and whatever goes wrong becomes a result that the model can act on.
 */

/** What a tool cannot do, said to the model. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
}

export interface ToolBlueprint<Schema extends v.GenericSchema> {
  readonly name: string;
  readonly description: string;
  /** A strict object; its fields carry `v.description`. */
  readonly schema: Schema;
  /** @throws {ToolFailure} and errors of the file system, which become results */
  run(input: v.InferOutput<Schema>, context: ToolContext): Promise<ToolResult | string>;
}

export function defineTool<const Schema extends v.GenericSchema>(
  blueprint: ToolBlueprint<Schema>,
): Tool {
  let parameters: Record<string, unknown> | null = null;
  return {
    name: blueprint.name,
    description: blueprint.description,
    // Built when the first request needs it, not when the daemon starts.
    get parameters() {
      if (parameters === null) {
        const { $schema: _, ...schema } = toJsonSchema(blueprint.schema, { errorMode: "ignore" });
        parameters = schema;
      }
      return parameters;
    },
    run: (input, context) => runGuarded(blueprint, input, context),
  };
}

async function runGuarded<Schema extends v.GenericSchema>(
  blueprint: ToolBlueprint<Schema>,
  input: unknown,
  context: ToolContext,
): Promise<ToolResult> {
  context.signal.throwIfAborted();
  const parsed = v.safeParse(blueprint.schema, withoutNulls(input));
  if (!parsed.success) return failure(describeIssues(input, parsed.issues));
  try {
    const result = await blueprint.run(parsed.output, context);
    return typeof result === "string" ? { output: result, isError: false } : result;
  } catch (error) {
    context.signal.throwIfAborted();
    return failure(describeError(error));
  }
}

function failure(output: string): ToolResult {
  return { output: output.toWellFormed(), isError: true };
}

/** Some models send `null` for what they leave out. */
function withoutNulls(input: unknown): unknown {
  if (typeof input !== "object" || input === null || Array.isArray(input)) return input;
  return Object.fromEntries(Object.entries(input).filter(([, value]) => value !== null));
}

function describeIssues(input: unknown, issues: readonly v.BaseIssue<unknown>[]): string {
  if (typeof input === "string") return "The arguments are not valid JSON.";
  const lines = issues.slice(0, 8).map((issue) => {
    const path = v.getDotPath(issue);
    return path === null ? `- ${issue.message}` : `- '${path}': ${issue.message}`;
  });
  return `The arguments do not fit:\n${lines.join("\n")}`;
}

function describeError(error: unknown): string {
  if (error instanceof ToolFailure) return error.message;
  if (!(error instanceof Error)) return "The tool failed.";
  const { code, path } = error as NodeJS.ErrnoException;
  const reason = code === undefined ? null : FILE_ERRORS[code];
  if (reason === null || reason === undefined) return `The tool failed: ${error.message}`;
  return path === undefined ? `${reason}.` : `${reason}: ${path}`;
}

const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "There is no such file or directory",
  EACCES: "Permission is denied",
  EPERM: "The operation is not permitted",
  EISDIR: "It is a directory",
  ENOTDIR: "A part of the path is no directory",
  ENOSPC: "The disk is full",
  EROFS: "The file system is read-only",
  ELOOP: "There are too many symbolic links",
  ENAMETOOLONG: "The name is too long",
};

/** A path as the model gave it: absolute, from the home directory with `~/`, or from the workspace. */
export const PathSchema = v.pipe(
  v.string(),
  v.minLength(1, "Must not be empty"),
  v.maxLength(4096),
  v.check((path) => !path.includes("\0"), "Must not hold a NUL character"),
);

export function resolvePath(context: ToolContext, path: string): string {
  if (path === "~" || path.startsWith("~/")) return resolve(homedir(), `.${path.slice(1)}`);
  return resolve(context.workspace, path);
}
