import { readBlockMetadata } from "./prompt.ts";
import type { Model, ModelRequest } from "./provider.ts";
import { type AdapterOptions, createSdkModel } from "./sdk_model.ts";
import { toSdkCall } from "./sdk_prompt.ts";

/** Lets the service keep what it has read up to the mark for a few minutes, which makes a turn's steps cheap. */
const CACHE_MARK = { anthropic: { cacheControl: { type: "ephemeral" } } };

/** Owns the adapter for Anthropic's Messages. Thinking goes back with its signature, and hidden thinking as it came. */
export function createAnthropicModel(options: AdapterOptions): Model {
  const { provider, name } = options;
  return createSdkModel(options, {
    load: async (fetch) => {
      const { createAnthropic } = await import("@ai-sdk/anthropic");
      return createAnthropic({
        baseURL: provider.baseUrl,
        // A local server may need none, but the SDK would look for one in the environment.
        apiKey: provider.key?.value ?? "none",
        fetch,
      }).languageModel(name);
    },
    open: async (model, request, signal) => {
      const { stream } = await model.doStream({
        ...toSdkCall(request, { thinking: "all", cacheMark: CACHE_MARK }),
        reasoning: thinkingOf(request),
        abortSignal: signal,
      });
      return stream;
    },
  });
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
