import type { Provider } from "./model_providers.ts";
import type { Model } from "./provider.ts";
import { type AdapterOptions, createSdkModel } from "./sdk_model.ts";
import { type SdkCall, toSdkCall } from "./sdk_prompt.ts";

/**
 * Owns the adapter for endpoints that speak OpenAI's Chat Completions: OpenAI, OpenRouter, Ollama, llama.cpp,
 * vLLM, LM Studio.
 */
export function createOpenAiModel(options: AdapterOptions): Model {
  const { provider, name } = options;
  // Models that do not think refuse to be told how much; found out at the first refusal.
  let takesEffort = true;
  return createSdkModel(options, {
    load: async (fetch) => {
      const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
      const key = provider.key?.value ?? null;
      return createOpenAICompatible({
        name: provider.name,
        baseURL: provider.baseUrl,
        ...(key === null ? {} : { apiKey: key }),
        includeUsage: true,
        fetch,
        transformRequestBody: (body) => adaptBody(body, provider),
      }).chatModel(name);
    },
    open: async (model, request, signal) => {
      const call: SdkCall = {
        ...toSdkCall(request, { thinking: "current_turn", cacheMark: null }),
        abortSignal: signal,
      };
      if (request.thinking === "off" || !takesEffort) return (await model.doStream(call)).stream;
      try {
        return (await model.doStream({ ...call, reasoning: request.thinking })).stream;
      } catch (error) {
        if (!isRefusalOfEffort(error)) throw error;
        takesEffort = false;
        return (await model.doStream(call)).stream;
      }
    },
  });
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
