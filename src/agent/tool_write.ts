import * as v from "valibot";
import type { FileChanges } from "./file_change.ts";
import type { Tool } from "./tool.ts";
import { defineTool, PathSchema, resolvePath } from "./tool_definition.ts";

/** Owns the `write` tool: a whole file, in place at once or not at all. */
const WriteSchema = v.strictObject({
  path: v.pipe(PathSchema, v.description("The file; its directories are made.")),
  content: v.pipe(v.string(), v.description("The whole content.")),
});

export function createWriteTool(changes: FileChanges): Tool {
  return defineTool({
    name: "write",
    description: "Writes a whole file, and replaces it where there is one.",
    schema: WriteSchema,
    run: async ({ path, content }, context) => {
      const full = resolvePath(context, path);
      const bytes = new TextEncoder().encode(content.toWellFormed());
      const wasThere = await changes.exclusively(full, () => changes.replace(full, bytes));
      return `${wasThere ? "Replaced" : "Created"} ${full} with ${bytes.length} bytes.`;
    },
  });
}
