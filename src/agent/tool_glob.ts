import { stat } from "node:fs/promises";
import * as v from "valibot";
import { describeEnd, FileWalk } from "./file_walk.ts";
import type { Tool } from "./tool.ts";
import { defineTool, PathSchema, resolvePath, ToolFailure } from "./tool_definition.ts";
import { TOOL_OUTPUT_BYTES_MAX } from "./tool_output.ts";

/** Owns the `glob` tool: names of files that match a pattern, bounded in number and time. */
const RESULTS_MAX = 1000;

const GlobSchema = v.strictObject({
  pattern: v.pipe(
    v.string(),
    v.minLength(1, "Must not be empty"),
    v.maxLength(1000),
    v.description("Such as 'src/**/*.ts'. Without a slash it is looked for in every directory."),
  ),
  path: v.optional(
    v.pipe(PathSchema, v.description("The directory to look in; the workspace when left out.")),
  ),
});

export function createGlobTool(): Tool {
  return defineTool({
    name: "glob",
    description:
      "Finds files by name. Directories .git and node_modules, and what .gitignore names, are passed over.",
    schema: GlobSchema,
    run: async ({ pattern, path }, context) => {
      const root = await openDirectory(resolvePath(context, path ?? "."));
      const matches = compileGlob(pattern);
      const walk = new FileWalk({
        root,
        wanted: pattern.split("/"),
        signal: context.signal,
        clock: context.clock,
      });
      const prefix = pathPrefix(path ?? ".");
      const found: string[] = [];
      let bytes = 0;
      for await (const file of walk.files()) {
        if (!matches(file)) continue;
        bytes += Buffer.byteLength(prefix + file) + 1;
        if (found.length >= RESULTS_MAX || bytes > TOOL_OUTPUT_BYTES_MAX - 200) {
          found.push(`[more files match; only ${found.length} are shown]`);
          break;
        }
        found.push(`${prefix}${file}`.toWellFormed());
      }
      const end = describeEnd(walk.end);
      if (found.length === 0) found.push("[no file matches]");
      if (end !== null) found.push(end);
      return found.join("\n");
    },
  });
}

/** A pattern without a slash means a name anywhere. */
export function compileGlob(pattern: string): (path: string) => boolean {
  const plain = pattern.replace(/^\.\//, "");
  const glob = new Bun.Glob(plain.includes("/") ? plain : `**/${plain}`);
  return (path) => glob.match(path);
}

/** What stands before names below a directory, so that they are paths from where the directory was named. */
export function pathPrefix(given: string): string {
  const plain = given.replace(/^(\.\/)+/, "").replace(/\/+$/, "");
  if (plain === "" && given.startsWith("/")) return "/";
  return plain === "" || plain === "." ? "" : `${plain}/`;
}

async function openDirectory(path: string): Promise<string> {
  const found = await stat(path);
  if (!found.isDirectory()) throw new ToolFailure(`It is not a directory: ${path}`);
  return path;
}
