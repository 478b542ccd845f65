/**
 * Owns how values become text in a column: well-formed (contract.md, What others' users ran into: a lone surrogate),
 * and how long text is cut to a size.
 */

/** JSON without a lone surrogate, in keys of ours and values of others. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "string" ? part.toWellFormed() : part,
  );
}

export function fromJson(text: string): unknown {
  return JSON.parse(text);
}

/** The UTF-8 bytes of the value as JSON. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/**
 * The longest beginning of the text that takes at most `bytesMax` UTF-8 bytes as the inside of a JSON string; never
 * half of a surrogate pair.
 */
export function cutText(text: string, bytesMax: number): string {
  // No character takes more than six bytes, so most texts need no count.
  if (text.length * 6 <= bytesMax) return text;
  let bytes = 0;
  for (let index = 0; index < text.length;) {
    const codePoint = text.codePointAt(index) ?? 0;
    bytes += encodedBytes(codePoint);
    if (bytes > bytesMax) return text.slice(0, index);
    index += codePoint > 0xffff ? 2 : 1;
  }
  return text;
}

/** What `JSON.stringify` and UTF-8 make of one code point. */
function encodedBytes(codePoint: number): number {
  if (codePoint === 0x22 || codePoint === 0x5c) return 2;
  if (codePoint < 0x20) return codePoint >= 0x08 && codePoint <= 0x0d && codePoint !== 0x0b ? 2 : 6;
  if (codePoint < 0x80) return 1;
  if (codePoint < 0x800) return 2;
  // A lone surrogate is written as an escape.
  if (codePoint >= 0xd800 && codePoint <= 0xdfff) return 6;
  return codePoint > 0xffff ? 4 : 3;
}
