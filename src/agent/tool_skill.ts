import * as v from "valibot";
import type { Skills } from "./skills.ts";
import type { Tool } from "./tool.ts";
import { defineTool, ToolFailure } from "./tool_definition.ts";

/**
 * Owns the `skill` tool: a model's call returns a skill's instructions as data and runs nothing (operations.md,
 * Requests and duplicate detection). A person activates a skill by a submission instead, never here.
 */
const SkillCallSchema = v.strictObject({
  name: v.optional(
    v.pipe(v.string(), v.maxLength(100), v.description("The skill; lists all when left out.")),
  ),
  arguments: v.optional(
    v.pipe(v.string(), v.maxLength(32_768), v.description("What the skill is to be applied to.")),
  ),
});

export function createSkillTool(skills: Pick<Skills, "list" | "prepare">): Tool {
  return defineTool({
    name: "skill",
    description:
      "Gives the instructions of a skill by its name, for you to follow; without a name, which skills there are.",
    schema: SkillCallSchema,
    run: async ({ name, arguments: args }, { workspace }) => {
      if (name === undefined || name === "") return describeAll(await skills.list(workspace));
      const skill = await skills.prepare(workspace, name, args ?? "");
      if (skill === null) throw new ToolFailure(`There is no skill '${name}'.`);
      return skill.modelText;
    },
  });
}

function describeAll(skills: Awaited<ReturnType<Skills["list"]>>): string {
  if (skills.length === 0) return "[there are no skills]";
  return skills.map(({ name, description }) => `${name}: ${description}`).join("\n");
}
