/**
 * Owns what may reach a terminal. Text from a model, a tool or another client can hold escape sequences that
 * move the cursor, rename the window or answer for the person; on a terminal every control character is shown
 * instead of sent. Each character is judged alone, so a sequence that is split over two deltas gets no further.
 */

/** C0 without tab and newline, DEL, C1, and the marks that reorder text (Unicode TR 36 §2). */
const UNSAFE_REGEXP =
  // oxlint-disable-next-line no-control-regex -- these are the characters to be kept out
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** The text with control characters made visible; tab and newline stay, the return of a CRLF goes. */
export function safeForTerminal(text: string): string {
  return text.replaceAll(UNSAFE_REGEXP, visible);
}

/** The same for a place that is one line: a table cell, a title, a notice. */
export function safeLine(text: string): string {
  return safeForTerminal(text.replaceAll(/\s*[\r\n]+\s*/g, " ").replaceAll("\t", " "));
}

function visible(character: string): string {
  const code = character.charCodeAt(0);
  if (character === "\r") return "";
  // The pictures of the control characters stand in order from U+2400.
  if (code < 0x20) return String.fromCharCode(0x24_00 + code);
  if (code === 0x7f) return "\u2421";
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

/** A text as one line, cut to a width in terminal columns. */
export function cutToWidth(text: string, columns: number): string {
  return Bun.sliceAnsi(safeLine(text), 0, columns, { ellipsis: "…" });
}
