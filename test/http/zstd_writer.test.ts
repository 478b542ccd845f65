import { describe, expect, test } from "bun:test";
import { createZstdDecompress } from "node:zlib";
import fc from "fast-check";
import type { FrameCoder } from "../../src/http/sse_writer.ts";
import { createZstdCoder, createZstdStreamCoder } from "../../src/http/zstd_writer.ts";

/**
 * Goal: every frame can be decoded the moment it was coded, and a stream that was ended is a whole zstd frame.
 * Method: both coders against the decoder of the platform and, where it is installed, the `zstd` tool.
 */
const CODERS: readonly (readonly [string, () => FrameCoder])[] = [
  ["on the handle", createZstdCoder],
  ["on the stream", createZstdStreamCoder],
];

/** Bytes that no coder can make smaller, always the same ones. */
function noise(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = 0x9e3779b9;
  for (let index = 0; index < length; index += 1) {
    state = (Math.imul(state ^ (state >>> 15), 0x85ebca6b) + index) | 0;
    bytes[index] = state >>> 13;
  }
  return bytes;
}

class Decoder {
  readonly #stream = createZstdDecompress();
  readonly #parts: Buffer[] = [];

  constructor() {
    this.#stream.on("data", (part: Buffer) => this.#parts.push(part));
  }

  /** All that can be decoded once these bytes have come. */
  async push(bytes: Uint8Array): Promise<Buffer> {
    await new Promise<void>((resolve, reject) => {
      this.#stream.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
    await new Promise<void>((resolve) => setImmediate(resolve));
    return Buffer.concat(this.#parts);
  }

  close(): void {
    this.#stream.close();
  }
}

describe.each(CODERS)("a coder %s", (_name, create) => {
  test("makes each frame decodable at once, whatever its size", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 3000 }), { minLength: 1, maxLength: 12 }),
        async (frames) => {
          const coder = create();
          const decoder = new Decoder();
          let sent = Buffer.alloc(0);
          for (const frame of frames) {
            sent = Buffer.concat([sent, frame]);
            const decoded = await decoder.push(await coder.encode(frame));
            expect(decoded.equals(sent)).toBe(true);
          }
          coder.close();
          decoder.close();
        },
      ),
      { numRuns: 40 },
    );
  });

  test("codes a frame that is larger than any buffer and cannot be made smaller", async () => {
    const coder = create();
    const decoder = new Decoder();
    const frames = [noise(1_048_576), noise(65_536), noise(131_072), noise(1)];
    let sent = Buffer.alloc(0);
    for (const frame of frames) {
      sent = Buffer.concat([sent, frame]);
      const decoded = await decoder.push(await coder.encode(frame));
      expect(decoded.length).toBe(sent.length);
      expect(decoded.equals(sent)).toBe(true);
    }
    coder.close();
    decoder.close();
  });

  test("ends as one whole frame that stands alone", async () => {
    const coder = create();
    const parts: Uint8Array[] = [];
    const sent: Buffer[] = [];
    for (let index = 0; index < 100; index += 1) {
      const frame = Buffer.from(`id: g:${index}\nevent: batch\ndata: {"cursor":${index}}\n\n`);
      sent.push(frame);
      parts.push(await coder.encode(frame));
    }
    parts.push(await coder.end());
    coder.close();
    const coded = Buffer.concat(parts);
    expect(Buffer.from(Bun.zstdDecompressSync(coded)).equals(Buffer.concat(sent))).toBe(true);
    const tool = Bun.which("zstd");
    if (tool !== null) {
      const decoded = Bun.spawnSync([tool, "-dqc"], { stdin: coded });
      expect(decoded.exitCode).toBe(0);
      expect(decoded.stdout.equals(Buffer.concat(sent))).toBe(true);
    }
  });

  test("is harmless when it is closed twice or asked after it", async () => {
    const coder = create();
    await coder.encode(Buffer.from("x"));
    coder.close();
    coder.close();
    expect((await coder.encode(Buffer.from("y"))).length).toBe(0);
    expect((await coder.end()).length).toBe(0);
    const unused = create();
    expect((await unused.end()).length).toBe(0);
    unused.close();
  });
});

test("both coders give the same bytes", async () => {
  const [one, other] = [createZstdCoder(), createZstdStreamCoder()];
  for (let index = 0; index < 50; index += 1) {
    const frame = Buffer.from(`data: {"text":"word ${index % 7} and ${index}"}\n\n`);
    expect(await one.encode(frame)).toEqual(new Uint8Array(await other.encode(frame)));
  }
  one.close();
  other.close();
});

test("small deltas take a fourth of their bytes or less", async () => {
  const coder = createZstdCoder();
  const words = "the daemon keeps what it accepted and says so only when it is on disk".split(" ");
  let plain = 0;
  let coded = 0;
  for (let index = 0; index < 1000; index += 1) {
    const text = `${words[(index * 7) % words.length]} ${words[(index * 11 + 3) % words.length]} `;
    const data = {
      generation: "01970000-0000-7000-8000-000000000001",
      cursor: index,
      events: [{ seq: index, kind: "text_delta", message_id: "m1", live_id: "m1.0", text }],
    };
    const frame = Buffer.from(
      `id: ${data.generation}:${index}\nevent: batch\ndata: ${JSON.stringify(data)}\n\n`,
    );
    plain += frame.length;
    coded += (await coder.encode(frame)).length;
  }
  coder.close();
  expect(plain / coded).toBeGreaterThan(4);
});
