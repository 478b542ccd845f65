import { ACTIVE_INLINE_BYTES_MAX, ACTIVE_SEGMENTS_MAX } from "../base/limits.ts";
import type { ActiveOutput as ActiveOutputWire, ActiveSegment } from "../wire/event.ts";
import type { Delta } from "./frame.ts";
import type { SpillContent, SpillRun } from "./spill.ts";

/**
 * Owns the projection of unfinished output: what a client that attaches now has missed of the running answer
 * (sessions.md, Stream failures and recovery).
 *
 * I1 It is fed with each delta when that has its number, never rebuilt from the ring.
 * I2 Inline content is at most `ACTIVE_INLINE_BYTES_MAX` bytes as JSON over all segments, and therefore at most as
 *    many raw bytes: JSON never makes a text shorter. The segment that would pass that spills as a whole.
 * I3 At most `ACTIVE_SEGMENTS_MAX` segments; output beyond is in none, and `incomplete` says so.
 * I4 A segment holds all of its content (inline or by reference) or is `unavailable`; never a part of it.
 */
type Content =
  | { readonly kind: "inline"; readonly text: string; readonly encodedBytes: number }
  | { readonly kind: "spilled"; readonly content: SpillContent }
  | { readonly kind: "unavailable" };

interface Segment {
  readonly liveId: string;
  readonly messageId: string;
  readonly kind: Delta["kind"];
  content: Content;
}

const UNAVAILABLE: Content = { kind: "unavailable" };

export class ActiveOutput {
  readonly #segments = new Map<string, Segment>();
  #inlineBytes = 0;
  #incomplete = false;
  #run: SpillRun | null = null;

  /** A turn begins: what it spills counts against this run. */
  begin(run: SpillRun): void {
    this.retire();
    this.#run = run;
  }

  append(delta: Delta): void {
    const segment = this.#segments.get(delta.liveId) ?? this.#addSegment(delta);
    if (segment === null) return;
    segment.content = this.#extend(segment.content, delta.text);
    if (segment.content.kind === "unavailable") this.#incomplete = true;
  }

  /** All that is provisional is over: committed, or of no attempt any more. */
  retire(): void {
    this.#segments.clear();
    this.#inlineBytes = 0;
    this.#incomplete = false;
    this.#run?.retire();
  }

  /** What a reset shows. References are fixed here: later deltas do not extend them. */
  capture(): ActiveOutputWire {
    const segments: ActiveSegment[] = [];
    for (const segment of this.#segments.values()) segments.push(captureSegment(segment));
    const incomplete = this.#incomplete || segments.some((segment) => segment.unavailable === true);
    return { segments, incomplete };
  }

  #addSegment(delta: Delta): Segment | null {
    if (this.#segments.size >= ACTIVE_SEGMENTS_MAX) {
      this.#incomplete = true;
      return null;
    }
    const segment: Segment = {
      liveId: delta.liveId,
      messageId: delta.messageId,
      kind: delta.kind,
      content: { kind: "inline", text: "", encodedBytes: 0 },
    };
    this.#segments.set(delta.liveId, segment);
    return segment;
  }

  #extend(content: Content, text: string): Content {
    if (content.kind === "unavailable") return content;
    if (content.kind === "spilled") return content.content.append(text) ? content : UNAVAILABLE;
    const encodedBytes = encodedLength(text);
    if (this.#inlineBytes + encodedBytes <= ACTIVE_INLINE_BYTES_MAX) {
      this.#inlineBytes += encodedBytes;
      return {
        kind: "inline",
        text: content.text + text,
        encodedBytes: content.encodedBytes + encodedBytes,
      };
    }
    this.#inlineBytes -= content.encodedBytes;
    const spilled = this.#run?.open() ?? null;
    if (spilled === null || !spilled.append(content.text + text)) return UNAVAILABLE;
    return { kind: "spilled", content: spilled };
  }
}

function captureSegment({ liveId, messageId, kind, content }: Segment): ActiveSegment {
  const identity = { live_id: liveId, message_id: messageId, kind };
  if (content.kind === "inline") return { ...identity, text: content.text };
  const reference = content.kind === "spilled" ? content.content.capture() : null;
  return reference === null
    ? { ...identity, unavailable: true }
    : { ...identity, content: reference };
}

/** UTF-8 bytes of a text inside of a JSON string. */
export function encodedLength(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}
