import { IMAGE_BYTES_MAX } from "../base/limits.ts";
import { Problem } from "../wire/problem.ts";

/**
 * Owns uploads before they are stored: strict base64, a look at the content (which decides, never the label), and
 * the version a model gets (contract.md, Admission and receipts; What others' users ran into).
 *
 * An image that a model would refuse makes every later request of its session fail. So one that does not decode
 * is refused at the door, and what a model gets is always a PNG or a JPEG of a size that all of them take.
 */
export interface ImageInfo {
  readonly mimeType: string;
  readonly width: number;
  readonly height: number;
}

export interface FittedImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

/** More would take hundreds of megabytes to decode, however small the file. */
const PIXELS_MAX = 50_000_000;
/** The largest edge that models look at without scaling down themselves. */
const FITTED_EDGE_PX_MAX = 1568;
const FITTED_BYTES_MAX = 1_500_000;
const JPEG_QUALITIES = [85, 70, 50];

const MIME_TYPES: Partial<Record<Bun.Image.Format, string>> = {
  png: "image/png",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
};

/** Base64 has four characters for three bytes. */
const BASE64_CHARS_MAX = Math.ceil(IMAGE_BYTES_MAX / 3) * 4;

/**
 * Decodes base64 (RFC 4648 §4) strictly: padding is required, whitespace and other characters are refused.
 *
 * @param pointer where the text stood in the request (a JSON pointer), for the refusal
 * @throws {Problem} invalid_request; payload_too_large past `IMAGE_BYTES_MAX`
 */
export function decodeImage(base64: string, pointer: string): Uint8Array {
  if (base64.length > BASE64_CHARS_MAX) throw tooLarge(pointer);
  let bytes: Uint8Array;
  try {
    // The built-in decoder skips whitespace even when it is strict.
    if (/\s/.test(base64)) throw new SyntaxError("Whitespace");
    bytes = Uint8Array.fromBase64(base64, { alphabet: "base64", lastChunkHandling: "strict" });
  } catch {
    throw refusal(pointer, "Must be base64 with padding and without whitespace");
  }
  if (bytes.length > IMAGE_BYTES_MAX) throw tooLarge(pointer);
  if (bytes.length === 0) throw refusal(pointer, "Must not be empty");
  return bytes;
}

/**
 * Says what an upload is, by its content. It is decoded once, so that a damaged one is refused here.
 *
 * @throws {Problem} invalid_request
 */
export async function inspectImage(bytes: Uint8Array, pointer: string): Promise<ImageInfo> {
  try {
    const { width, height, format } = await open(bytes).metadata();
    const mimeType = MIME_TYPES[format];
    if (mimeType === undefined) throw refusal(pointer, "Must be a PNG, JPEG, GIF or WebP image");
    await open(bytes).resize(1, 1).png().bytes();
    return { mimeType, width, height };
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw refusal(pointer, reasonOf(error));
  }
}

/**
 * The version of an upload that a model gets, or `null` where the original does.
 *
 * @throws when the bytes are no image
 */
export async function fitImage(bytes: Uint8Array): Promise<FittedImage | null> {
  const { width, height, format } = await open(bytes).metadata();
  const isPortable = format === "png" || format === "jpeg";
  const isSmall = Math.max(width, height) <= FITTED_EDGE_PX_MAX && bytes.length <= FITTED_BYTES_MAX;
  if (isPortable && isSmall) return null;
  if (format !== "jpeg") {
    const png = await fitted(bytes).png().bytes();
    if (png.length <= FITTED_BYTES_MAX) return { mimeType: "image/png", bytes: png };
  }
  let smallest: Uint8Array | null = null;
  for (const quality of JPEG_QUALITIES) {
    smallest = await fitted(bytes).jpeg({ quality }).bytes();
    if (smallest.length <= FITTED_BYTES_MAX) break;
  }
  return smallest === null ? null : { mimeType: "image/jpeg", bytes: smallest };
}

function fitted(bytes: Uint8Array): Bun.Image {
  return open(bytes).resize(FITTED_EDGE_PX_MAX, FITTED_EDGE_PX_MAX, {
    fit: "inside",
    withoutEnlargement: true,
  });
}

function open(bytes: Uint8Array): Bun.Image {
  return new Bun.Image(bytes, { maxPixels: PIXELS_MAX });
}

function reasonOf(error: unknown): string {
  switch ((error as { code?: unknown }).code) {
    case "ERR_IMAGE_TOO_MANY_PIXELS":
      return `Must have at most ${PIXELS_MAX} pixels`;
    case "ERR_IMAGE_UNKNOWN_FORMAT":
    case "ERR_IMAGE_FORMAT_UNSUPPORTED":
      return "Must be a PNG, JPEG, GIF or WebP image";
    default:
      return "Cannot be decoded";
  }
}

function refusal(pointer: string, message: string): Problem {
  return new Problem("invalid_request", "An image cannot be used", {
    fields: [{ pointer, detail: message }],
  });
}

function tooLarge(pointer: string): Problem {
  return new Problem("payload_too_large", "An image is too large", {
    fields: [{ pointer, detail: `Must have at most ${IMAGE_BYTES_MAX} bytes` }],
  });
}
