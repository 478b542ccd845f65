import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ToolBench } from "./tool_context.ts";

// "Model skill calls still return instructions as data" (operations.md, Requests and duplicate detection).

function write(root: string, name: string, text: string): void {
  mkdirSync(join(root, name), { recursive: true });
  writeFileSync(join(root, name, "SKILL.md"), text);
}

describe("skill", () => {
  test("gives a skill's instructions with the arguments, and runs none of them", async () => {
    await using bench = new ToolBench();
    const trace = join(bench.workspace, "trace");
    write(join(bench.home, "skills"), "mark", `Run \`touch ${trace}\` on $ARGUMENTS.`);
    expect(await bench.output("skill", { name: "mark", arguments: "a b" })).toBe(
      `Run \`touch ${trace}\` on a b.`,
    );
    expect(existsSync(trace)).toBe(false);
  });

  test("lists the skills of the home and of the workspace without a name", async () => {
    await using bench = new ToolBench();
    expect(await bench.output("skill", {})).toBe("[there are no skills]");
    write(join(bench.home, "skills"), "plan", "# Make a plan");
    write(join(bench.workspace, ".albedo", "skills"), "review", "Look twice");
    expect(await bench.output("skill", {})).toBe("plan: Make a plan\nreview: Look twice");
  });

  test("says that there is none of that name", async () => {
    await using bench = new ToolBench();
    expect(await bench.failure("skill", { name: "nope" })).toBe("There is no skill 'nope'.");
  });
});
