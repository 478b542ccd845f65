import type { ModelPart, ToolCallPart } from "../agent/provider.ts";
import { ProviderError } from "../agent/provider.ts";
import { SPILL_RUN_BYTES_MAX } from "../base/limits.ts";
import type { NewRow } from "../store/rows.ts";

/**
 * Owns one attempt at an answer: it collects the parts of a model's stream into transcript rows. Each block is a row
 * of its own and keeps the provisional identity it was streamed under.
 *
 * I1 An attempt has a message identity that no other attempt ever uses (sessions.md, Stream failures and recovery).
 * I2 Within a turn no two calls have the same id, whatever the model calls them; their results find them by it.
 */
export interface AnswerSink {
  delta(delta: {
    readonly kind: "text" | "thinking";
    readonly messageId: string;
    readonly liveId: string;
    readonly text: string;
  }): void;
  endBlock(liveId: string): void;
  /** Arguments of a call as they arrive. */
  preview(call: { readonly id: string; readonly name: string; readonly text: string }): void;
}

interface Block {
  readonly kind: "text" | "thinking";
  readonly liveId: string;
  text: string[];
  metadata?: unknown;
}

type Item =
  | { readonly kind: "block"; readonly block: Block }
  | { readonly kind: "call"; readonly call: ToolCallPart };

/**
 * An answer longer than this is a model that has lost its way. It lies beyond what a run may spill: output that is too
 * long for a backfill is unavailable until its commit, but does not end the turn.
 */
const ANSWER_CHARS_MAX = 2 * SPILL_RUN_BYTES_MAX;
const ITEMS_MAX = 4096;
/** Further identities need not be named: a model's commit retires all provisional output. */
const LIVE_IDS_NAMED_MAX = 256;

export class Answer {
  readonly messageId: string;
  readonly #sink: AnswerSink;
  readonly #takenCallIds: ReadonlySet<string>;
  /** The id that the next call of this name by the model will have. */
  readonly #callIds = new Map<string, string>();
  readonly #ownCallIds = new Set<string>();
  readonly #items: Item[] = [];
  readonly #open = new Map<string, Block>();
  #chars = 0;
  #finished: Extract<ModelPart, { type: "finished" }> | null = null;

  /** @param takenCallIds the ids of the turn's earlier calls */
  constructor(messageId: string, sink: AnswerSink, takenCallIds: ReadonlySet<string>) {
    this.messageId = messageId;
    this.#sink = sink;
    this.#takenCallIds = takenCallIds;
  }

  /** How the model ended, or `null` when the stream broke off. */
  get finished(): Extract<ModelPart, { type: "finished" }> | null {
    return this.#finished;
  }

  /** The provisional identities that the rows replace. */
  get liveIds(): string[] {
    const ids: string[] = [];
    for (const item of this.#items) if (item.kind === "block") ids.push(item.block.liveId);
    return ids.slice(0, LIVE_IDS_NAMED_MAX);
  }

  get calls(): ToolCallPart[] {
    const calls: ToolCallPart[] = [];
    for (const item of this.#items) if (item.kind === "call") calls.push(item.call);
    return calls;
  }

  /** All text that was said, without thinking. */
  get text(): string {
    return this.#items
      .map((item) =>
        item.kind === "block" && item.block.kind === "text" ? item.block.text.join("") : "",
      )
      .join("");
  }

  /** @throws {ProviderError} answer_too_long */
  take(part: ModelPart): void {
    switch (part.type) {
      // Internal: it takes no number and is never shown.
      case "started":
        break;
      case "block_started":
        this.#start(part.block, part.kind);
        break;
      case "delta":
        this.#extend(part.block, part.text);
        break;
      case "block_ended":
        this.#end(part.block, part.metadata);
        break;
      case "tool_preview":
        this.#sink.preview({ id: this.#callId(part.id), name: part.name, text: part.text });
        break;
      case "tool_call":
        this.#call(part);
        break;
      case "finished":
        this.#finished = part;
        break;
    }
  }

  /** The rows of the answer, in the order of the stream. Blocks without text leave none, unless they carry metadata. */
  rows(): NewRow[] {
    const rows: NewRow[] = [];
    for (const item of this.#items) {
      if (item.kind === "call") rows.push(this.#callRow(item.call));
      else if (isWorthKeeping(item.block)) rows.push(this.#blockRow(item.block));
    }
    return rows;
  }

  #start(name: string, kind: "text" | "thinking"): Block {
    const block: Block = { kind, liveId: `${this.messageId}:${this.#items.length}`, text: [] };
    this.#add({ kind: "block", block });
    this.#open.set(name, block);
    return block;
  }

  #extend(name: string, text: string): void {
    const block = this.#open.get(name) ?? this.#start(name, "text");
    this.#chars += text.length;
    if (this.#chars > ANSWER_CHARS_MAX) throw tooLong();
    block.text.push(text);
    this.#sink.delta({
      kind: block.kind,
      messageId: this.messageId,
      liveId: block.liveId,
      text,
    });
  }

  #end(name: string, metadata: unknown): void {
    const block = this.#open.get(name);
    if (block === undefined) return;
    this.#open.delete(name);
    if (metadata !== undefined) block.metadata = metadata;
    // One string a block instead of one a delta.
    block.text = [block.text.join("")];
    this.#sink.endBlock(block.liveId);
  }

  #call(part: Extract<ModelPart, { type: "tool_call" }>): void {
    const { id, name, input, metadata } = part;
    const call: ToolCallPart = {
      type: "tool_call",
      id: this.#callId(id),
      name,
      input,
      ...(metadata === undefined ? {} : { metadata }),
    };
    this.#add({ kind: "call", call });
    this.#callIds.delete(id);
  }

  #callId(given: string): string {
    const known = this.#callIds.get(given);
    if (known !== undefined) return known;
    const taken = (id: string): boolean => this.#takenCallIds.has(id) || this.#ownCallIds.has(id);
    const base = given === "" ? "call" : given;
    let id = base;
    for (let count = 2; taken(id); count += 1) id = `${base}_${count}`;
    this.#callIds.set(given, id);
    this.#ownCallIds.add(id);
    return id;
  }

  #add(item: Item): void {
    if (this.#items.length >= ITEMS_MAX) throw tooLong();
    this.#items.push(item);
  }

  #blockRow(block: Block): NewRow {
    return {
      role: block.kind === "text" ? "assistant" : "thinking",
      text: block.text.join("").toWellFormed(),
      messageId: this.messageId,
      liveId: block.liveId,
      ...(block.metadata === undefined ? {} : { metadata: block.metadata }),
    };
  }

  #callRow(call: ToolCallPart): NewRow {
    return {
      role: "tool_call",
      toolCallId: call.id,
      toolName: call.name,
      input: call.input,
      messageId: this.messageId,
      ...(call.metadata === undefined ? {} : { metadata: call.metadata }),
    };
  }
}

/** Redacted thinking has no text, but the provider wants it back. */
function isWorthKeeping(block: Block): boolean {
  return block.metadata !== undefined || block.text.some((text) => text !== "");
}

function tooLong(): ProviderError {
  return new ProviderError("answer_too_long", "The answer is longer than can be kept", {
    retryable: false,
  });
}
