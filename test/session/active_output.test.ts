import { expect, test } from "bun:test";
import * as fc from "fast-check";
import { ACTIVE_INLINE_BYTES_MAX, ACTIVE_SEGMENTS_MAX, KIB } from "../../src/base/limits.ts";
import { ActiveOutput, encodedLength } from "../../src/session/active_output.ts";
import type { Delta } from "../../src/session/frame.ts";
import { SpillRun } from "../../src/session/spill.ts";
import { SpillFile } from "../../src/session/spill_file.ts";
import type { ContentReference } from "../../src/wire/event.ts";

/**
 * Goal: "The projection retains at most 64 KiB of raw inline text and emits at most 64 KiB of encoded inline content
 * across its segments. Larger output spills" (sessions.md). Method: a run that spills into memory, so that what was
 * streamed can be compared with what is shown.
 */
class MemoryFile extends SpillFile {
  text = "";
  broken = false;

  constructor(id: string) {
    super({ sessionId: "s", contentId: id, path: "/nowhere" });
  }

  override append(text: string): boolean {
    if (this.broken) return false;
    this.text += text;
    return true;
  }
}

function bench() {
  const files: MemoryFile[] = [];
  const retired: string[] = [];
  let refusing = false;
  const run = new SpillRun({
    create: () => {
      if (refusing) return null;
      const file = new MemoryFile(`f${files.length}`);
      files.push(file);
      return file;
    },
    take: () => true,
    reference: (file): ContentReference | null =>
      file instanceof MemoryFile && !file.broken
        ? { content_id: file.contentId, snapshot: "x", bytes: file.text.length, expires_at: 0 }
        : null,
    retire: (file) => void retired.push(file.contentId),
    bytesMax: Number.MAX_SAFE_INTEGER,
  });
  const output = new ActiveOutput();
  output.begin(run);
  return { output, files, retired, refuse: () => (refusing = true) };
}

function delta(liveId: string, text: string, kind: Delta["kind"] = "text"): Delta {
  return { liveId, messageId: "m", kind, text };
}

test("ActiveOutput shows blocks in order, with identity and kind", () => {
  const { output } = bench();
  output.append(delta("a", "hm", "thinking"));
  output.append(delta("b", "he"));
  output.append(delta("b", "llo"));
  expect(output.capture()).toEqual({
    segments: [
      { live_id: "a", message_id: "m", kind: "thinking", text: "hm" },
      { live_id: "b", message_id: "m", kind: "text", text: "hello" },
    ],
    incomplete: false,
  });
});

test("ActiveOutput keeps exactly 64 KiB inline and spills the segment that passes it", () => {
  const { output, files } = bench();
  output.append(delta("a", "x".repeat(ACTIVE_INLINE_BYTES_MAX)));
  expect(output.capture().segments[0]?.text?.length).toBe(ACTIVE_INLINE_BYTES_MAX);
  output.append(delta("a", "y"));
  expect(output.capture().segments[0]).toMatchObject({
    content: { content_id: "f0", bytes: ACTIVE_INLINE_BYTES_MAX + 1 },
  });
  expect(files[0]?.text.endsWith("xy")).toBe(true);
  output.append(delta("b", "z".repeat(ACTIVE_INLINE_BYTES_MAX)));
  expect(output.capture().segments[1]?.text?.length).toBe(ACTIVE_INLINE_BYTES_MAX);
});

test("ActiveOutput bounds encoded bytes, which may be six times the raw ones", () => {
  const { output, files } = bench();
  output.append(delta("a", "\u0001".repeat(12 * KIB)));
  expect(files.length).toBe(1);
  output.append(delta("b", '"'.repeat(32 * KIB)));
  expect(files.length).toBe(1);
  expect(encodedLength('"'.repeat(32 * KIB))).toBe(ACTIVE_INLINE_BYTES_MAX);
});

test("ActiveOutput holds 256 segments and says when there are more", () => {
  const { output } = bench();
  for (let index = 0; index < ACTIVE_SEGMENTS_MAX; index += 1)
    output.append(delta(`${index}`, "x"));
  expect(output.capture().incomplete).toBe(false);
  output.append(delta("more", "x"));
  const { segments, incomplete } = output.capture();
  expect([segments.length, incomplete]).toEqual([ACTIVE_SEGMENTS_MAX, true]);
});

test("ActiveOutput makes a segment unavailable when it cannot spill, and goes on with the others", () => {
  for (const failure of ["open", "append", "capture"] as const) {
    const { output, files, refuse } = bench();
    if (failure === "open") refuse();
    output.append(delta("a", "x".repeat(ACTIVE_INLINE_BYTES_MAX + 1)));
    if (files[0] !== undefined) files[0].broken = true;
    if (failure === "append") output.append(delta("a", "more"));
    output.append(delta("b", "small"));
    const { segments, incomplete } = output.capture();
    expect(segments).toEqual([
      { live_id: "a", message_id: "m", kind: "text", unavailable: true },
      { live_id: "b", message_id: "m", kind: "text", text: "small" },
    ]);
    expect(incomplete).toBe(true);
  }
});

test("ActiveOutput.retire() lets go of everything provisional and of the run's files", () => {
  const { output, retired } = bench();
  output.append(delta("a", "x".repeat(ACTIVE_INLINE_BYTES_MAX + 1)));
  output.append(delta("b", "x".repeat(ACTIVE_INLINE_BYTES_MAX)));
  output.retire();
  expect(output.capture()).toEqual({ segments: [], incomplete: false });
  expect(retired).toEqual(["f0"]);
  output.append(delta("c", "x".repeat(ACTIVE_INLINE_BYTES_MAX)));
  expect(output.capture().segments[0]?.text?.length).toBe(ACTIVE_INLINE_BYTES_MAX);
});

test("property: what is shown, inline or spilled, is what was streamed, within the bounds", () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          block: fc.nat(4),
          unit: fc.constantFrom("a", '"', "é", "😀", "\u0001"),
          times: fc.integer({ min: 1, max: 9000 }),
        }),
        { maxLength: 30 },
      ),
      (pieces) => {
        const { output, files } = bench();
        const streamed = new Map<string, string>();
        for (const { block, unit, times } of pieces) {
          const text = unit.repeat(times);
          output.append(delta(`${block}`, text));
          streamed.set(`${block}`, (streamed.get(`${block}`) ?? "") + text);
        }
        const { segments } = output.capture();
        let inline = 0;
        const shown = new Map<string, string>();
        for (const { live_id, text, content } of segments) {
          if (text !== undefined) inline += encodedLength(text);
          const spilled = files.find((file) => file.contentId === content?.content_id)?.text;
          shown.set(live_id, text ?? spilled ?? "lost");
        }
        expect(inline).toBeLessThanOrEqual(ACTIVE_INLINE_BYTES_MAX);
        expect(shown).toEqual(streamed);
      },
    ),
    { numRuns: 100 },
  );
});
