import { describe, expect, test } from "bun:test";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Skills, splitFrontMatter } from "../../src/agent/skills.ts";
import { tempDir } from "../support/temp_dir.ts";

// Goal: skills are read from both places, the workspace's win, and preparing one runs nothing and gives its text
// with the arguments as they were written.

function write(root: string, name: string, text: string): void {
  mkdirSync(join(root, name), { recursive: true });
  writeFileSync(join(root, name, "SKILL.md"), text);
}

function inHome(home: string): string {
  return join(home, "skills");
}

function inWorkspace(workspace: string): string {
  return join(workspace, ".albedo", "skills");
}

describe("Skills", () => {
  test("lists both places by name, the workspace's in place of one of the home", async () => {
    using home = tempDir();
    using workspace = tempDir();
    write(inHome(home.path), "review", "---\nname: review\ndescription: From home\n---\nText");
    write(inHome(home.path), "plan", "# Make a plan\n\nThink first.");
    write(inWorkspace(workspace.path), "review", "---\ndescription: 'From here'\n---\nText");
    const skills = new Skills({ home: home.path });
    expect(await skills.list(workspace.path)).toEqual([
      { name: "plan", description: "Make a plan", origin: "home" },
      { name: "review", description: "From here", origin: "workspace" },
    ]);
    expect((await skills.list(null)).map((skill) => skill.description)).toEqual([
      "Make a plan",
      "From home",
    ]);
  });

  test("what cannot be used is left out", async () => {
    using home = tempDir();
    write(inHome(home.path), "good", "Text");
    write(inHome(home.path), "bad-name", "---\nname: ../evil\n---\nText");
    write(inHome(home.path), "huge", "x".repeat(256 * 1024 + 1));
    mkdirSync(join(inHome(home.path), "empty"));
    writeFileSync(join(inHome(home.path), "file"), "Text");
    symlinkSync("/nowhere", join(inHome(home.path), "dangling"));
    mkdirSync(join(inHome(home.path), "device"));
    symlinkSync("/dev/null", join(inHome(home.path), "device", "SKILL.md"));
    const skills = new Skills({ home: home.path });
    expect((await skills.list(null)).map((skill) => skill.name)).toEqual(["good"]);
    expect(await new Skills({ home: "/nowhere" }).list("/nowhere")).toEqual([]);
  });

  test("prepares the text with its arguments, in every place that is meant for them", async () => {
    using home = tempDir();
    using workspace = tempDir();
    write(inHome(home.path), "fix", "---\nname: fix\n---\nFix $ARGUMENTS; then test $ARGUMENTS.\n");
    write(inHome(home.path), "plain", "Do it.\n");
    const skills = new Skills({ home: home.path });
    const prepare = (name: string, args: string) => skills.prepare(workspace.path, name, args);
    expect(await prepare("fix", "issue $& 7")).toEqual({
      displayText: "/fix issue $& 7",
      modelText: "Fix issue $& 7; then test issue $& 7.",
    });
    expect(await prepare("plain", "now")).toEqual({
      displayText: "/plain now",
      modelText: "Do it.\n\nArguments: now",
    });
    expect(await prepare("plain", "")).toEqual({ displayText: "/plain", modelText: "Do it." });
  });

  test("a skill is found by the name it gives itself; no name leads out of the folders", async () => {
    using home = tempDir();
    using workspace = tempDir();
    write(inHome(home.path), "folder", "---\nname: other\n---\nText");
    write(home.path, "secret", "Text");
    const skills = new Skills({ home: home.path });
    expect(await skills.prepare(workspace.path, "other", "")).not.toBeNull();
    for (const name of ["folder", "../secret", "..", "", ".", "nope", "a/b", "other\0"]) {
      expect(await skills.prepare(workspace.path, name, "")).toBeNull();
    }
  });

  test("the workspace's skill is the one that is prepared, and changes are seen at once", async () => {
    using home = tempDir();
    using workspace = tempDir();
    write(inHome(home.path), "s", "Home");
    const skills = new Skills({ home: home.path });
    expect((await skills.prepare(workspace.path, "s", ""))?.modelText).toBe("Home");
    write(inWorkspace(workspace.path), "s", "Workspace");
    expect((await skills.prepare(workspace.path, "s", ""))?.modelText).toBe("Workspace");
  });
});

describe("splitFrontMatter()", () => {
  test.each([
    ["---\nname: a\ndescription: b: c\n---\nText\n", { name: "a", description: "b: c" }, "Text"],
    ['\uFEFF---\r\nname: "a b"\r\n---\r\nText', { name: "a b" }, "Text"],
    ["---\n---\nText", {}, "Text"],
    ["---\nname:\n# note\n- list\n---\nText", {}, "Text"],
    ["---\nname: a\nno end", {}, "---\nname: a\nno end"],
    ["Text\n---\nname: a\n---", {}, "Text\n---\nname: a\n---"],
    ["", {}, ""],
  ] as [string, Record<string, string>, string][])("%j", (text, fields, content) => {
    const split = splitFrontMatter(text);
    expect(Object.fromEntries(split.fields)).toEqual(fields);
    expect(split.content).toBe(content);
  });
});
