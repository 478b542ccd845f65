import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { deflateSync } from "node:zlib";
import { decodeImage, fitImage, inspectImage } from "../../src/agent/images.ts";
import { IMAGE_BYTES_MAX } from "../../src/base/limits.ts";
import { Problem } from "../../src/wire/problem.ts";

// Goal: uploads are PNG, JPEG, GIF or WebP "checked by content, not by the label", and "one image too large" never
// makes later requests fail (contract.md). Method: real images, some made by hand so that they lie.

const POINTER = "/images/0/data";

/** A PNG of one colour, or of noise that does not compress. */
function png(width: number, height: number, noise = false): Uint8Array {
  const raw = Buffer.alloc((width * 3 + 1) * height);
  if (noise) {
    let state = 1;
    for (let index = 0; index < raw.length; index += 1) {
      // Xorshift: noise that is the same at every run.
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      raw[index] = index % (width * 3 + 1) === 0 ? 0 : state & 0xff;
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    pngChunk("IHDR", header),
    pngChunk("IDAT", deflateSync(raw)),
    pngChunk("IEND", Buffer.alloc(0)),
  ]);
}

function pngChunk(type: string, data: Uint8Array): Uint8Array {
  const body = Buffer.concat([Buffer.from(type), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  const check = Buffer.alloc(4);
  check.writeUInt32BE(Bun.hash.crc32(body));
  return Buffer.concat([length, body, check]);
}

/** The smallest GIF there is: one pixel. */
const GIF = Buffer.from("R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=", "base64");

async function problemOf(run: () => unknown): Promise<Problem> {
  try {
    await run();
  } catch (error) {
    expect(error).toBeInstanceOf(Problem);
    return error as Problem;
  }
  throw new Error("Was accepted");
}

describe("decodeImage()", () => {
  test("gives the bytes of every base64 text", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 100 }), (bytes) => {
        expect(decodeImage(Buffer.from(bytes).toString("base64"), POINTER)).toEqual(bytes);
      }),
    );
  });

  test.each([
    "",
    "AAA",
    "AAAA=",
    "AA=A",
    "AAA-",
    "AAA_",
    "AA==\n",
    " AAAA",
    "AAAA\nAAAA",
    "AAAA\u00a0",
    "data:image/png;base64,AAAA",
    // Bits that stand for nothing.
    "AB==",
    "Ä===",
  ])("refuses %j with its place", async (text) => {
    const problem = await problemOf(() => decodeImage(text, POINTER));
    expect(problem.code).toBe("invalid_request");
    expect(problem.fields[0]?.pointer).toBe(POINTER);
  });

  test("takes the largest size and refuses one byte more", async () => {
    const largest = new Uint8Array(IMAGE_BYTES_MAX);
    expect(decodeImage(largest.toBase64(), POINTER)).toHaveLength(IMAGE_BYTES_MAX);
    const problem = await problemOf(() =>
      decodeImage(new Uint8Array(IMAGE_BYTES_MAX + 1).toBase64(), POINTER),
    );
    expect(problem.code).toBe("payload_too_large");
  });
});

describe("inspectImage()", () => {
  test("says format and size by the content", async () => {
    const image = png(30, 20);
    const jpeg = await new Bun.Image(image).jpeg().bytes();
    const webp = await new Bun.Image(image).webp().bytes();
    for (const [bytes, mimeType, width] of [
      [image, "image/png", 30],
      [jpeg, "image/jpeg", 30],
      [webp, "image/webp", 30],
      [GIF, "image/gif", 1],
    ] as const) {
      expect(await inspectImage(bytes, POINTER)).toMatchObject({ mimeType, width });
    }
  });

  test.each([
    ["text", Buffer.from("<svg xmlns='http://www.w3.org/2000/svg'/>")],
    ["a bare signature", Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])],
    ["half a PNG", png(100, 100, true).subarray(0, 2000)],
    ["a damaged PNG", png(10, 10).map((byte, index) => (index === 45 ? byte ^ 0xff : byte))],
    [
      "a BMP",
      Buffer.from(
        "Qk1GAAAAAAAAADYAAAAoAAAAAgAAAAIAAAABABgAAAAAABAAAAATCwAAEwsAAAAAAAAAAAAA/////wAA/////wAA",
        "base64",
      ),
    ],
    ["zeros", new Uint8Array(1000)],
  ])("refuses %s", async (_, bytes) => {
    const problem = await problemOf(() => inspectImage(bytes, POINTER));
    expect(problem.code).toBe("invalid_request");
    expect(problem.fields[0]?.pointer).toBe(POINTER);
  });

  test("refuses a small file that claims to be huge, before it is decoded", async () => {
    const bomb = Buffer.from(png(10, 10));
    bomb.writeUInt32BE(8_000, 16);
    bomb.writeUInt32BE(8_000, 20);
    bomb.writeUInt32BE(Bun.hash.crc32(bomb.subarray(12, 29)), 29);
    const problem = await problemOf(() => inspectImage(bomb, POINTER));
    expect(problem.fields[0]?.detail).toContain("pixels");
  });
});

describe("fitImage()", () => {
  test("leaves a PNG or JPEG of a usual size as it is", async () => {
    const image = png(1568, 10);
    expect(await fitImage(image)).toBeNull();
    expect(await fitImage(await new Bun.Image(image).jpeg().bytes())).toBeNull();
  });

  test("makes a wide one smaller and keeps its shape", async () => {
    const fitted = await fitImage(png(3136, 400));
    expect(fitted?.mimeType).toBe("image/png");
    expect(await new Bun.Image(fitted!.bytes).metadata()).toMatchObject({
      width: 1568,
      height: 200,
    });
  });

  test("makes a heavy one lighter", async () => {
    const heavy = png(1200, 1000, true);
    expect(heavy.length).toBeGreaterThan(1_500_000);
    const fitted = await fitImage(heavy);
    expect(fitted?.mimeType).toBe("image/jpeg");
    expect(fitted!.bytes.length).toBeLessThanOrEqual(1_500_000);
    expect(await new Bun.Image(fitted!.bytes).metadata()).toMatchObject({
      width: 1200,
      height: 1000,
      format: "jpeg",
    });
  });

  test("turns what not every model takes into PNG or JPEG", async () => {
    const webp = await new Bun.Image(png(30, 20)).webp().bytes();
    for (const bytes of [GIF, webp]) {
      const fitted = await fitImage(bytes);
      expect(fitted?.mimeType).toBe("image/png");
      expect((await new Bun.Image(fitted!.bytes).metadata()).format).toBe("png");
    }
  });
});
