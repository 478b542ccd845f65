import type { CancelResult, Turn } from "../client/client.ts";
import type { Output } from "./output.ts";
import { blockedWords, printToolCall } from "./row_text.ts";
import type { Shown } from "./stream_follower.ts";
import { cutToWidth } from "./terminal_text.ts";

/**
 * Owns how `prompt` prints: the answer on stdout as it comes, progress on stderr; with `--json` one object a line
 * on stdout and no progress.
 */
export interface TurnPrinter {
  show(shown: Shown): void;
  session(sessionId: string, created: boolean): void;
  accepted(sessionId: string, operationId: string): void;
  result(result: PromptResult): void;
}

export type PromptOutcome =
  "completed" | "failed" | "interrupted" | "cancelled" | "timeout" | "uncertain";

export interface PromptResult {
  readonly outcome: PromptOutcome;
  readonly session_id: string | null;
  readonly operation_id: string | null;
  readonly turn_id: string | null;
  readonly error?: Turn["error"];
  /** How taking the submission back was answered. */
  readonly cancellation?: CancelResult | "unconfirmed";
}

export function createPrinter(
  output: Output,
  options: { readonly json: boolean; readonly quiet: boolean },
): TurnPrinter {
  return options.json ? new JsonPrinter(output) : new TextPrinter(output, options.quiet);
}

class JsonPrinter implements TurnPrinter {
  readonly #output: Output;
  /** The answer so far, by message: a turn has one before and one after each round of tools. */
  readonly #texts = new Map<string | null, string>();
  #blockEnded = false;

  constructor(output: Output) {
    this.#output = output;
  }

  show(shown: Shown): void {
    if (shown.type === "block_end") this.#blockEnded = true;
    if (shown.type === "check" || shown.type === "input") return;
    if (shown.type === "text") this.#append(shown.message_id, shown.text);
    if (shown.type === "retry") this.#texts.delete(shown.message_id);
    this.#output.stdout.json(shown);
  }

  session(sessionId: string, created: boolean): void {
    this.#output.stdout.json({ type: "session", session_id: sessionId, created });
  }

  accepted(sessionId: string, operationId: string): void {
    this.#output.stdout.json({
      type: "accepted",
      session_id: sessionId,
      operation_id: operationId,
    });
  }

  result(result: PromptResult): void {
    const text = [...this.#texts.values()].reduce(onNewLine, "");
    this.#output.stdout.json({ type: "result", ...result, text });
  }

  #append(messageId: string | null, text: string): void {
    const before = this.#texts.get(messageId) ?? "";
    this.#texts.set(messageId, this.#blockEnded ? onNewLine(before, text) : before + text);
    this.#blockEnded = false;
  }
}

class TextPrinter implements TurnPrinter {
  readonly #output: Output;
  readonly #quiet: boolean;
  #open: "text" | "thinking" | null = null;

  constructor(output: Output, quiet: boolean) {
    this.#output = output;
    this.#quiet = quiet;
  }

  show(shown: Shown): void {
    if (shown.type === "text") {
      this.#begin("text");
      this.#output.stdout.put(shown.text);
    } else if (shown.type === "thinking") {
      if (this.#quiet) return;
      this.#begin("thinking");
      this.#output.stderr.put(["faint", shown.text]);
    } else if (shown.type === "block_end") {
      this.#endBlock();
    } else {
      this.#progress(shown);
    }
  }

  session(sessionId: string, created: boolean): void {
    if (!created || this.#quiet) return;
    this.#output.stderr.line(["faint", `albedo: session ${sessionId}`]);
  }

  accepted(): void {
    // That the answer begins says as much.
  }

  result(): void {
    this.#endBlock();
  }

  #progress(shown: Exclude<Shown, { type: "text" | "thinking" | "block_end" }>): void {
    if (this.#quiet) return;
    this.#endBlock();
    const { stderr } = this.#output;
    switch (shown.type) {
      case "tool_started":
        printToolCall(stderr, shown.tool_name, shown.preview);
        return;
      case "tool_finished":
        if (shown.status === "ok") return;
        stderr.line(["yellow", `  ${shown.tool_name}: ${shown.status} `], this.#short(shown.text));
        return;
      case "retry":
        stderr.line(
          ["yellow", "albedo: "],
          `attempt ${shown.attempt} failed (${shown.code}: ${shown.message}); what it wrote is void. `,
          `Trying again in ${(shown.delay_ms / 1000).toFixed(1)} s`,
        );
        return;
      case "note":
        for (const line of shown.text.split("\n")) stderr.line(["faint", line]);
        return;
      case "blocked":
        stderr.line(["yellow", "albedo: "], blockedWords(shown.reason));
        stderr.line("  Ctrl-C takes the message back");
        return;
      case "turn_started":
      case "turn_finished":
      case "input":
      case "check":
        return;
    }
  }

  #begin(kind: "text" | "thinking"): void {
    if (this.#open !== kind) this.#endBlock();
    this.#open = kind;
  }

  #endBlock(): void {
    if (this.#open === "text") this.#output.stdout.endLine();
    if (this.#open === "thinking") this.#output.stderr.endLine();
    this.#open = null;
  }

  #short(text: string): string {
    const [first = ""] = text.trim().split("\n", 1);
    return cutToWidth(first, Math.max(20, this.#output.stderr.columns - 20));
  }
}

/** The texts one after the other as the screen has them, each beginning a line. */
function onNewLine(before: string, text: string): string {
  return before === "" || before.endsWith("\n") ? before + text : `${before}\n${text}`;
}
