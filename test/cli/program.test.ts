import { describe, expect, test } from "bun:test";
import type { Command } from "commander";
import { createProgram } from "../../src/cli/program.ts";

/** Goal: every verb can be learned from its help alone, and a wrong command line runs nothing. */
const VERBS = [
  "daemon",
  "prompt",
  "resume",
  "attach",
  "sessions",
  "show",
  "cancel",
  "interrupt",
  "delete",
  "models",
  "operation",
  "logs",
  "version",
  "completion",
  "help",
];

async function helpOf(...words: string[]): Promise<string> {
  const { output, code } = await outcome([...words, "--help"]);
  expect(code).toBe("commander.helpDisplayed");
  return output;
}

async function outcome(words: readonly string[]): Promise<{ output: string; code: string }> {
  const program = createProgram();
  let output = "";
  const collect = (command: Command): void => {
    command.configureOutput({
      writeOut: (text) => {
        output += text;
      },
      writeErr: (text) => {
        output += text;
      },
    });
    command.exitOverride();
    command.commands.forEach(collect);
  };
  collect(program);
  try {
    await program.parseAsync(["bun", "albedo", ...words]);
    return { output, code: "ran" };
  } catch (error) {
    return { output, code: (error as { code?: string }).code ?? String(error) };
  }
}

describe("createProgram", () => {
  test("has the verbs of the contract", () => {
    expect(createProgram().commands.map((command) => command.name())).toEqual(VERBS);
  });

  test.each(VERBS)("%s --help shows how it is called, with examples", async (verb) => {
    const help = await helpOf(verb);
    expect(help).toContain(`Usage: albedo ${verb}`);
    expect(help).toContain(`Examples:\n  $ `);
    expect(help).toMatch(new RegExp(`\\$ .*albedo ${verb}`));
  });

  test("help VERB shows what VERB --help shows, and help alone what --help does", async () => {
    expect((await outcome(["help", "prompt"])).output).toBe(await helpOf("prompt"));
    expect((await outcome(["help"])).output).toBe(await helpOf());
  });

  test("--help documents every exit code and the environment", async () => {
    const help = await helpOf();
    for (const code of ["0 ", "1 ", "2 ", "3 ", "124", "130", "141"]) {
      expect(help).toMatch(new RegExp(`^  ${code}\\s+\\w`, "m"));
    }
    for (const name of ["ALBEDO_HOME", "ALBEDO_PORT", "ALBEDO_LOG", "NO_COLOR"]) {
      expect(help).toContain(name);
    }
  });

  test.each([
    [["promt"], "commander.unknownCommand", "(Did you mean prompt?)"],
    [["sessions", "--jsn"], "commander.unknownOption", "(Did you mean --json?)"],
    [["show"], "commander.missingArgument", "missing required argument 'id'"],
    [["sessions", "extra"], "commander.excessArguments", "too many arguments"],
    [["prompt", "--timeout", "0", "x"], "commander.invalidArgument", "number of seconds"],
    [["prompt", "--timeout", "1e3", "x"], "commander.invalidArgument", "number of seconds"],
    [["daemon", "--port", "65536"], "commander.invalidArgument", "at most 65535"],
    [["attach", "x", "--tail", "-1"], "commander.invalidArgument", "whole number"],
    [["sessions", "--limit", "0"], "commander.invalidArgument", "at least 1"],
    [["prompt", "--model", "", "x"], "commander.invalidArgument", "provider/model"],
    [["show", "x", "--all", "--tail", "3"], "commander.conflictingOption", "cannot be used with"],
    [["help", "nope"], "commander.error", "unknown command 'nope'"],
  ])("refuses %j", async (words, code, message) => {
    const refused = await outcome(words);
    expect(refused.code).toBe(code);
    expect(refused.output).toContain(message);
  });
});
