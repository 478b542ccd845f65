/** A PNG of one pixel, as base64 (RFC 4648 §4). */
export const PNG_BASE64 =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/** The same as bytes. */
export const PNG = Uint8Array.fromBase64(PNG_BASE64);
