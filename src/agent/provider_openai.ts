import type { Clock } from "../base/clock.ts";
import type { Fetch } from "./fetch.ts";
import type { Provider } from "./model_providers.ts";
import type { Model, ModelPart, ModelRequest } from "./provider.ts";
import { type SdkCall, type SdkModel, type SdkStream, toSdkCall } from "./sdk_prompt.ts";
import { SdkFetch, streamSdkAnswer } from "./sdk_stream.ts";

/** What an adapter needs to know of a model. */
export interface AdapterOptions {
  /** `provider/model`. */
  readonly id: string;
  /** The model's name at its provider. */
  readonly name: string;
  readonly provider: Provider;
  readonly clock: Clock;
  readonly fetch: Fetch;
}

/**
 * Owns the adapter for endpoints that speak OpenAI's Chat Completions: OpenAI, OpenRouter, Ollama, llama.cpp,
 * vLLM, LM Studio. The SDK is loaded at the first request, so that a start does not pay for it.
 */
export function createOpenAiModel(options: AdapterOptions): Model {
  return new OpenAiModel(options);
}

class OpenAiModel implements Model {
  readonly id: string;
  readonly #options: AdapterOptions;
  /** Models that do not think refuse to be told how much; found out at the first refusal. */
  #takesEffort = true;
  readonly #fetch = new SdkFetch();
  /** Kept, since making one builds its schemas anew: a millisecond there and another at the first chunks. */
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
    const call: SdkCall = {
      ...toSdkCall(request, { thinking: "current_turn", cacheMark: null }),
      abortSignal: signal,
    };
    if (request.thinking === "off" || !this.#takesEffort)
      return (await model.doStream(call)).stream;
    try {
      return (await model.doStream({ ...call, reasoning: request.thinking })).stream;
    } catch (error) {
      if (!isRefusalOfEffort(error)) throw error;
      this.#takesEffort = false;
      return (await model.doStream(call)).stream;
    }
  }

  async #load(): Promise<SdkModel> {
    const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
    const { provider, name } = this.#options;
    const key = provider.key?.value ?? null;
    return createOpenAICompatible({
      name: provider.name,
      baseURL: provider.baseUrl,
      ...(key === null ? {} : { apiKey: key }),
      includeUsage: true,
      fetch: this.#fetch.send as typeof fetch,
      transformRequestBody: (body) => adaptBody(body, provider),
    }).chatModel(name);
  }
}

/** OpenAI itself takes the bound on its output by another name than all who copied it. */
function adaptBody(body: Record<string, unknown>, provider: Provider): Record<string, unknown> {
  if (body.max_tokens === undefined || URL.parse(provider.baseUrl)?.hostname !== "api.openai.com") {
    return body;
  }
  const { max_tokens, ...rest } = body;
  return { ...rest, max_completion_tokens: max_tokens };
}

function isRefusalOfEffort(error: unknown): boolean {
  const { statusCode, message } = error as { statusCode?: unknown; message?: unknown };
  if (statusCode !== 400 && statusCode !== 422) return false;
  return typeof message === "string" && /reason|think|effort/i.test(message);
}
