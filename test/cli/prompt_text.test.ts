import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { IMAGE_BYTES_MAX, IMAGES_MAX, TEXT_BYTES_MAX } from "../../src/base/limits.ts";
import { CliError, EXIT } from "../../src/cli/exit.ts";
import { promptText, readImages } from "../../src/cli/prompt_text.ts";
import type { Stdin } from "../../src/cli/prompt_text.ts";
import { tempDir } from "../support/temp_dir.ts";
import { PNG } from "../support/png.ts";

/** Goal: what is sent is what was said, and what cannot be sent is refused before anything is. */
function stdin(text: string | null): Stdin & { reads: number } {
  return {
    reads: 0,
    isTerminal: text === null,
    async *chunks() {
      this.reads += 1;
      // In pieces that split characters.
      const bytes = new TextEncoder().encode(text ?? "typed");
      for (let at = 0; at < bytes.length; at += 3) yield bytes.subarray(at, at + 3);
    },
  };
}

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof CliError)) throw new Error("It was not refused", { cause: error });
  expect(error.exitCode).toBe(EXIT.usage);
  return error.message;
}

describe("promptText", () => {
  test("joins the words of the command line", async () => {
    const input = stdin("not read");
    expect(await promptText(["Say", "hello world"], 0, input)).toBe("Say hello world");
    expect(input.reads).toBe(0);
  });

  test("takes stdin where nothing is said and stdin is no terminal", async () => {
    expect(await promptText([], 0, stdin("one ü€😀\ntwo\n"))).toBe("one ü€😀\ntwo");
    expect(await refusal(promptText([], 0, stdin(null)))).toContain("nothing to send");
  });

  test("takes stdin for '-', also from a terminal and after words", async () => {
    expect(await promptText(["-"], 0, stdin(null))).toBe("typed");
    expect(await promptText(["Review", "this", "-"], 0, stdin("diff\n"))).toBe(
      "Review this\n\ndiff",
    );
  });

  test("refuses nothing but blanks, unless there is an image", async () => {
    expect(await refusal(promptText([], 0, stdin(" \n")))).toContain("nothing to send");
    expect(await promptText([], 1, stdin(""))).toBe("");
  });

  test("takes a text of the limit and refuses one byte more", async () => {
    const text = "a".repeat(TEXT_BYTES_MAX);
    expect(await promptText([text], 0, stdin(null))).toHaveLength(TEXT_BYTES_MAX);
    expect(await refusal(promptText([`${text}a`], 0, stdin(null)))).toContain("1 MiB at most");
    expect(await promptText([], 0, stdin(`${text}\r\n`))).toBe(text);
    expect(await refusal(promptText([], 0, stdin(`${text}a`)))).toContain("1 MiB at most");
  });

  test("reads no more of an endless stdin than it could send", async () => {
    let given = 0;
    const endless: Stdin = {
      isTerminal: false,
      async *chunks() {
        for (;;) {
          given += 65_536;
          yield new Uint8Array(65_536).fill(0x61);
        }
      },
    };
    expect(await refusal(promptText([], 0, endless))).toContain("1 MiB at most");
    expect(given).toBeLessThanOrEqual(TEXT_BYTES_MAX + 65_536);
  });
});

describe("readImages", () => {
  test("reads files and labels them by their names", async () => {
    using directory = tempDir();
    const path = join(directory.path, "a b ü.JPG");
    writeFileSync(path, PNG);
    const [upload] = await readImages([path]);
    expect(upload?.mimeType).toBe("image/jpeg");
    expect(upload?.data).toEqual(Buffer.from(PNG));
  });

  test("names the file that is missing or too large", async () => {
    using directory = tempDir();
    const missing = join(directory.path, "missing.png");
    expect(await refusal(readImages([missing]))).toContain(missing);
    const large = join(directory.path, "large.png");
    writeFileSync(large, Buffer.concat([PNG, Buffer.alloc(IMAGE_BYTES_MAX - PNG.length)]));
    expect(await readImages([large])).toHaveLength(1);
    writeFileSync(large, Buffer.alloc(IMAGE_BYTES_MAX + 1));
    expect(await refusal(readImages([large]))).toContain("larger than 5 MiB");
  });

  test("names the file that is no image, or a damaged one", async () => {
    using directory = tempDir();
    const path = join(directory.path, "bad.png");
    writeFileSync(path, "no image");
    const message = await refusal(readImages([path]));
    expect(message).toBe(
      `The image '${path}' cannot be used: Must be a PNG, JPEG, GIF or WebP image`,
    );
    writeFileSync(path, PNG.subarray(0, 50));
    expect(await refusal(readImages([path]))).toContain("Cannot be decoded");
  });

  test("refuses one image too many", async () => {
    const paths = Array.from({ length: IMAGES_MAX + 1 }, () => "x.png");
    expect(await refusal(readImages(paths))).toContain(`${IMAGES_MAX} images at most`);
  });
});
