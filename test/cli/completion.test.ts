import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { completion, SHELLS } from "../../src/cli/completion.ts";
import type { Context } from "../../src/cli/context.ts";
import { CliError, EXIT } from "../../src/cli/exit.ts";
import { createProgram } from "../../src/cli/program.ts";
import { tempDir } from "../support/temp_dir.ts";
import { Paper } from "./paper.ts";

/** Goal: the scripts know every verb and flag, and a shell that is here reads and runs them. */
function scriptFor(shell: string): string {
  const paper = new Paper();
  const context = { output: { stdout: paper.sink, stderr: paper.sink } } as unknown as Context;
  expect(completion(context, createProgram(), shell)).toBe(EXIT.done);
  return paper.text;
}

describe("completion", () => {
  test.each(SHELLS)("%s knows every verb and its flags", (shell) => {
    const script = scriptFor(shell);
    for (const command of createProgram().commands) {
      expect(script).toContain(command.name());
      // Between single quotes, where an apostrophe would end them.
      if (shell !== "bash") expect(script).toContain(command.description().replaceAll("'", "’"));
      for (const option of command.options) {
        const name = option.long?.slice(2) ?? "";
        expect(script).toMatch(new RegExp(`(--|-l )${name}\\b`));
      }
    }
  });

  test("bash completes verbs, flags and shells", () => {
    const complete = (...words: string[]): string[] => {
      const list = words.map((word) => `'${word}'`).join(" ");
      const program =
        `${scriptFor("bash")}\nCOMP_WORDS=(${list}); COMP_CWORD=${words.length - 1}; _albedo; ` +
        'printf "%s\\n" "${COMPREPLY[@]}"';
      const run = Bun.spawnSync(["bash", "-c", program]);
      expect(run.stderr.toString()).toBe("");
      return run.stdout.toString().trim().split("\n");
    };
    expect(complete("albedo", "se")).toEqual(["sessions"]);
    expect(complete("albedo", "prompt", "--ti")).toEqual(["--timeout"]);
    expect(complete("albedo", "completion", "")).toEqual([...SHELLS]);
    using directory = tempDir();
    const image = join(directory.path, "a screen.png");
    writeFileSync(image, "");
    expect(complete("albedo", "prompt", "--image", image.slice(0, -6))).toEqual([image]);
  });

  test("another shell is a usage error that names the three", () => {
    try {
      scriptFor("csh");
      expect.unreachable();
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      expect(error.exitCode).toBe(EXIT.usage);
      expect(error.message).toContain("bash, zsh, fish");
    }
  });
});
