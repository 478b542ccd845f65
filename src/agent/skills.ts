import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { KIB } from "../base/limits.ts";
import type { SkillInfo } from "../wire/server.ts";

/**
 * Owns skills: instructions kept in `SKILL.md` files, under `<home>/skills/<name>/` and
 * `<workspace>/.albedo/skills/<name>/`; the workspace's win. A skill is data: preparing one runs nothing
 * (operations.md, Requests and duplicate detection).
 */
export const SKILL_FILE_NAME = "SKILL.md";

const SKILL_BYTES_MAX = 256 * KIB;
const SKILLS_MAX = 500;
const DESCRIPTION_CHARS_MAX = 1000;
const NAME_REGEXP = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/;

export interface PreparedSkill {
  readonly displayText: string;
  /** What the model reads. */
  readonly modelText: string;
}

interface Skill extends SkillInfo {
  readonly content: string;
}

export class Skills {
  readonly #home: string;

  /** @param dependencies.home the data directory */
  constructor(dependencies: { readonly home: string }) {
    this.#home = dependencies.home;
  }

  /** Every skill by name; of two with one name the workspace's. Files that cannot be used are left out. */
  async list(workspace: string | null): Promise<readonly SkillInfo[]> {
    const skills = new Map<string, SkillInfo>();
    for (const root of this.#roots(workspace).toReversed()) {
      for (const directory of await directoriesIn(root.path)) {
        const skill = await readSkill(join(root.path, directory), directory, root.origin);
        if (skill === null) continue;
        const { name, description, origin } = skill;
        skills.set(name, { name, description, origin });
      }
    }
    return [...skills.values()].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  }

  /**
   * The text of a skill with its arguments put in place of `$ARGUMENTS`, or behind it; `null` where no skill has
   * that name.
   */
  async prepare(workspace: string, name: string, args: string): Promise<PreparedSkill | null> {
    const skill = await this.#find(workspace, name);
    if (skill === null) return null;
    return {
      displayText: args === "" ? `/${name}` : `/${name} ${args}`,
      modelText: fillIn(skill.content, args).toWellFormed(),
    };
  }

  /** By its folder's name first, since that needs no other file to be read. */
  async #find(workspace: string, name: string): Promise<Skill | null> {
    for (const root of this.#roots(workspace)) {
      if (NAME_REGEXP.test(name)) {
        const skill = await readSkill(join(root.path, name), name, root.origin);
        if (skill?.name === name) return skill;
      }
      for (const directory of await directoriesIn(root.path)) {
        const skill = await readSkill(join(root.path, directory), directory, root.origin);
        if (skill?.name === name) return skill;
      }
    }
    return null;
  }

  #roots(workspace: string | null): { path: string; origin: SkillInfo["origin"] }[] {
    return [
      ...(workspace === null
        ? []
        : [{ path: join(workspace, ".albedo", "skills"), origin: "workspace" as const }]),
      { path: join(this.#home, "skills"), origin: "home" as const },
    ];
  }
}

function fillIn(content: string, args: string): string {
  // A function as the replacement, so that `$&` in the arguments stays what it is.
  if (content.includes("$ARGUMENTS")) return content.replaceAll("$ARGUMENTS", () => args);
  return args === "" ? content : `${content}\n\nArguments: ${args}`;
}

async function directoriesIn(path: string): Promise<readonly string[]> {
  try {
    const names = await readdir(path);
    return names
      .filter((name) => NAME_REGEXP.test(name))
      .sort()
      .slice(0, SKILLS_MAX);
  } catch {
    // No such folder, or one that may not be read: there are no skills in it.
    return [];
  }
}

async function readSkill(
  directory: string,
  folderName: string,
  origin: SkillInfo["origin"],
): Promise<Skill | null> {
  const path = join(directory, SKILL_FILE_NAME);
  let text: string;
  try {
    const found = await stat(path);
    // A pipe would never be read to its end, nor would a link to a device; a workspace may hold either.
    if (!found.isFile() || found.size > SKILL_BYTES_MAX) return null;
    text = await readFile(path, "utf8");
  } catch {
    return null;
  }
  const { fields, content } = splitFrontMatter(text);
  const name = fields.get("name") ?? folderName;
  if (!NAME_REGEXP.test(name)) return null;
  const description = fields.get("description") ?? firstLine(content);
  return {
    name,
    description: description.slice(0, DESCRIPTION_CHARS_MAX).toWellFormed(),
    origin,
    content,
  };
}

/**
 * The fields between two lines of `---` at the top of a file, and what follows. Only `name: value` in one line is
 * understood; other lines are passed over.
 */
export function splitFrontMatter(text: string): {
  readonly fields: ReadonlyMap<string, string>;
  readonly content: string;
} {
  const fields = new Map<string, string>();
  const plain = text.replace(/^\uFEFF/, "");
  const match = /^---[ \t]*\r?\n(?:([\s\S]*?)\r?\n)?---[ \t]*(?:\r?\n|$)/.exec(plain);
  if (match === null) return { fields, content: plain.trim() };
  for (const line of (match[1] ?? "").split(/\r?\n/)) {
    const field = /^([A-Za-z_-]+):[ \t]*(.*?)[ \t]*$/.exec(line);
    if (field?.[1] === undefined || field[2] === undefined || field[2] === "") continue;
    fields.set(field[1].toLowerCase(), unquote(field[2]));
  }
  return { fields, content: plain.slice(match[0].length).trim() };
}

function unquote(value: string): string {
  const match = /^(["'])(.*)\1$/.exec(value);
  return match?.[2] ?? value;
}

function firstLine(content: string): string {
  const line = content.split("\n").find((candidate) => candidate.trim() !== "") ?? "";
  return line.replace(/^#+\s*/, "").trim();
}
