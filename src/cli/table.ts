import type { Piece, Sink, Style } from "./output.ts";
import { cutToWidth, safeLine } from "./terminal_text.ts";

/** Owns columns of text. The last column takes what width is left, on a terminal; elsewhere nothing is cut. */
export interface Cell {
  readonly text: string;
  readonly style?: Style;
}

const GAP = "  ";

export function printTable(
  sink: Sink,
  head: readonly string[],
  rows: readonly (readonly Cell[])[],
): void {
  const cells = rows.map((row) => row.map((cell) => ({ ...cell, text: safeLine(cell.text) })));
  const widths = head.map((title, column) =>
    Math.max(
      Bun.stringWidth(title),
      ...cells.map((row) => Bun.stringWidth(row[column]?.text ?? "")),
    ),
  );
  const last = head.length - 1;
  if (sink.isTerminal) {
    const used = widths.slice(0, last).reduce((sum, width) => sum + width + GAP.length, 0);
    widths[last] = Math.max(8, Math.min(widths[last] ?? 0, sink.columns - used));
  }
  const titles = head.map((text): Cell => ({ text, style: "faint" }));
  for (const row of [titles, ...cells]) {
    sink.line(...row.flatMap((cell, column) => pieces(cell, widths[column] ?? 0, column === last)));
  }
}

function pieces(cell: Cell, width: number, isLast: boolean): Piece[] {
  const text = isLast ? cutToWidth(cell.text, width) : cell.text;
  const piece: Piece = cell.style === undefined ? text : [cell.style, text];
  if (isLast) return [piece];
  return [piece, " ".repeat(Math.max(0, width - Bun.stringWidth(text))) + GAP];
}

/** How long ago, in the largest unit that is not nothing. */
export function ago(nowMs: number, thenMs: number): string {
  const seconds = Math.max(0, Math.round((nowMs - thenMs) / 1000));
  if (seconds < 60) return `${seconds}s ago`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h ago`;
  return `${Math.floor(hours / 24)}d ago`;
}
