import type { BlockMetadata } from "./prompt.ts";
import type { ModelPart, Usage } from "./provider.ts";
import { ProviderError } from "./provider.ts";
import type { SdkPart } from "./sdk_prompt.ts";
import { SurrogateJoiner, wellFormed } from "./well_formed.ts";

/**
 * Owns how the SDKs' parts become ours. Blocks get names of their own, since an SDK may use one twice; a block
 * without any text is not shown, unless it carries what the provider wants back.
 */
const PREVIEW_CHARS_MAX = 400;
/** A look at arguments that grew by less than this is not worth an event. */
const PREVIEW_STEP_CHARS = 48;

interface Block {
  readonly kind: "text" | "thinking";
  readonly joiner: SurrogateJoiner;
  /** `null` until it is shown. */
  name: string | null;
  metadata: Record<string, Record<string, unknown>>;
}

interface Preview {
  readonly name: string;
  text: string;
  newChars: number;
}

type ProviderMetadata = Extract<SdkPart, { type: "reasoning-end" }>["providerMetadata"];

export class SdkTranslator {
  readonly #source: string;
  readonly #blocks = new Map<string, Block>();
  readonly #previews = new Map<string, Preview>();
  #blockCount = 0;
  #hasCalls = false;
  #hasFinished = false;

  /** @param source the provider's name, which its thinking bears */
  constructor(source: string) {
    this.#source = source;
  }

  get hasFinished(): boolean {
    return this.#hasFinished;
  }

  /** @throws what the stream says went wrong */
  *translate(part: SdkPart): Generator<ModelPart> {
    switch (part.type) {
      case "text-start":
      case "reasoning-start":
        this.#open(
          part.id,
          part.type === "text-start" ? "text" : "thinking",
          part.providerMetadata,
        );
        break;
      case "text-delta":
      case "reasoning-delta":
        yield* this.#delta(part);
        break;
      case "text-end":
      case "reasoning-end":
        yield* this.#close(part.id, part.providerMetadata);
        break;
      case "tool-input-start":
        this.#previews.set(part.id, { name: part.toolName, text: "", newChars: 0 });
        break;
      case "tool-input-delta":
        yield* this.#preview(part.id, part.delta);
        break;
      case "tool-call":
        yield* this.#call(part);
        break;
      case "finish":
        yield* this.#finish(part);
        break;
      case "error":
        throw part.error;
      case "tool-input-end":
      case "stream-start":
      case "response-metadata":
      case "raw":
      case "ping":
      case "custom":
      case "source":
      case "file":
      case "reasoning-file":
      case "tool-approval-request":
      case "tool-result":
        // Warnings, sources and what the provider ran itself: nothing a turn knows of.
        break;
    }
  }

  #open(id: string, kind: Block["kind"], metadata: ProviderMetadata): Block {
    const block: Block = { kind, joiner: new SurrogateJoiner(), name: null, metadata: {} };
    addMetadata(block, metadata);
    this.#blocks.set(id, block);
    return block;
  }

  *#delta(
    part: Extract<SdkPart, { type: "text-delta" | "reasoning-delta" }>,
  ): Generator<ModelPart> {
    const kind = part.type === "text-delta" ? "text" : "thinking";
    const block = this.#blocks.get(part.id) ?? this.#open(part.id, kind, undefined);
    addMetadata(block, part.providerMetadata);
    const text = block.joiner.push(part.delta);
    if (text === "") return;
    const name = yield* this.#show(block);
    yield { type: "delta", block: name, text };
  }

  *#close(id: string, metadata: ProviderMetadata): Generator<ModelPart> {
    const block = this.#blocks.get(id);
    if (block === undefined) return;
    this.#blocks.delete(id);
    addMetadata(block, metadata);
    const rest = block.joiner.end();
    const isCarrier = block.kind === "thinking" && Object.keys(block.metadata).length > 0;
    if (rest === "" && block.name === null && !isCarrier) return;
    const name = yield* this.#show(block);
    if (rest !== "") yield { type: "delta", block: name, text: rest };
    if (block.kind === "text") yield { type: "block_ended", block: name };
    else yield { type: "block_ended", block: name, metadata: this.#metadata(block.metadata) };
  }

  *#show(block: Block): Generator<ModelPart, string> {
    if (block.name !== null) return block.name;
    const name = String(this.#blockCount);
    this.#blockCount += 1;
    block.name = name;
    yield { type: "block_started", block: name, kind: block.kind };
    return name;
  }

  *#preview(id: string, delta: string): Generator<ModelPart> {
    const preview = this.#previews.get(id);
    if (preview === undefined) return;
    const isFirst = preview.text === "";
    preview.text = (preview.text + delta).slice(-PREVIEW_CHARS_MAX);
    preview.newChars += delta.length;
    if (!isFirst && preview.newChars < PREVIEW_STEP_CHARS) return;
    preview.newChars = 0;
    yield { type: "tool_preview", id, name: preview.name, text: preview.text.toWellFormed() };
  }

  *#call(part: Extract<SdkPart, { type: "tool-call" }>): Generator<ModelPart> {
    if (part.providerExecuted === true) return;
    this.#hasCalls = true;
    this.#previews.delete(part.toolCallId);
    yield {
      type: "tool_call",
      id: part.toolCallId,
      name: part.toolName,
      input: parseArguments(part.input),
      ...(part.providerMetadata === undefined
        ? {}
        : { metadata: this.#metadata(part.providerMetadata) }),
    };
  }

  *#finish(part: Extract<SdkPart, { type: "finish" }>): Generator<ModelPart> {
    const reason = finishReason(part.finishReason.unified, this.#hasCalls);
    // A stream may end without closing its blocks.
    for (const id of this.#blocks.keys()) yield* this.#close(id, undefined);
    this.#hasFinished = true;
    yield { type: "finished", reason, usage: toUsage(part.usage) };
  }

  #metadata(options: object): BlockMetadata {
    return Object.keys(options).length === 0
      ? { source: this.#source }
      : { source: this.#source, options: wellFormed(options) };
  }
}

/** A signature may come in several parts of the stream. */
function addMetadata(block: Block, metadata: ProviderMetadata): void {
  for (const [provider, values] of Object.entries(metadata ?? {})) {
    block.metadata[provider] = { ...block.metadata[provider], ...values };
  }
}

/** The value, or the text itself where it is no JSON. No text at all means no arguments. */
function parseArguments(text: string): unknown {
  if (text.trim() === "") return {};
  try {
    return wellFormed(JSON.parse(text));
  } catch {
    return text.toWellFormed();
  }
}

type SdkFinish = Extract<SdkPart, { type: "finish" }>;
type FinishReason = Extract<ModelPart, { type: "finished" }>["reason"];

/** @throws {ProviderError} stream_broken when the answer is not whole */
function finishReason(
  given: SdkFinish["finishReason"]["unified"] | "interrupted",
  hasCalls: boolean,
): FinishReason {
  switch (given) {
    case "stop":
    case "tool-calls":
      // Some services say `stop` behind calls.
      return hasCalls ? "tool_calls" : "stop";
    case "length":
      return "length";
    case "content-filter":
      return "content_filter";
    case "error":
    case "interrupted":
      throw new ProviderError("stream_broken", "The provider ended its answer with an error", {
        retryable: true,
      });
    case "other":
      return "other";
  }
}

function toUsage(usage: SdkFinish["usage"]): Usage {
  return {
    inputTokens: usage.inputTokens.total ?? null,
    outputTokens: usage.outputTokens.total ?? null,
    cachedInputTokens: usage.inputTokens.cacheRead ?? null,
    reasoningTokens: usage.outputTokens.reasoning ?? null,
  };
}
