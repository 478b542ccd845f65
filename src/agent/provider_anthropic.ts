import { readBlockMetadata } from "./prompt.ts";
import type { Model, ModelPart, ModelRequest } from "./provider.ts";
import type { AdapterOptions } from "./provider_openai.ts";
import { type SdkModel, type SdkStream, toSdkCall } from "./sdk_prompt.ts";
import { SdkFetch, streamSdkAnswer } from "./sdk_stream.ts";

/** Lets the service keep what it has read up to the mark for a few minutes, which makes a turn's steps cheap. */
const CACHE_MARK = { anthropic: { cacheControl: { type: "ephemeral" } } };

/**
 * Owns the adapter for Anthropic's Messages. Thinking goes back with its signature, and hidden thinking as it came.
 * The SDK is loaded at the first request, so that a start does not pay for it.
 */
export function createAnthropicModel(options: AdapterOptions): Model {
  return new AnthropicModel(options);
}

class AnthropicModel implements Model {
  readonly id: string;
  readonly #options: AdapterOptions;
  readonly #fetch = new SdkFetch();
  /** Kept, since making one builds its schemas anew. */
  #model: Promise<SdkModel> | null = null;

  constructor(options: AdapterOptions) {
    this.id = options.id;
    this.#options = options;
  }

  stream(request: ModelRequest): AsyncIterable<ModelPart> {
    return streamSdkAnswer(
      {
        ...this.#options,
        sdkFetch: this.#fetch,
        open: (given, signal) => this.#open(given, signal),
      },
      request,
    );
  }

  async #open(request: ModelRequest, signal: AbortSignal): Promise<SdkStream> {
    const model = await (this.#model ??= this.#load());
    const { stream } = await model.doStream({
      ...toSdkCall(request, { thinking: "all", cacheMark: CACHE_MARK }),
      reasoning: thinkingOf(request),
      abortSignal: signal,
    });
    return stream;
  }

  async #load(): Promise<SdkModel> {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    const { provider, name } = this.#options;
    return createAnthropic({
      baseURL: provider.baseUrl,
      // A local server may need none, but the SDK would look for one in the environment.
      apiKey: provider.key?.value ?? "none",
      fetch: this.#fetch.send as typeof fetch,
    }).languageModel(name);
  }
}

/**
 * How much to think. A turn that goes on behind calls must show the thinking that led to them, or think no more;
 * there is none to show where another provider made the calls.
 */
function thinkingOf(request: ModelRequest): "none" | "low" | "medium" | "high" {
  if (request.thinking === "off") return "none";
  const last = request.messages.findLast((message) => message.role === "assistant");
  if (last === undefined || !last.parts.some((part) => part.type === "tool_call")) {
    return request.thinking;
  }
  const hasShown = last.parts.some(
    (part) => part.type === "thinking" && readBlockMetadata(part.metadata) !== null,
  );
  return hasShown ? request.thinking : "none";
}
