import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Provider } from "../../src/agent/model_providers.ts";
import type { Model } from "../../src/agent/provider.ts";
import { ProviderError } from "../../src/agent/provider.ts";
import { createOpenAiModel } from "../../src/agent/provider_openai.ts";
import { systemClock } from "../../src/base/clock.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { dataEvents, type ModelAnswer, ModelServer } from "../support/model_server.ts";
import { until } from "../support/until.ts";
import { blockTexts, collect, modelRequest, ofType, WEATHER_TOOL } from "./model_request.ts";

// Goal: the adapter holds what provider.ts promises against an endpoint that speaks Chat Completions as the
// services do. Method: a server on this machine that sends the bytes written here and breaks off where told to.

const KEY = "sk-test-0123456789abcdef0123456789abcdef";

function provider(server: ModelServer, given: Partial<Provider> = {}): Provider {
  return {
    name: "local",
    kind: "openai-compatible",
    baseUrl: `${server.url}/v1`,
    key: { variable: "LOCAL_KEY", value: KEY },
    models: ["qwen3"],
    preferred: [],
    origin: "config",
    ...given,
  };
}

function modelOf(server: ModelServer, clock = systemClock, given: Partial<Provider> = {}): Model {
  return createOpenAiModel({
    id: "local/qwen3",
    name: "qwen3",
    provider: provider(server, given),
    clock,
    fetch,
  });
}

/** A chunk as the services send it. */
function chunk(delta: Record<string, unknown>, finish: string | null = null): unknown {
  return {
    id: "chatcmpl-123",
    object: "chat.completion.chunk",
    created: 1_767_225_600,
    model: "qwen3",
    system_fingerprint: "fp_44709d6fcb",
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  };
}

const USAGE_CHUNK = {
  id: "chatcmpl-123",
  object: "chat.completion.chunk",
  created: 1_767_225_600,
  model: "qwen3",
  choices: [],
  usage: {
    prompt_tokens: 1117,
    completion_tokens: 46,
    total_tokens: 1163,
    prompt_tokens_details: { cached_tokens: 1024, audio_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 12, audio_tokens: 0 },
  },
};

const TEXT_ANSWER: ModelAnswer = {
  chunks: dataEvents(
    chunk({ role: "assistant", content: "", refusal: null }),
    chunk({ content: "Hello" }),
    chunk({ content: " there" }),
    chunk({}, "stop"),
    USAGE_CHUNK,
    "[DONE]",
  ),
};

describe("OpenAI-compatible adapter", () => {
  test("streams text, usage and the end", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const { parts, error } = await collect(modelOf(server), modelRequest());
    expect(error).toBeNull();
    expect(parts.map((part) => part.type)).toEqual([
      "started",
      "block_started",
      "delta",
      "delta",
      "block_ended",
      "finished",
    ]);
    expect(blockTexts(parts)).toEqual([{ kind: "text", text: "Hello there" }]);
    expect(ofType(parts, "finished")[0]).toEqual({
      type: "finished",
      reason: "stop",
      usage: { inputTokens: 1117, outputTokens: 46, cachedInputTokens: 1024, reasoningTokens: 12 },
    });
  });

  test("sends the request in the form the services take", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const image = new Uint8Array([137, 80, 78, 71]);
    await collect(
      modelOf(server),
      modelRequest({
        maxOutputTokens: 100,
        tools: [WEATHER_TOOL],
        thinking: "high",
        messages: [
          {
            role: "user",
            parts: [
              { type: "image", mimeType: "image/png", data: image },
              { type: "text", text: "What is it?" },
            ],
          },
          {
            role: "assistant",
            parts: [
              { type: "thinking", text: "old", metadata: { source: "local" } },
              { type: "text", text: "A cat." },
            ],
          },
          { role: "user", parts: [{ type: "text", text: "And the weather?" }] },
          {
            role: "assistant",
            parts: [
              { type: "thinking", text: "look", metadata: { source: "local" } },
              { type: "tool_call", id: "call_1", name: "weather", input: { city: "Bern" } },
              { type: "tool_call", id: "call_2", name: "weather", input: "{broken" },
            ],
          },
          {
            role: "tool",
            parts: [
              {
                type: "tool_result",
                id: "call_1",
                name: "weather",
                output: "sunny",
                isError: false,
              },
              { type: "tool_result", id: "call_2", name: "weather", output: "bad", isError: true },
            ],
          },
        ],
      }),
    );
    const [request] = server.requests;
    expect(request?.path).toBe("/v1/chat/completions");
    expect(request?.headers.authorization).toBe(`Bearer ${KEY}`);
    expect(request?.body).toMatchObject({
      model: "qwen3",
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 100,
      reasoning_effort: "high",
      tools: [{ type: "function", function: { name: "weather" } }],
    });
    expect(request?.body.messages).toEqual([
      { role: "system", content: "Be brief." },
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw==" } },
          { type: "text", text: "What is it?" },
        ],
      },
      // Thinking of a turn that is over stays away.
      { role: "assistant", content: "A cat." },
      { role: "user", content: "And the weather?" },
      {
        role: "assistant",
        content: null,
        reasoning_content: "look",
        tool_calls: [
          {
            id: "call_1",
            type: "function",
            function: { name: "weather", arguments: '{"city":"Bern"}' },
          },
          {
            id: "call_2",
            type: "function",
            function: { name: "weather", arguments: '{"invalid_arguments":"{broken"}' },
          },
        ],
      },
      { role: "tool", tool_call_id: "call_1", content: "sunny" },
      { role: "tool", tool_call_id: "call_2", content: "bad" },
    ]);
  });

  test("sends no authorization where no key is needed", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    await collect(modelOf(server, systemClock, { key: null }), modelRequest());
    expect(server.requests[0]?.headers.authorization).toBeUndefined();
  });

  test("shows thinking as a block of its own, whichever field it comes in", async () => {
    for (const field of ["reasoning_content", "reasoning"]) {
      await using server = await ModelServer.start([
        {
          chunks: dataEvents(
            chunk({ role: "assistant", content: "" }),
            chunk({ [field]: "Let me " }),
            chunk({ [field]: "think" }),
            chunk({ content: "Done" }),
            chunk({}, "stop"),
            "[DONE]",
          ),
        },
      ]);
      const { parts } = await collect(modelOf(server), modelRequest());
      expect(blockTexts(parts)).toEqual([
        { kind: "thinking", text: "Let me think" },
        { kind: "text", text: "Done" },
      ]);
      expect(ofType(parts, "block_ended")[0]?.metadata).toEqual({ source: "local" });
    }
  });

  test("joins parallel calls whose arguments come interleaved", async () => {
    const call = (index: number, rest: Record<string, unknown>): unknown =>
      chunk({ tool_calls: [{ index, ...rest }] });
    await using server = await ModelServer.start([
      {
        chunks: dataEvents(
          chunk({ role: "assistant", content: null }),
          call(0, { id: "call_a", type: "function", function: { name: "weather", arguments: "" } }),
          call(1, { id: "call_b", type: "function", function: { name: "weather", arguments: "" } }),
          call(0, { function: { arguments: '{"ci' } }),
          call(1, { function: { arguments: '{"city":' } }),
          call(0, { function: { arguments: 'ty":"Bern"}' } }),
          call(1, { function: { arguments: '"Zürich"}' } }),
          call(2, { id: "call_c", type: "function", function: { name: "weather", arguments: "" } }),
          call(3, {
            id: "call_d",
            type: "function",
            function: { name: "weather", arguments: "{" },
          }),
          chunk({}, "tool_calls"),
          "[DONE]",
        ),
      },
    ]);
    const { parts, error } = await collect(
      modelOf(server),
      modelRequest({ tools: [WEATHER_TOOL] }),
    );
    expect(error).toBeNull();
    expect(ofType(parts, "tool_call")).toEqual([
      { type: "tool_call", id: "call_a", name: "weather", input: { city: "Bern" } },
      { type: "tool_call", id: "call_b", name: "weather", input: { city: "Zürich" } },
      // No arguments at all are an empty object; what is no JSON stays a text.
      { type: "tool_call", id: "call_c", name: "weather", input: {} },
      { type: "tool_call", id: "call_d", name: "weather", input: "{" },
    ]);
    expect(ofType(parts, "tool_preview").length).toBeGreaterThan(0);
    expect(ofType(parts, "finished")[0]?.reason).toBe("tool_calls");
  });

  test("says tool_calls also where the service says stop behind a call", async () => {
    await using server = await ModelServer.start([
      {
        chunks: dataEvents(
          chunk({
            role: "assistant",
            tool_calls: [
              {
                index: 0,
                id: "c",
                type: "function",
                function: { name: "weather", arguments: "{}" },
              },
            ],
          }),
          chunk({}, "stop"),
          "[DONE]",
        ),
      },
    ]);
    const { parts } = await collect(modelOf(server), modelRequest());
    expect(ofType(parts, "finished")[0]?.reason).toBe("tool_calls");
  });

  test("an answer cut at its length says so", async () => {
    await using server = await ModelServer.start([
      { chunks: dataEvents(chunk({ content: "x" }), chunk({}, "length"), "[DONE]") },
    ]);
    const { parts } = await collect(modelOf(server), modelRequest());
    expect(ofType(parts, "finished")[0]?.reason).toBe("length");
  });
});

describe("OpenAI-compatible adapter, failures", () => {
  const refusal = (status: number, message: string, headers = {}): ModelAnswer => ({
    status,
    headers,
    chunks: [JSON.stringify({ error: { message, type: "some_error", param: null, code: null } })],
  });

  test.each([
    [408, "timeout", true],
    [409, "conflict", true],
    [429, "rate_limited", true],
    [500, "unavailable", true],
    [502, "unavailable", true],
    [503, "overloaded", true],
    [529, "overloaded", true],
    [400, "bad_request", false],
    [401, "authentication", false],
    [402, "payment_required", false],
    [403, "permission", false],
    [404, "not_found", false],
    [413, "bad_request", false],
    [422, "bad_request", false],
  ])("status %p is %p, retryable: %p", async (status, code, retryable) => {
    await using server = await ModelServer.start([refusal(status, "No.")]);
    const { parts, error } = await collect(modelOf(server), modelRequest());
    expect(parts).toEqual([]);
    expect(error).toBeInstanceOf(ProviderError);
    expect(error).toMatchObject({ code, retryable });
    expect((error as Error).message).toBe(`local answered ${status}: No.`);
    // The SDK does not try again behind the turn's back.
    expect(server.requests).toHaveLength(1);
  });

  test("Retry-After is read as seconds, as a date and in milliseconds", async () => {
    const clock = new FakeClock(Date.UTC(2026, 0, 1));
    for (const [headers, expected] of [
      [{ "retry-after": "7" }, 7000],
      [{ "retry-after": "Thu, 01 Jan 2026 00:00:30 GMT" }, 30_000],
      [{ "retry-after-ms": "1250", "retry-after": "9" }, 1250],
      [{}, null],
    ] as const) {
      await using server = await ModelServer.start([refusal(429, "Slow down", headers)]);
      const { error } = await collect(modelOf(server, clock), modelRequest());
      expect((error as ProviderError).retryAfterMs).toBe(expected);
    }
  });

  test("a message holds neither the key nor a whole body", async () => {
    const long = `Incorrect API key provided: ${KEY}. ${"prompt text ".repeat(1000)}`;
    await using server = await ModelServer.start([refusal(401, long)]);
    const { error } = await collect(modelOf(server), modelRequest());
    const { message } = error as Error;
    expect(message).not.toContain(KEY);
    expect(message).not.toContain("0123456789abcdef");
    expect(message.length).toBeLessThan(400);
    // Nor does anything that hangs on the error.
    expect(Bun.inspect(error)).not.toContain(KEY);
    expect(JSON.stringify(error)).not.toContain("Hello");
  });

  test("a key that does not look like one is taken out all the same", async () => {
    const key = { variable: "LOCAL_KEY", value: "open sesame" };
    await using server = await ModelServer.start([refusal(401, "No such key: open sesame.")]);
    const { error } = await collect(modelOf(server, systemClock, { key }), modelRequest());
    expect((error as Error).message).toBe("local answered 401: No such key: [redacted].");
  });

  test("a refusal that is no JSON, empty or endless is still told", async () => {
    for (const chunks of [
      [""],
      ["<html>Bad gateway</html>"],
      Array(40).fill("x".repeat(100_000)),
    ]) {
      await using server = await ModelServer.start([{ status: 502, chunks: chunks as string[] }]);
      const { error } = await collect(modelOf(server), modelRequest());
      expect(error).toMatchObject({ code: "unavailable", retryable: true });
    }
  });

  test.each([
    [{ message: "Overloaded", type: "overloaded_error", code: null }, "overloaded", true],
    [
      { message: "The server had an error", type: "server_error", code: null },
      "stream_broken",
      true,
    ],
    [
      { message: "Rate limit", type: "requests", code: "rate_limit_exceeded" },
      "rate_limited",
      true,
    ],
    [{ message: "Provider returned error", code: 502 }, "unavailable", true],
    [{ message: "Too long", type: "invalid_request_error", code: null }, "bad_request", false],
    [{ message: "Bad key", code: 401 }, "authentication", false],
  ])("an error event in mid-stream: %p", async (given, code, retryable) => {
    await using server = await ModelServer.start([
      { chunks: dataEvents(chunk({ content: "Half" }), { error: given }) },
    ]);
    const { parts, error } = await collect(modelOf(server), modelRequest());
    expect(blockTexts(parts)).toEqual([{ kind: "text", text: "Half" }]);
    expect(error).toMatchObject({ name: "ProviderError", code, retryable });
  });

  test("a connection that dies in the middle of a character of several bytes is a broken stream", async () => {
    const whole = Buffer.from(dataEvents(chunk({ content: "Grüße 🌍" }))[0]!);
    const first = dataEvents(chunk({ content: "Sent" }))[0]!;
    const emoji = whole.indexOf(Buffer.from("🌍"));
    for (const cut of [emoji + 1, emoji + 2, emoji + 3, whole.indexOf(Buffer.from("ü")) + 1]) {
      for (const ending of ["reset", "cut"] as const) {
        await using server = await ModelServer.start([
          { chunks: [first, whole.subarray(0, cut)], ending },
        ]);
        const { parts, error } = await collect(modelOf(server), modelRequest());
        expect(error).toMatchObject({ name: "ProviderError", retryable: true });
        expect(["stream_broken", "unavailable"]).toContain((error as ProviderError).code);
        // What came before is whole, and nothing half came through.
        expect(blockTexts(parts).every(({ text }) => text === "" || text === "Sent")).toBe(true);
      }
    }
  });

  test("an answer without an end is a broken stream", async () => {
    for (const chunks of [
      [],
      dataEvents(chunk({ content: "Half" })),
      ["<html>not a stream</html>"],
    ]) {
      await using server = await ModelServer.start([{ chunks }]);
      const { parts, error } = await collect(modelOf(server), modelRequest());
      expect(error).toMatchObject({ code: "stream_broken", retryable: true });
      expect(ofType(parts, "finished")).toEqual([]);
    }
  });

  test("calls of an answer that broke off are followed by the error, never by finished", async () => {
    await using server = await ModelServer.start([
      {
        chunks: dataEvents(
          chunk({
            tool_calls: [
              {
                index: 0,
                id: "c",
                type: "function",
                function: { name: "weather", arguments: '{"ci' },
              },
            ],
          }),
        ),
      },
    ]);
    const { parts, error } = await collect(modelOf(server), modelRequest());
    expect(error).toMatchObject({ code: "stream_broken" });
    expect(ofType(parts, "finished")).toEqual([]);
  });

  test("nobody there is worth another attempt", async () => {
    const server = await ModelServer.start([TEXT_ANSWER]);
    const model = modelOf(server);
    await server[Symbol.asyncDispose]();
    const { error } = await collect(model, modelRequest());
    expect(error).toMatchObject({ code: "unavailable", retryable: true });
  });

  test("a redirect is not followed, so that the key goes nowhere else", async () => {
    await using other = await ModelServer.start([TEXT_ANSWER]);
    await using server = await ModelServer.start([
      { status: 307, headers: { location: `${other.url}/v1/chat/completions` }, chunks: [] },
    ]);
    const { error } = await collect(modelOf(server), modelRequest());
    expect(error).toMatchObject({ code: "bad_request", retryable: false });
    expect(other.requests).toEqual([]);
  });

  test("a model that does not think is asked again without being told how much", async () => {
    await using server = await ModelServer.start((request) =>
      request.body.reasoning_effort === undefined
        ? TEXT_ANSWER
        : refusal(400, '"qwen3" does not support thinking'),
    );
    const model = modelOf(server);
    for (let round = 0; round < 2; round += 1) {
      const { error } = await collect(model, modelRequest({ thinking: "low" }));
      expect(error).toBeNull();
    }
    const efforts = server.requests.map((request) => request.body.reasoning_effort);
    expect(efforts).toEqual(["low", undefined, undefined]);
  });
});

describe("OpenAI-compatible adapter, aborts and silence", () => {
  const HANGING: ModelAnswer = { chunks: dataEvents(chunk({ content: "Wait" })), ending: "hang" };

  test("the signal's reason is thrown in mid-stream, and the connection goes", async () => {
    await using server = await ModelServer.start([HANGING]);
    const abort = new AbortController();
    const reason = new Error("interrupted");
    const parts = [];
    let thrown: unknown = null;
    try {
      for await (const part of modelOf(server).stream(modelRequest({ signal: abort.signal }))) {
        parts.push(part);
        if (part.type === "delta") abort.abort(reason);
      }
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBe(reason);
    expect(ofType(parts, "delta")).toHaveLength(1);
    await until("the connection to go", () => server.openConnections === 0);
  });

  test("the signal's reason is thrown before the answer has begun", async () => {
    await using server = await ModelServer.start([{ ...HANGING, chunks: [] }]);
    const abort = new AbortController();
    const collected = collect(modelOf(server), modelRequest({ signal: abort.signal }));
    await until("the request", () => server.requests.length === 1);
    abort.abort("stop");
    expect((await collected).error).toBe("stop");
    const { error } = await collect(modelOf(server), modelRequest({ signal: abort.signal }));
    expect(error).toBe("stop");
    expect(server.requests).toHaveLength(1);
  });

  test("a reader that leaves takes the connection along", async () => {
    await using server = await ModelServer.start([HANGING]);
    for await (const part of modelOf(server).stream(modelRequest())) {
      if (part.type === "delta") break;
    }
    await until("the connection to go", () => server.openConnections === 0);
  });

  test("a stream that goes silent is broken after five minutes, not before", async () => {
    await using server = await ModelServer.start([HANGING]);
    const clock = new FakeClock();
    let hasEnded = false;
    const parts: string[] = [];
    const collected = (async () => {
      try {
        for await (const part of modelOf(server, clock).stream(modelRequest()))
          parts.push(part.type);
        return null;
      } catch (error) {
        return error;
      } finally {
        hasEnded = true;
      }
    })();
    await until("the first delta", () => parts.includes("delta"));
    await clock.advance(5 * 60_000 - 1);
    await settle();
    expect(hasEnded).toBe(false);
    await clock.advance(1);
    expect(await collected).toMatchObject({ code: "stream_broken", retryable: true });
    expect(clock.waiting).toBe(0);
  });

  test("no timer is left behind by a whole answer", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const clock = new FakeClock();
    const { error } = await collect(modelOf(server, clock), modelRequest());
    expect(error).toBeNull();
    expect(clock.waiting).toBe(0);
  });

  test("one connection serves several answers", async () => {
    await using server = await ModelServer.start([TEXT_ANSWER]);
    const model = modelOf(server);
    for (let round = 0; round < 3; round += 1) await collect(model, modelRequest());
    expect(server.requests).toHaveLength(3);
    expect(server.openConnections).toBe(1);
  });
});

describe("OpenAI-compatible adapter, text", () => {
  test("whatever way a text is cut into deltas and bytes, it arrives whole and well-formed", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: "binary", minLength: 1, maxLength: 30 }),
        fc.array(fc.nat(60), { maxLength: 6 }),
        fc.integer({ min: 1, max: 40 }),
        async (text, cuts, step) => {
          const at = [...new Set(cuts.map((cut) => cut % (text.length + 1)))].sort((a, b) => a - b);
          const pieces: string[] = [];
          for (let index = 0, from = 0; index <= at.length; index += 1) {
            pieces.push(text.slice(from, at[index]));
            from = at[index] ?? 0;
          }
          const bytes = Buffer.from(
            dataEvents(
              ...pieces.map((content) => chunk({ content })),
              chunk({}, "stop"),
              "[DONE]",
            ).join(""),
          );
          const chunks: Uint8Array[] = [];
          for (let from = 0; from < bytes.length; from += step * 7) {
            chunks.push(bytes.subarray(from, from + step * 7));
          }
          await using server = await ModelServer.start([{ chunks }]);
          const { parts, error } = await collect(modelOf(server), modelRequest());
          expect(error).toBeNull();
          const deltas = ofType(parts, "delta");
          expect(deltas.map((part) => part.text).join("")).toBe(text.toWellFormed());
          expect(deltas.every((part) => part.text.isWellFormed() && part.text !== "")).toBe(true);
        },
      ),
      { numRuns: 25 },
    );
  });

  test("a pair split over two deltas is joined, and a half without its other half is replaced", async () => {
    const [high, low] = ["\ud83c", "\udf0d"];
    await using server = await ModelServer.start([
      {
        chunks: dataEvents(
          chunk({ content: `a${high}` }),
          chunk({ content: `${low}b${high}` }),
          chunk({}, "stop"),
          "[DONE]",
        ),
      },
    ]);
    const { parts } = await collect(modelOf(server), modelRequest());
    expect(ofType(parts, "delta").map((part) => part.text)).toEqual(["a", "🌍b", "\ufffd"]);
  });

  test("lone halves in arguments never get through", async () => {
    await using server = await ModelServer.start([
      {
        chunks: dataEvents(
          chunk({
            tool_calls: [
              {
                index: 0,
                id: "c",
                type: "function",
                function: {
                  name: "weather",
                  arguments: '{"city":"\\ud83c","\\udf0d":["\\ud83c\\udf0d"]}',
                },
              },
            ],
          }),
          chunk({}, "tool_calls"),
          "[DONE]",
        ),
      },
    ]);
    const { parts } = await collect(modelOf(server), modelRequest());
    expect(ofType(parts, "tool_call")[0]?.input).toEqual({ city: "\ufffd", "\ufffd": ["🌍"] });
  });
});
