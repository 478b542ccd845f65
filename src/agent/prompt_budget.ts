import { KIB } from "../base/limits.ts";
import type {
  ImagePart,
  ModelMessage,
  TextPart,
  ThinkingPart,
  ToolCallPart,
  ToolResultPart,
} from "./provider.ts";

/**
 * Owns that a request stays in its byte budget (contract.md, What others' users ran into). What gives way, in this
 * order, the oldest first: images become a note, outputs of tools are shortened, then arguments of calls, then
 * texts; what the person said last stays whole.
 */
export interface ImageSlot {
  readonly type: "image_slot";
  readonly imageId: string;
}

export type ReadImage = (
  imageId: string,
) => { readonly mimeType: string; readonly bytes: Uint8Array } | null;

export type DraftMessage =
  | { readonly role: "user"; readonly parts: (TextPart | ImageSlot)[] }
  | { readonly role: "assistant"; readonly parts: (TextPart | ThinkingPart | ToolCallPart)[] }
  | { readonly role: "tool"; readonly parts: ToolResultPart[] };

type DraftPart = DraftMessage["parts"][number];

const IMAGE_LEFT_OUT =
  "[An image that was here is left out, since the request would be too large.]";
const IMAGE_MISSING = "[An image that was here is no longer stored.]";

/** More images are refused by services, whatever their size. */
const IMAGES_MAX = 90;
const SHORT_OUTPUT_BYTES = 1 * KIB;
const SHORT_TEXT_BYTES = 4 * KIB;
/** What a part costs besides its text: names, quotes, escapes. */
const PART_BYTES = 100;

export function fitMessages(
  messages: DraftMessage[],
  readImage: ReadImage,
  bytesMax: number,
): readonly ModelMessage[] {
  const bytes = shortenTexts(messages, bytesMax);
  return placeImages(messages, readImage, bytesMax - bytes);
}

/** Shortens until the texts fit, and says how much they take. */
function shortenTexts(messages: DraftMessage[], bytesMax: number): number {
  let bytes = 0;
  for (const message of messages) for (const part of message.parts) bytes += partBytes(part);
  if (bytes <= bytesMax) return bytes;
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  for (const shorten of [shortenOutput, shortenInput, shortenText]) {
    for (const [index, message] of messages.entries()) {
      if (index === lastUser) continue;
      for (const [place, part] of message.parts.entries()) {
        if (bytes <= bytesMax) return bytes;
        const shorter = shorten(part);
        if (shorter === null) continue;
        bytes += partBytes(shorter) - partBytes(part);
        (message.parts as DraftPart[])[place] = shorter;
      }
    }
  }
  return bytes;
}

function shortenOutput(part: DraftPart): DraftPart | null {
  if (part.type !== "tool_result" || part.output.length <= SHORT_OUTPUT_BYTES) return null;
  return { ...part, output: middleCut(part.output, SHORT_OUTPUT_BYTES) };
}

function shortenInput(part: DraftPart): DraftPart | null {
  if (part.type !== "tool_call") return null;
  const json = JSON.stringify(part.input) ?? "";
  if (json.length <= SHORT_OUTPUT_BYTES) return null;
  return { ...part, input: { shortened: middleCut(json, SHORT_OUTPUT_BYTES) } };
}

function shortenText(part: DraftPart): DraftPart | null {
  if (part.type !== "text" || part.text.length <= SHORT_TEXT_BYTES) return null;
  return { ...part, text: middleCut(part.text, SHORT_TEXT_BYTES) };
}

function middleCut(text: string, charsMax: number): string {
  const half = Math.floor(charsMax / 2);
  const left = text.length - 2 * half;
  return `${text.slice(0, half)}\n[… ${left} characters left out …]\n${text.slice(-half)}`.toWellFormed();
}

function partBytes(part: DraftPart): number {
  switch (part.type) {
    case "text":
      return PART_BYTES + Buffer.byteLength(part.text);
    case "thinking":
      return PART_BYTES + Buffer.byteLength(part.text) + jsonBytes(part.metadata);
    case "tool_call":
      return PART_BYTES + jsonBytes(part.input) + jsonBytes(part.metadata);
    case "tool_result":
      return PART_BYTES + Buffer.byteLength(part.output);
    case "image_slot":
      return PART_BYTES;
  }
}

function jsonBytes(value: unknown): number {
  return value === undefined ? 0 : Buffer.byteLength(JSON.stringify(value) ?? "");
}

/** Puts images in from the newest back; the first that does not fit takes all older ones with it. */
function placeImages(
  messages: readonly DraftMessage[],
  readImage: ReadImage,
  bytesLeft: number,
): readonly ModelMessage[] {
  let left = bytesLeft;
  let places = IMAGES_MAX;
  const placed: ModelMessage[] = [];
  for (const message of messages.toReversed()) {
    if (message.role !== "user") {
      placed.push(message);
      continue;
    }
    const parts: (TextPart | ImagePart)[] = [];
    for (const part of message.parts.toReversed()) {
      if (part.type === "text") {
        parts.push(part);
        continue;
      }
      const image = places > 0 ? readImage(part.imageId) : null;
      if (image === null) {
        parts.push({ type: "text", text: places > 0 ? IMAGE_MISSING : IMAGE_LEFT_OUT });
        continue;
      }
      const bytes = Math.ceil(image.bytes.length / 3) * 4;
      if (bytes > left) {
        places = 0;
        parts.push({ type: "text", text: IMAGE_LEFT_OUT });
        continue;
      }
      left -= bytes;
      places -= 1;
      parts.push({ type: "image", mimeType: image.mimeType, data: image.bytes });
    }
    placed.push({ role: "user", parts: parts.reverse() });
  }
  return placed.reverse();
}
