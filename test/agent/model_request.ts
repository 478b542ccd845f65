import type { ModelPart, ModelRequest } from "../../src/agent/provider.ts";
import type { Model } from "../../src/agent/provider.ts";

/** A request with what a test does not care about filled in. */
export function modelRequest(given: Partial<ModelRequest> = {}): ModelRequest {
  return {
    system: "Be brief.",
    messages: [{ role: "user", parts: [{ type: "text", text: "Hello" }] }],
    tools: [],
    thinking: "off",
    maxOutputTokens: null,
    signal: new AbortController().signal,
    ...given,
  };
}

export const WEATHER_TOOL = {
  name: "weather",
  description: "Says the weather.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

/** Every part until the stream ends or throws. */
export async function collect(
  model: Model,
  request: ModelRequest,
): Promise<{ readonly parts: ModelPart[]; readonly error: unknown }> {
  const parts: ModelPart[] = [];
  try {
    for await (const part of model.stream(request)) parts.push(part);
  } catch (error) {
    return { parts, error };
  }
  return { parts, error: null };
}

/** What a block's deltas say together, by block. */
export function blockTexts(parts: readonly ModelPart[]): { kind: string; text: string }[] {
  const blocks = new Map<string, { kind: string; text: string }>();
  for (const part of parts) {
    if (part.type === "block_started") blocks.set(part.block, { kind: part.kind, text: "" });
    if (part.type === "delta") blocks.get(part.block)!.text += part.text;
  }
  return [...blocks.values()];
}

export function ofType<T extends ModelPart["type"]>(
  parts: readonly ModelPart[],
  type: T,
): Extract<ModelPart, { type: T }>[] {
  return parts.filter((part) => part.type === type) as Extract<ModelPart, { type: T }>[];
}
