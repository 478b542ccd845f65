import type { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { readBlockMetadata } from "./prompt.ts";
import type { ModelMessage, ModelRequest, ThinkingPart, ToolCallPart } from "./provider.ts";

/**
 * Owns how a request is said in the terms of the SDKs, which share one model interface.
 */
export type SdkModel = ReturnType<ReturnType<typeof createOpenAICompatible>["chatModel"]>;
export type SdkCall = Parameters<SdkModel["doStream"]>[0];
export type SdkStream = Awaited<ReturnType<SdkModel["doStream"]>>["stream"];
export type SdkPart = SdkStream extends ReadableStream<infer Part> ? Part : never;

type SdkMessage = SdkCall["prompt"][number];
type SdkOptions = NonNullable<SdkMessage["providerOptions"]>;
type AssistantContent = Extract<SdkMessage, { role: "assistant" }>["content"];

export interface SdkPromptOptions {
  /**
   * Which thinking goes back: all of it, or only that of the turn that goes on. Services without signatures want
   * to see it between the calls of one turn, and some refuse it later.
   */
  readonly thinking: "all" | "current_turn";
  /** Marks up to where a service may keep what it has read; `null` where it has no such marks. */
  readonly cacheMark: SdkOptions | null;
}

export function toSdkCall(
  request: ModelRequest,
  options: SdkPromptOptions,
): Pick<SdkCall, "prompt" | "tools" | "maxOutputTokens"> {
  const prompt: SdkMessage[] = [];
  const mark = options.cacheMark === null ? {} : { providerOptions: options.cacheMark };
  if (request.system !== "") prompt.push({ role: "system", content: request.system, ...mark });
  const turnStart = request.messages.findLastIndex((message) => message.role === "user");
  for (const [index, message] of request.messages.entries()) {
    const keepThinking = options.thinking === "all" || index > turnStart;
    const isLast = index === request.messages.length - 1;
    prompt.push({ ...toSdkMessage(message, keepThinking), ...(isLast ? mark : {}) });
  }
  return {
    prompt,
    ...(request.tools.length === 0 ? {} : { tools: request.tools.map(toSdkTool) }),
    ...(request.maxOutputTokens === null ? {} : { maxOutputTokens: request.maxOutputTokens }),
  };
}

function toSdkTool(tool: ModelRequest["tools"][number]): NonNullable<SdkCall["tools"]>[number] {
  const { name, description, parameters } = tool;
  return { type: "function", name, description, inputSchema: parameters };
}

function toSdkMessage(message: ModelMessage, keepThinking: boolean): SdkMessage {
  switch (message.role) {
    case "user":
      return {
        role: "user",
        content: message.parts.map((part) =>
          part.type === "text"
            ? { type: "text", text: part.text }
            : {
                type: "file",
                mediaType: part.mimeType,
                data: { type: "data", data: part.data },
              },
        ),
      };
    case "assistant":
      return { role: "assistant", content: toSdkContent(message.parts, keepThinking) };
    case "tool":
      return {
        role: "tool",
        content: message.parts.map((part) => ({
          type: "tool-result",
          toolCallId: part.id,
          toolName: part.name,
          output: { type: part.isError ? "error-text" : "text", value: part.output },
        })),
      };
  }
}

function toSdkContent(
  parts: Extract<ModelMessage, { role: "assistant" }>["parts"],
  keepThinking: boolean,
): AssistantContent {
  const content: AssistantContent = [];
  for (const part of parts) {
    if (part.type === "text") content.push({ type: "text", text: part.text });
    else if (part.type === "tool_call") {
      content.push({
        type: "tool-call",
        toolCallId: part.id,
        toolName: part.name,
        input: toArguments(part.input),
        ...providerOptionsOf(part),
      });
    } else if (keepThinking) {
      content.push({ type: "reasoning", text: part.text, ...providerOptionsOf(part) });
    }
  }
  return content;
}

function providerOptionsOf(part: ThinkingPart | ToolCallPart): { providerOptions?: SdkOptions } {
  const options = readBlockMetadata(part.metadata)?.options;
  return options === undefined ? {} : { providerOptions: options as SdkOptions };
}

/** Services take only an object back, whatever their model wrote. */
function toArguments(input: unknown): Record<string, unknown> {
  if (typeof input === "object" && input !== null && !Array.isArray(input)) {
    return input as Record<string, unknown>;
  }
  return { invalid_arguments: typeof input === "string" ? input : (JSON.stringify(input) ?? "") };
}
