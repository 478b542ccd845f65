import { MIB } from "../base/limits.ts";
import type { StoredRow } from "../store/rows.ts";
import { type DraftMessage, fitMessages, type ReadImage } from "./prompt_budget.ts";
import type { ModelMessage } from "./provider.ts";
import { INTERRUPTED_TOOL_OUTPUT } from "./tool.ts";
import { wellFormed } from "./well_formed.ts";

/**
 * Owns how a stored transcript becomes a model's messages.
 *
 * I1 Roles alternate, the first message and the last one are not the assistant's.
 * I2 Each call has its result right behind it, and each result its call; a call that was cut off says so. Ids of
 *    calls are unique in a request and made of letters that every provider takes.
 * I3 Thinking goes back only to the provider that wrote it.
 * I4 The whole request stays in a byte budget (`prompt_budget.ts`).
 */
export interface PromptSource {
  /** The transcript since the last compaction, in order. */
  readonly rows: readonly StoredRow[];
  /** The name of the provider that is asked: the part of the model's id before the slash. */
  readonly provider: string;
  /** The version of an upload that a model gets. */
  readonly readImage: ReadImage;
  /** @default {PROMPT_BYTES_MAX} */
  readonly bytesMax?: number;
}

/** Services take 20 to 32 MB a request; base64 and the tools' schemas need some of it. */
export const PROMPT_BYTES_MAX = 16 * MIB;

/** What the model is told where nobody said anything. */
const NUDGE = "Continue.";
const NO_TEXT = "(This message is empty.)";

export function buildMessages(source: PromptSource): readonly ModelMessage[] {
  const assembly = new Assembly(source.rows, source.provider);
  for (const row of source.rows) assembly.add(row);
  return fitMessages(assembly.end(), source.readImage, source.bytesMax ?? PROMPT_BYTES_MAX);
}

/** What an adapter puts into a block's metadata, so that I3 can be held. */
export interface BlockMetadata {
  /** The provider that wrote the block. */
  readonly source: string;
  readonly options?: unknown;
}

export function readBlockMetadata(metadata: unknown): BlockMetadata | null {
  if (typeof metadata !== "object" || metadata === null) return null;
  const { source, options } = metadata as { source?: unknown; options?: unknown };
  return typeof source === "string" ? { source, options } : null;
}

class Assembly {
  readonly #provider: string;
  readonly #results: ReadonlyMap<StoredRow, StoredRow>;
  readonly #usedCallIds = new Set<string>();
  #messages: DraftMessage[] = [];
  #openCalls: { readonly id: string; readonly row: StoredRow }[] = [];
  #openMessageId: string | null = null;
  #isNudgeDue = false;

  constructor(rows: readonly StoredRow[], provider: string) {
    this.#provider = provider;
    this.#results = matchResults(rows);
  }

  add(row: StoredRow): void {
    switch (row.role) {
      case "user":
        this.#addUser(row);
        break;
      case "continuation":
        this.#isNudgeDue = true;
        break;
      case "assistant":
      case "thinking":
      case "tool_call":
        this.#addAssistant(row);
        break;
      case "tool_result":
        this.#closeCalls();
        break;
      case "note":
        this.#addUserText(`<note>\n${row.text ?? ""}\n</note>`);
        break;
      case "compaction":
        this.#messages = [];
        this.#openCalls = [];
        this.#addUserText(
          `This is a summary of the conversation so far:\n<summary>\n${row.text ?? ""}\n</summary>`,
        );
        break;
    }
  }

  end(): DraftMessage[] {
    this.#closeCalls();
    const last = this.#messages.at(-1);
    if (last === undefined || last.role === "assistant" || this.#isNudgeDue) this.#nudge();
    return this.#messages;
  }

  #addUser(row: StoredRow): void {
    const images = row.display?.images ?? [];
    // A command is a row without anything for the model.
    if (row.text === null && images.length === 0) return;
    for (const image of images) {
      this.#push("user", { type: "image_slot", imageId: image.image_id });
    }
    const text = row.text ?? "";
    if (text.trim() !== "") this.#addUserText(text);
    else if (images.length === 0) this.#addUserText(NO_TEXT);
    this.#isNudgeDue = false;
  }

  #addAssistant(row: StoredRow): void {
    if (this.#openCalls.length > 0 && row.messageId !== this.#openMessageId) this.#closeCalls();
    if (this.#isNudgeDue || this.#messages.length === 0) this.#nudge();
    const metadata = readBlockMetadata(row.metadata);
    const own = metadata?.source === this.#provider ? { metadata } : {};
    if (row.role === "tool_call") {
      const id = this.#uniqueCallId(row.toolCallId ?? "call");
      this.#openCalls.push({ id, row });
      this.#openMessageId = row.messageId;
      const input = wellFormed(row.toolInput);
      this.#push("assistant", { type: "tool_call", id, name: row.toolName ?? "", input, ...own });
      return;
    }
    const text = (row.text ?? "").toWellFormed();
    if (row.role === "assistant") {
      // Blank text is refused by some services and says nothing.
      if (text.trim() !== "") this.#push("assistant", { type: "text", text });
    } else if (metadata !== null && own.metadata !== undefined) {
      this.#push("assistant", { type: "thinking", text, metadata });
    }
  }

  #addUserText(text: string): void {
    this.#push("user", { type: "text", text: text.toWellFormed() });
  }

  #nudge(): void {
    this.#isNudgeDue = false;
    if (this.#messages.at(-1)?.role !== "user") this.#addUserText(NUDGE);
  }

  /** Puts the results of the calls that were made behind them, in the order of the calls. */
  #closeCalls(): void {
    const calls = this.#openCalls;
    this.#openCalls = [];
    for (const { id, row } of calls) {
      const result = this.#results.get(row);
      this.#push("tool", {
        type: "tool_result",
        id,
        name: row.toolName ?? "",
        output: resultText(result),
        isError: result?.toolStatus !== "ok",
      });
    }
  }

  #push<R extends DraftMessage["role"]>(
    role: R,
    part: Extract<DraftMessage, { role: R }>["parts"][number],
  ): void {
    // Whatever is not a result of the open calls comes behind their results.
    if (role === "user") this.#closeCalls();
    const last = this.#messages.at(-1);
    if (last !== undefined && last.role === role) {
      (last.parts as (typeof part)[]).push(part);
    } else {
      this.#messages.push({ role, parts: [part] } as unknown as DraftMessage);
    }
  }

  #uniqueCallId(id: string): string {
    const plain = id.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60) || "call";
    let unique = plain;
    for (let count = 2; this.#usedCallIds.has(unique); count += 1) unique = `${plain}-${count}`;
    this.#usedCallIds.add(unique);
    return unique;
  }
}

/** The result of each call: the first one behind it that bears its id and belongs to no earlier call. */
function matchResults(rows: readonly StoredRow[]): ReadonlyMap<StoredRow, StoredRow> {
  const waiting = new Map<string, StoredRow[]>();
  const results = new Map<StoredRow, StoredRow>();
  for (const row of rows) {
    const id = row.toolCallId;
    if (id === null) continue;
    if (row.role === "tool_call") {
      const calls = waiting.get(id);
      if (calls === undefined) waiting.set(id, [row]);
      else calls.push(row);
    } else if (row.role === "tool_result") {
      const call = waiting.get(id)?.shift();
      if (call !== undefined) results.set(call, row);
    }
  }
  return results;
}

function resultText(result: StoredRow | undefined): string {
  const text = (result?.text ?? "").toWellFormed();
  if (result === undefined || result.toolStatus === "interrupted") {
    if (text.startsWith(INTERRUPTED_TOOL_OUTPUT)) return text;
    return `${INTERRUPTED_TOOL_OUTPUT} The call was stopped before it ended. ${text}`.trim();
  }
  return text === "" ? "(no output)" : text;
}

export interface SystemPromptSource {
  readonly workspace: string;
  /** `process.platform`. */
  readonly platform: string;
  /** The wall clock; only the day is used, so that the text stays the same for a provider's cache. */
  readonly now: number;
  /** What the session was told; stands in front. */
  readonly instructions: string | null;
  readonly toolNames: readonly string[];
}

/** The instructions of a turn. */
export function systemPrompt(source: SystemPromptSource): string {
  const day = new Date(source.now).toISOString().slice(0, 10);
  const parts = [
    source.instructions?.trim() ?? "",
    "You are albedo, an agent that works for a person on their own machine. Do what they ask, whole and no more; " +
      "say what you did in few words, and say so when something did not work.",
    `The workspace is ${source.workspace}; relative paths start there. The platform is ${source.platform}. ` +
      `Today is ${day}.`,
  ];
  if (source.toolNames.length > 0) {
    parts.push(
      `You have these tools: ${source.toolNames.join(", ")}. Look before you change: read a file before you edit ` +
        "it, and use glob and grep to find your way. Prefer edit to write for a file that exists. A tool that fails " +
        "says why; mend the cause. Output that is cut says where the rest is.",
    );
  }
  return parts
    .filter((part) => part !== "")
    .join("\n\n")
    .toWellFormed();
}
