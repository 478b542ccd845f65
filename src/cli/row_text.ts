import type { HistoryRow } from "../client/client.ts";
import type { Piece, Sink } from "./output.ts";
import { cutToWidth } from "./terminal_text.ts";

/** Owns how a transcript row reads in line form, for `show` and `attach`. */

/** Lines of a tool's output that are shown. */
const RESULT_LINES = 3;

export function printRow(sink: Sink, row: HistoryRow): void {
  switch (row.role) {
    case "user":
      printUser(sink, row);
      return;
    case "assistant":
      printBlock(sink, row.text ?? "", (line) => [line]);
      return;
    case "thinking":
      printBlock(sink, row.text ?? "", (line) => [["faint", line]]);
      return;
    case "tool_call":
      printToolCall(sink, row.tool_name ?? "tool", inputText(row.tool_input));
      return;
    case "tool_result":
      printToolResult(sink, row.tool_status ?? "ok", row.text ?? "");
      return;
    case "continuation":
      sink.line(["bold", "> "], ["faint", "(go on)"]);
      return;
    case "compaction":
      sink.line(["faint", "— older rows were summed up —"]);
      return;
    case "note":
      printBlock(sink, row.text ?? "", (line) => [["faint", line]]);
      return;
  }
}

export function printToolCall(sink: Sink, name: string, preview: string): void {
  const words = cutToWidth(inputText(preview), Math.max(20, sink.columns - 20));
  sink.line(["cyan", `• ${name} `], ["faint", words]);
}

export function printToolResult(sink: Sink, status: string, text: string): void {
  const lines = text.trimEnd().split("\n");
  if (status !== "ok") sink.line(["yellow", `  ${status}`]);
  for (const line of lines.slice(0, RESULT_LINES)) {
    if (line !== "") sink.line(["faint", `  ${cutToWidth(line, Math.max(20, sink.columns - 4))}`]);
  }
  if (lines.length > RESULT_LINES) {
    sink.line(["faint", `  … ${lines.length - RESULT_LINES} more lines`]);
  }
}

function printUser(sink: Sink, row: HistoryRow): void {
  const lines = (row.display_text ?? "").split("\n");
  for (const [index, line] of lines.entries()) {
    sink.line(["bold", index === 0 ? `> ${line}` : `  ${line}`]);
  }
  for (const image of row.images ?? []) {
    const { mime_type, width, height, bytes } = image;
    sink.line(["faint", `  [${mime_type}, ${width} × ${height}, ${bytes} bytes]`]);
  }
}

/** Every line is styled by itself, so that no terminal pads or wraps the whole as one. */
function printBlock(sink: Sink, text: string, style: (line: string) => Piece[]): void {
  for (const line of text.trimEnd().split("\n")) sink.line(...style(line));
}

/** A tool's arguments in words: the texts alone where they are an object, as most are. */
export function inputText(input: unknown): string {
  if (input === undefined || input === null) return "";
  if (typeof input === "string") return parsedText(input);
  if (typeof input !== "object" || Array.isArray(input)) return JSON.stringify(input);
  return Object.values(input)
    .map((value) => (typeof value === "string" ? value : JSON.stringify(value)))
    .join(" ");
}

/** A preview is JSON, which may have been cut. */
function parsedText(preview: string): string {
  if (!preview.startsWith("{")) return preview;
  try {
    return inputText(JSON.parse(preview));
  } catch {
    return preview;
  }
}

const BLOCKED_WORDS: Readonly<Record<string, string>> = {
  workspace_missing:
    "the session's folder, which `albedo sessions` names, is not there; it goes on when the folder is back",
  model_unavailable: "the session's model cannot be had; it goes on when the settings offer it",
  storage_failure: "the disk takes nothing at the moment; it is tried again every 15 s",
};

/** Why a queue waits, and what would help (contract.md, Pending inputs, turns and cancellation). */
export function blockedWords(reason: string): string {
  return `waiting: ${BLOCKED_WORDS[reason] ?? reason} (${reason})`;
}
