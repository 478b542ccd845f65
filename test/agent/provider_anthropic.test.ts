import { describe, expect, test } from "bun:test";
import { buildMessages } from "../../src/agent/prompt.ts";
import type { Model, ModelPart } from "../../src/agent/provider.ts";
import { createAnthropicModel } from "../../src/agent/provider_anthropic.ts";
import { systemClock } from "../../src/base/clock.ts";
import { type ModelAnswer, ModelServer, typedEvents } from "../support/model_server.ts";
import { blockTexts, collect, modelRequest, ofType, WEATHER_TOOL } from "./model_request.ts";
import { storedRow } from "../support/stored_row.ts";

// Goal: the adapter holds what provider.ts promises against Anthropic's Messages, and thinking goes back as it
// came. Method: a server on this machine that sends the events of the service's own documentation.

const KEY = "sk-ant-api03-0123456789abcdef0123456789abcdef";
const MODEL = "claude-sonnet-4-5";

function modelOf(server: ModelServer, name = MODEL): Model {
  return createAnthropicModel({
    id: `anthropic/${name}`,
    name,
    provider: {
      name: "anthropic",
      kind: "anthropic",
      baseUrl: `${server.url}/v1`,
      key: { variable: "ANTHROPIC_API_KEY", value: KEY },
      models: null,
      preferred: [],
      origin: "environment",
    },
    clock: systemClock,
    fetch,
  });
}

const START = {
  type: "message_start",
  message: {
    id: "msg_01XFDUDYJgAACzvnptvVoYEL",
    type: "message",
    role: "assistant",
    model: MODEL,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: {
      input_tokens: 25,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 100,
      output_tokens: 1,
    },
  },
};
const PING = { type: "ping" };
const STOP = { type: "message_stop" };

function block(
  index: number,
  content_block: Record<string, unknown>,
  ...deltas: unknown[]
): never[] {
  return [
    { type: "content_block_start", index, content_block },
    ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
    { type: "content_block_stop", index },
  ] as never[];
}

function end(stop_reason: string): { type: string } {
  return {
    type: "message_delta",
    delta: { stop_reason, stop_sequence: null },
    usage: { output_tokens: 89 },
  } as { type: string };
}

function textBlock(index: number, ...texts: string[]): never[] {
  return block(
    index,
    { type: "text", text: "" },
    ...texts.map((text) => ({ type: "text_delta", text })),
  );
}

const TEXT_ANSWER: ModelAnswer = {
  chunks: typedEvents(START, PING, ...textBlock(0, "Hello", "!"), end("end_turn"), STOP),
};

describe("Anthropic adapter", () => {
  test("streams text, usage and the end", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const { parts, error } = await collect(modelOf(server), modelRequest());
    expect(error).toBeNull();
    expect(blockTexts(parts)).toEqual([{ kind: "text", text: "Hello!" }]);
    expect(parts.at(-1)).toEqual({
      type: "finished",
      reason: "stop",
      usage: {
        inputTokens: 125,
        outputTokens: 89,
        cachedInputTokens: 100,
        reasoningTokens: null,
      },
    });
    const [request] = server.requests;
    expect(request?.path).toBe("/v1/messages");
    expect(request?.headers["x-api-key"]).toBe(KEY);
    expect(request?.headers["anthropic-version"]).toBe("2023-06-01");
    expect(request?.body).toMatchObject({
      model: MODEL,
      stream: true,
      system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
      messages: [
        {
          role: "user",
          content: [{ type: "text", text: "Hello", cache_control: { type: "ephemeral" } }],
        },
      ],
    });
  });

  test("thinking, hidden thinking and calls come with what the service wants back", async () => {
    await using server = await ModelServer.start([
      {
        chunks: typedEvents(
          START,
          ...block(
            0,
            { type: "thinking", thinking: "", signature: "" },
            { type: "thinking_delta", thinking: "Let me " },
            { type: "thinking_delta", thinking: "see" },
            { type: "signature_delta", signature: "EqQBCgIYAhIM1gbcDa9GJwZA2b3h" },
          ),
          ...block(1, { type: "redacted_thinking", data: "EmwKAhgBEgy3va3pzix" }),
          ...textBlock(2, "I look."),
          ...block(
            3,
            { type: "tool_use", id: "toolu_01A", name: "weather", input: {} },
            { type: "input_json_delta", partial_json: "" },
            { type: "input_json_delta", partial_json: '{"city": "Be' },
            { type: "input_json_delta", partial_json: 'rn"}' },
          ),
          ...block(4, { type: "tool_use", id: "toolu_01B", name: "weather", input: {} }),
          end("tool_use"),
          STOP,
        ),
      },
    ]);
    const { parts, error } = await collect(
      modelOf(server),
      modelRequest({ thinking: "medium", tools: [WEATHER_TOOL] }),
    );
    expect(error).toBeNull();
    expect(blockTexts(parts)).toEqual([
      { kind: "thinking", text: "Let me see" },
      { kind: "thinking", text: "" },
      { kind: "text", text: "I look." },
    ]);
    expect(ofType(parts, "block_ended").map((part) => part.metadata)).toEqual([
      {
        source: "anthropic",
        options: { anthropic: { signature: "EqQBCgIYAhIM1gbcDa9GJwZA2b3h" } },
      },
      { source: "anthropic", options: { anthropic: { redactedData: "EmwKAhgBEgy3va3pzix" } } },
      undefined,
    ]);
    expect(ofType(parts, "tool_call").map(({ id, input }) => ({ id, input }))).toEqual([
      { id: "toolu_01A", input: { city: "Bern" } },
      { id: "toolu_01B", input: {} },
    ]);
    expect(ofType(parts, "finished")[0]?.reason).toBe("tool_calls");
    expect(server.requests[0]?.body.thinking).toMatchObject({ type: "enabled" });
  });

  test("what was stored of an answer goes back to the service as it came", async () => {
    await using first = await ModelServer.start([
      {
        chunks: typedEvents(
          START,
          ...block(
            0,
            { type: "thinking", thinking: "", signature: "" },
            { type: "thinking_delta", thinking: "Hm" },
            { type: "signature_delta", signature: "c2lnbmF0dXJl" },
          ),
          ...block(1, { type: "redacted_thinking", data: "aGlkZGVu" }),
          ...block(
            2,
            { type: "tool_use", id: "toolu_01A", name: "weather", input: {} },
            { type: "input_json_delta", partial_json: '{"city":"Bern"}' },
          ),
          end("tool_use"),
          STOP,
        ),
      },
    ]);
    const request = modelRequest({ thinking: "low", tools: [WEATHER_TOOL] });
    const { parts } = await collect(modelOf(first), request);
    const rows = [
      storedRow({ role: "user", text: "Hello" }),
      ...rowsOf(parts),
      storedRow({
        role: "tool_result",
        toolCallId: "toolu_01A",
        toolName: "weather",
        toolStatus: "ok",
        text: "sunny",
      }),
    ];
    const messages = buildMessages({ rows, provider: "anthropic", readImage: () => null });
    await using second = await ModelServer.start([TEXT_ANSWER]);
    await collect(modelOf(second), { ...request, messages });
    expect(second.requests[0]?.body.messages).toEqual([
      { role: "user", content: [{ type: "text", text: "Hello" }] },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "Hm", signature: "c2lnbmF0dXJl" },
          { type: "redacted_thinking", data: "aGlkZGVu" },
          { type: "tool_use", id: "toolu_01A", name: "weather", input: { city: "Bern" } },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "toolu_01A",
            content: "sunny",
            cache_control: { type: "ephemeral" },
          },
        ],
      },
    ]);
    expect(second.requests[0]?.body.thinking).toMatchObject({ type: "enabled" });
  });

  test("thinks no more where the calls that go on were another provider's", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const messages = [
      { role: "user", parts: [{ type: "text", text: "Hello" }] },
      {
        role: "assistant",
        parts: [{ type: "tool_call", id: "call_1", name: "weather", input: { city: "Bern" } }],
      },
      {
        role: "tool",
        parts: [{ type: "tool_result", id: "call_1", name: "weather", output: "x", isError: true }],
      },
    ] as const;
    await collect(
      modelOf(server),
      modelRequest({ thinking: "high", messages, tools: [WEATHER_TOOL] }),
    );
    expect(server.requests[0]?.body.thinking).not.toMatchObject({ type: "enabled" });
    expect(server.requests[0]?.body.messages).toMatchObject([
      {},
      {},
      { content: [{ type: "tool_result", tool_use_id: "call_1", is_error: true }] },
    ]);
  });

  test("images go in as data", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const data = new Uint8Array([137, 80, 78, 71]);
    await collect(
      modelOf(server),
      modelRequest({
        messages: [{ role: "user", parts: [{ type: "image", mimeType: "image/png", data }] }],
      }),
    );
    expect(server.requests[0]?.body.messages).toMatchObject([
      {
        role: "user",
        content: [
          {
            type: "image",
            source: { type: "base64", media_type: "image/png", data: "iVBORw==" },
          },
        ],
      },
    ]);
  });

  test.each([
    ["end_turn", "stop"],
    ["stop_sequence", "stop"],
    ["max_tokens", "length"],
    ["refusal", "content_filter"],
  ])("stop reason %p is %p", async (given, reason) => {
    await using server = await ModelServer.start([
      { chunks: typedEvents(START, ...textBlock(0, "x"), end(given), STOP) },
    ]);
    const { parts } = await collect(modelOf(server), modelRequest());
    expect(ofType(parts, "finished")[0]?.reason as string).toBe(reason);
  });
});

describe("Anthropic adapter, failures", () => {
  const errorEvent = (type: string): { type: string } =>
    ({ type: "error", error: { type, message: "No." } }) as { type: string };

  test.each([
    ["overloaded_error", "overloaded", true],
    ["api_error", "unavailable", true],
    ["rate_limit_error", "rate_limited", true],
    ["invalid_request_error", "bad_request", false],
    ["authentication_error", "authentication", false],
  ])("an error event %p, at once and in mid-stream", async (type, code, retryable) => {
    for (const before of [[], [START, ...textBlock(0, "Half")]]) {
      await using server = await ModelServer.start([
        { chunks: typedEvents(...before, errorEvent(type)) },
      ]);
      const { error } = await collect(modelOf(server), modelRequest());
      expect(error).toMatchObject({ name: "ProviderError", code, retryable });
    }
  });

  test.each([
    [429, "rate_limited", true],
    [529, "overloaded", true],
    [500, "unavailable", true],
    [401, "authentication", false],
    [400, "bad_request", false],
  ])("status %p is %p, retryable: %p", async (status, code, retryable) => {
    await using server = await ModelServer.start([
      {
        status,
        headers: { "retry-after": "3" },
        chunks: [JSON.stringify(errorEvent("some_error"))],
      },
    ]);
    const { error } = await collect(modelOf(server), modelRequest());
    expect(error).toMatchObject({ code, retryable, retryAfterMs: 3000 });
    expect(server.requests).toHaveLength(1);
    expect(Bun.inspect(error)).not.toContain(KEY);
  });

  test("an answer that ends or dies before its end is a broken stream", async () => {
    const half = typedEvents(START, ...textBlock(0, "Half"));
    const emoji = Buffer.from(typedEvents(...textBlock(1, "🌍")).join(""));
    const inEmoji = emoji.subarray(0, emoji.indexOf(Buffer.from("🌍")) + 2);
    for (const answer of [
      { chunks: [] },
      { chunks: half },
      { chunks: typedEvents(START, ...textBlock(0, "x"), end("end_turn")) },
      { chunks: half, ending: "reset" },
      { chunks: [...half, inEmoji], ending: "cut" },
      { chunks: [...half, inEmoji], ending: "reset" },
    ] as const satisfies ModelAnswer[]) {
      await using server = await ModelServer.start([answer]);
      const { parts, error } = await collect(modelOf(server), modelRequest());
      expect(error).toMatchObject({ name: "ProviderError", retryable: true });
      expect(ofType(parts, "finished")).toEqual([]);
    }
  });

  test("the signal's reason is thrown in mid-stream", async () => {
    await using server = await ModelServer.start([
      { chunks: typedEvents(START, ...textBlock(0, "Wait")), ending: "hang" },
    ]);
    const abort = new AbortController();
    let thrown: unknown = null;
    try {
      for await (const part of modelOf(server).stream(modelRequest({ signal: abort.signal }))) {
        if (part.type === "delta") abort.abort("stop");
      }
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBe("stop");
  });
});

/** The rows a turn stores of an answer. */
function rowsOf(parts: readonly ModelPart[]): ReturnType<typeof storedRow>[] {
  const rows: ReturnType<typeof storedRow>[] = [];
  let text = "";
  for (const part of parts) {
    if (part.type === "block_started") text = "";
    if (part.type === "delta") text += part.text;
    if (part.type === "block_ended") {
      rows.push(storedRow({ role: "thinking", messageId: "m", text, metadata: part.metadata }));
    }
    if (part.type === "tool_call") {
      const { id, name, input } = part;
      rows.push(
        storedRow({
          role: "tool_call",
          messageId: "m",
          toolCallId: id,
          toolName: name,
          toolInput: input,
          metadata: part.metadata,
        }),
      );
    }
  }
  // As the store gives them back.
  return JSON.parse(JSON.stringify(rows)) as ReturnType<typeof storedRow>[];
}
