/**
 * Owns what a turn knows of a model: a request in, a stream of parts out. Adapters (`provider_*.ts`) translate to
 * and from an SDK; retries are the turn's own (contract.md, Turns, models, tools).
 */

export interface TextPart {
  readonly type: "text";
  readonly text: string;
}
export interface ImagePart {
  readonly type: "image";
  readonly mimeType: string;
  readonly data: Uint8Array;
}
export interface ThinkingPart {
  readonly type: "thinking";
  readonly text: string;
  /** What the provider needs back to accept the thinking again (a signature); opaque, JSON. */
  readonly metadata?: unknown;
}
export interface ToolCallPart {
  readonly type: "tool_call";
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
  readonly metadata?: unknown;
}
export interface ToolResultPart {
  readonly type: "tool_result";
  readonly id: string;
  readonly name: string;
  readonly output: string;
  readonly isError: boolean;
}

export type ModelMessage =
  | { readonly role: "user"; readonly parts: readonly (TextPart | ImagePart)[] }
  | {
      readonly role: "assistant";
      readonly parts: readonly (TextPart | ThinkingPart | ToolCallPart)[];
    }
  | { readonly role: "tool"; readonly parts: readonly ToolResultPart[] };

export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments. */
  readonly parameters: Record<string, unknown>;
}

export interface ModelRequest {
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ToolDefinition[];
  readonly thinking: "off" | "low" | "medium" | "high";
  readonly maxOutputTokens: number | null;
  readonly signal: AbortSignal;
}

export interface Usage {
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  readonly cachedInputTokens: number | null;
  readonly reasoningTokens: number | null;
}

/**
 * One part of an answer. Blocks are contiguous pieces of text or thinking; `block` names one within the answer.
 * A lone surrogate never leaves an adapter: a pair that was split over two deltas is joined.
 */
export type ModelPart =
  /** The provider has answered with headers; internal, never published. */
  | { readonly type: "started" }
  | { readonly type: "block_started"; readonly block: string; readonly kind: "text" | "thinking" }
  | { readonly type: "delta"; readonly block: string; readonly text: string }
  | { readonly type: "block_ended"; readonly block: string; readonly metadata?: unknown }
  /** Arguments of a call as they arrive: their newest few hundred characters, for a person to look at. */
  | {
      readonly type: "tool_preview";
      readonly id: string;
      readonly name: string;
      readonly text: string;
    }
  /** A complete call. `input` is the parsed JSON, or the raw string where it was not valid JSON. */
  | {
      readonly type: "tool_call";
      readonly id: string;
      readonly name: string;
      readonly input: unknown;
      readonly metadata?: unknown;
    }
  | {
      readonly type: "finished";
      readonly reason: "stop" | "tool_calls" | "length" | "content_filter" | "other";
      readonly usage: Usage;
    };

/** A model that can be asked. */
export interface Model {
  /** `provider/model`. */
  readonly id: string;
  /**
   * Streams one answer; ends after `finished`.
   *
   * @throws {ProviderError} also in mid-stream; rejects with the signal's reason when it aborts
   */
  stream(request: ModelRequest): AsyncIterable<ModelPart>;
}

/** A failure of a provider. `retryable` decides (408, 409, 429, 5xx, overload, broken streams). */
export class ProviderError extends Error {
  override readonly name = "ProviderError";
  /** Stable: `rate_limited`, `overloaded`, `unavailable`, `stream_broken`, `authentication`, `bad_request`, … */
  readonly code: string;
  readonly retryable: boolean;
  /** What the server asked for in `Retry-After`, milliseconds. */
  readonly retryAfterMs: number | null;

  constructor(
    code: string,
    message: string,
    options: { retryable: boolean; retryAfterMs?: number | null; cause?: unknown },
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.retryable = options.retryable;
    this.retryAfterMs = options.retryAfterMs ?? null;
  }
}
