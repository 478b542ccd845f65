import type { Variables } from "../base/environment.ts";
import { FileChanges } from "./file_change.ts";
import type { ProcessGroups } from "./processes.ts";
import type { Skills } from "./skills.ts";
import type { Tool } from "./tool.ts";
import { createBashTool } from "./tool_bash.ts";
import { createEditTool } from "./tool_edit.ts";
import { createGlobTool } from "./tool_glob.ts";
import { createGrepTool } from "./tool_grep.ts";
import { createReadTool } from "./tool_read.ts";
import { createSkillTool } from "./tool_skill.ts";
import { createWriteTool } from "./tool_write.ts";

export interface ToolsDependencies {
  readonly processes: ProcessGroups;
  readonly skills: Skills;
  /** The daemon's own environment; commands see it without its secrets. */
  readonly env: Variables;
  /** Names of further variables that hold keys: those the settings name. */
  readonly secretVariables?: () => readonly string[];
}

/** The tools a turn offers to its model. */
export function createTools(dependencies: ToolsDependencies): readonly Tool[] {
  const { processes, skills, env } = dependencies;
  const changes = new FileChanges();
  const environment = (): Variables =>
    commandEnvironment(env, dependencies.secretVariables?.() ?? []);
  return [
    createBashTool({ processes, environment }),
    createReadTool(),
    createWriteTool(changes),
    createEditTool(changes),
    createGlobTool(),
    createGrepTool({ processes }),
    createSkillTool(skills),
  ];
}

const PROVIDER_KEY_VARIABLES = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"];

/** Makes programs write as to a file, and never wait for a person. */
const FOR_COMMANDS: Variables = {
  PAGER: "cat",
  GIT_PAGER: "cat",
  GIT_TERMINAL_PROMPT: "0",
  TERM: "dumb",
};

/** The environment without what only the daemon is to know: its own settings and the keys of providers. */
export function commandEnvironment(env: Variables, secretVariables: readonly string[]): Variables {
  const hidden = new Set([...PROVIDER_KEY_VARIABLES, ...secretVariables]);
  const shown: Record<string, string | undefined> = {};
  for (const [name, value] of Object.entries(env)) {
    const isOwn = name.startsWith("ALBEDO_") && name !== "ALBEDO_HOME";
    if (!isOwn && !hidden.has(name)) shown[name] = value;
  }
  return { ...shown, ...FOR_COMMANDS };
}
