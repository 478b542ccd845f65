import { describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { applyEdit } from "../../src/agent/tool_edit.ts";
import { ToolBench } from "./tool_context.ts";

/*
 * Goal: read, write and edit do what they say to real files, whole or not at all, bounded in output, and say what to
 * do where they cannot.
 */

setDefaultTimeout(60_000);

describe("read", () => {
  test("shows numbered lines, from the workspace, absolute and with an offset", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "a.txt"), "one\ntwo\r\nthree");
    const whole = "     1\tone\n     2\ttwo\n     3\tthree";
    expect(await bench.output("read", { path: "a.txt" })).toBe(whole);
    expect(await bench.output("read", { path: join(bench.workspace, "a.txt") })).toBe(whole);
    expect(await bench.output("read", { path: "a.txt", offset: 2, limit: 1 })).toBe(
      "     2\ttwo\n[more lines follow; go on with offset 3]",
    );
    expect(await bench.output("read", { path: "a.txt", offset: 3 })).toBe("     3\tthree");
    expect(await bench.failure("read", { path: "a.txt", offset: 4 })).toContain("has 3 lines");
  });

  test("says of an empty file that it is empty, and shows no byte order mark", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "empty"), "");
    writeFileSync(join(bench.workspace, "bom"), "\uFEFFtext\n");
    writeFileSync(join(bench.workspace, "blank"), "\n");
    expect(await bench.output("read", { path: "empty" })).toBe("(an empty file)");
    expect(await bench.output("read", { path: "bom" })).toBe("     1\ttext");
    expect(await bench.output("read", { path: "blank" })).toBe("     1\t");
  });

  test("stops at its bound and says where to go on; from there nothing is missing", async () => {
    await using bench = new ToolBench();
    const lines = Array.from(
      { length: 5000 },
      (_, index) => `line ${index + 1} ${"x".repeat(index % 90)}`,
    );
    writeFileSync(join(bench.workspace, "long"), `${lines.join("\n")}\n`);
    const seen: string[] = [];
    let offset: number | null = 1;
    let calls = 0;
    while (offset !== null) {
      const output: string = await bench.output("read", { path: "long", offset });
      expect(Buffer.byteLength(output)).toBeLessThanOrEqual(48 * 1024);
      const shown = output.split("\n");
      const note: RegExpExecArray | null = /go on with offset (\d+)\]$/.exec(shown.at(-1)!);
      if (note !== null) shown.pop();
      seen.push(...shown.map((line) => line.slice(7)));
      offset = note === null ? null : Number(note[1]);
      calls += 1;
    }
    expect(seen).toEqual(lines);
    expect(calls).toBeGreaterThan(3);
  });

  test("a line of megabytes is cut, and costs no more than what is shown", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "min.js"), `${"ä".repeat(3_000_000)}\nend\n`);
    const output = await bench.output("read", { path: "min.js" });
    expect(output.length).toBeLessThan(3_000);
    expect(output).toContain("a line of 6000000 bytes");
    expect(output).toEndWith("     2\tend");
    expect(output.includes("\ufffd")).toBe(false);
  });

  test("refuses what is no text file", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "binary"), new Uint8Array([1, 0, 2]));
    await bench.output("bash", { command: "mkfifo pipe" });
    expect(await bench.failure("read", { path: "binary" })).toBe("It is a binary file");
    expect(await bench.failure("read", { path: "pipe" })).toContain(
      "neither a file nor a directory",
    );
    expect(await bench.failure("read", { path: "/dev/zero" })).toContain("neither a file nor");
    expect(await bench.failure("read", { path: "nope" })).toContain("no such file");
    expect(await bench.failure("read", { path: "a\0b" })).toContain("NUL");
    expect(await bench.failure("read", { path: "" })).toContain("'path'");
    expect(await bench.failure("read", { path: "binary", offset: 0 })).toContain("'offset'");
    expect(await bench.failure("read", { path: "binary", offset: 1.5 })).toContain("'offset'");
  });

  test("lists a directory", async () => {
    await using bench = new ToolBench();
    mkdirSync(join(bench.workspace, "sub"));
    writeFileSync(join(bench.workspace, "b"), "");
    writeFileSync(join(bench.workspace, "a"), "");
    expect(await bench.output("read", { path: "." })).toBe("a\nb\nsub/");
    expect(await bench.output("read", { path: "sub" })).toBe("(an empty directory)");
  });

  test("text that is not UTF-8 is shown as well as it can be", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "latin1"), Buffer.from("gr\xfcn\n", "latin1"));
    expect(await bench.output("read", { path: "latin1" })).toBe("     1\tgr\ufffdn");
  });
});

describe("write", () => {
  test("makes a file and its directories, and replaces one without changing its mode", async () => {
    await using bench = new ToolBench();
    const path = join(bench.workspace, "x/y/run.sh");
    expect(await bench.output("write", { path: "x/y/run.sh", content: "grün\n" })).toBe(
      `Created ${path} with 6 bytes.`,
    );
    chmodSync(path, 0o750);
    expect(await bench.output("write", { path, content: "" })).toStartWith("Replaced");
    expect(readFileSync(path, "utf8")).toBe("");
    expect(statSync(path).mode & 0o777).toBe(0o750);
    expect(readdirSync(join(bench.workspace, "x/y"))).toEqual(["run.sh"]);
  });

  test("writes the file behind a link, and leaves the link", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "real"), "old");
    symlinkSync("real", join(bench.workspace, "link"));
    await bench.output("write", { path: "link", content: "new" });
    expect(readFileSync(join(bench.workspace, "real"), "utf8")).toBe("new");
    expect(await bench.output("bash", { command: "readlink link" })).toBe("real\n");
  });

  test("never writes a lone half of a pair", async () => {
    await using bench = new ToolBench();
    await bench.output("write", { path: "a", content: "x\ud800" });
    expect(readFileSync(join(bench.workspace, "a"), "utf8")).toBe("x\ufffd");
  });

  test("refuses a directory and a path through a file, and leaves nothing behind", async () => {
    await using bench = new ToolBench();
    mkdirSync(join(bench.workspace, "dir"));
    writeFileSync(join(bench.workspace, "file"), "");
    expect(await bench.failure("write", { path: "dir", content: "" })).toContain("not a file");
    expect(await bench.failure("write", { path: "file/x", content: "" })).toContain("file");
    expect(await bench.failure("write", { path: "/proc/nope", content: "" })).toBeString();
    expect(await bench.failure("write", { path: "a" })).toContain("'content'");
    expect(readdirSync(bench.workspace).sort()).toEqual(["dir", "file"]);
  });
});

describe("edit", () => {
  test("replaces the one place and says which line it was", async () => {
    await using bench = new ToolBench();
    const path = join(bench.workspace, "a.ts");
    writeFileSync(path, "one\ntwo\nthree\n");
    expect(
      await bench.output("edit", { path: "a.ts", old_string: "two\n", new_string: "2\n" }),
    ).toBe(`Replaced 1 place in ${path} (line 2).`);
    expect(readFileSync(path, "utf8")).toBe("one\n2\nthree\n");
  });

  test("says why it cannot, and changes nothing", async () => {
    await using bench = new ToolBench();
    const path = join(bench.workspace, "a.ts");
    const text = "if (x) {\n  go();\n}\nif (x) {\n  stay();\n}\n";
    writeFileSync(path, text);
    const fail = (old_string: string, new_string = "y"): Promise<string> =>
      bench.failure("edit", { path: "a.ts", old_string, new_string });
    expect(await fail("if (x) {")).toContain("there 2 times (lines 1, 4)");
    expect(await fail("nothing like it")).toBe("old_string is not in the file");
    expect(await fail("\tgo();\n}")).toContain("line 2 has its first line");
    expect(await fail("go();", "go();")).toContain("are the same");
    expect(await fail("")).toContain("use write");
    expect(readFileSync(path, "utf8")).toBe(text);
    expect(await bench.failure("edit", { path: "no", old_string: "a", new_string: "b" })).toContain(
      "no such file",
    );
    expect(await bench.failure("edit", { path: ".", old_string: "a", new_string: "b" })).toContain(
      "not a file",
    );
  });

  test("refuses files it would damage", async () => {
    await using bench = new ToolBench();
    writeFileSync(join(bench.workspace, "latin1"), Buffer.from("gr\xfcn", "latin1"));
    writeFileSync(join(bench.workspace, "binary"), new Uint8Array([97, 0, 97]));
    for (const path of ["latin1", "binary"]) {
      const before = readFileSync(join(bench.workspace, path));
      await bench.failure("edit", { path, old_string: "a", new_string: "b" });
      await bench.failure("edit", { path, old_string: "gr", new_string: "b" });
      expect(readFileSync(join(bench.workspace, path))).toEqual(before);
    }
  });

  test("keeps line ends, a byte order mark and the mode", async () => {
    await using bench = new ToolBench();
    const path = join(bench.workspace, "dos.txt");
    writeFileSync(path, "\uFEFFone\r\ntwo\r\nthree\r\n", { mode: 0o640 });
    chmodSync(path, 0o640);
    await bench.output("edit", { path, old_string: "one\ntwo\n", new_string: "1\n2\n3\n" });
    expect(readFileSync(path, "utf8")).toBe("\uFEFF1\r\n2\r\n3\r\nthree\r\n");
    expect(statSync(path).mode & 0o777).toBe(0o640);
  });

  test("calls that go in parallel do not undo one another", async () => {
    await using bench = new ToolBench();
    const names = Array.from({ length: 20 }, (_, index) => `<${index}>`);
    writeFileSync(join(bench.workspace, "a"), names.join("\n"));
    await Promise.all(
      names.map((name) =>
        bench.output("edit", { path: "a", old_string: name, new_string: `${name}!` }),
      ),
    );
    const text = readFileSync(join(bench.workspace, "a"), "utf8");
    expect(text).toBe(names.map((name) => `${name}!`).join("\n"));
  });
});

describe("applyEdit()", () => {
  const apply = (text: string, oldText: string, newText: string, all = false) =>
    applyEdit(text, { oldText, newText, all });

  test("takes the new text as it is, whatever is special to patterns", () => {
    expect(apply("a.b", ".", "$&$1$$").text).toBe("a$&$1$$b");
  });

  test("a text that overlaps itself is not unique", () => {
    expect(() => apply("aaa", "aa", "b")).toThrow("2 times");
    expect(apply("aaa", "aa", "b", true)).toMatchObject({ text: "ba", count: 1 });
  });

  test("replaces the one place and nothing else, or every place", () => {
    const part = fc.string({
      unit: fc.constantFrom("a", "b", "\n", "🌍"),
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(
        part,
        part,
        fc.array(fc.constantFrom("x", "a", "b", "\n", "🌍")),
        fc.nat(20),
        (oldText, newText, around, at) => {
          fc.pre(oldText !== newText);
          const before = around.slice(0, at).join("");
          const after = around.slice(at).join("");
          const text = before + oldText + after;
          let count = 0;
          for (let i = text.indexOf(oldText); i !== -1; i = text.indexOf(oldText, i + 1))
            count += 1;
          if (count === 1)
            expect(apply(text, oldText, newText).text).toBe(before + newText + after);
          else expect(() => apply(text, oldText, newText)).toThrow(`${count} times`);
          expect(apply(text, oldText, newText, true).text).toBe(text.split(oldText).join(newText));
        },
      ),
    );
  });

  test("in a file with CRLF a text with LF finds its place, and one with CRLF too", () => {
    for (const oldText of ["a\nb", "a\r\nb"]) {
      expect(apply("x\r\na\r\nb\r\n", oldText, "c\nd").text).toBe(
        oldText.includes("\r") ? "x\r\nc\nd\r\n" : "x\r\nc\r\nd\r\n",
      );
    }
    // Where the exact text is there it is taken exactly.
    expect(apply("a\nb\r\n", "a\nb", "c\nd").text).toBe("c\nd\r\n");
  });

  test("many places cost no more than their text", () => {
    const { count, lines } = apply("a\n".repeat(500_000), "a", "bb", true);
    expect(count).toBe(500_000);
    expect(lines).toEqual([1, 2, 3, 4, 5]);
  });
});
