import { type Clock, sleep } from "../base/clock.ts";
import type { Model, ModelMessage, ModelPart, ModelRequest } from "./provider.ts";
import { ProviderError } from "./provider.ts";
import { INTERRUPTED_TOOL_OUTPUT } from "./tool.ts";
import { type DemoStep, type DemoToolCall, parseDirectives } from "./demo_directives.ts";

/**
 * Owns the built-in model: it needs no network and no key, streams thinking and text, and really calls the tools
 * (contract.md, Turns, models, tools). What it understands is in `demo_directives.ts`.
 *
 * It keeps no state but a count of the failures it was asked for: what it does follows from the request alone.
 */
export const DEMO_MODEL_ID = "demo/demo";

const INTRODUCTION =
  "I am the demo model that is built into albedo: I need no network and no key, and I understand plain " +
  "directives, one on a line (!bash, !read, !write, !edit, !glob, !grep, !think, !say, !repeat).";

const ECHO_CHARS_MAX = 400;
/** Deltas in a row before other work gets the event loop. */
const DELTAS_PER_SLICE = 32;
const FAILURES_REMEMBERED_MAX = 64;

export class DemoModel implements Model {
  readonly id = DEMO_MODEL_ID;
  readonly #clock: Clock;
  readonly #failures = new Map<string, number>();

  constructor(dependencies: { readonly clock: Clock }) {
    this.#clock = dependencies.clock;
  }

  async *stream(request: ModelRequest): AsyncGenerator<ModelPart> {
    request.signal.throwIfAborted();
    const writer = new AnswerWriter(this.#clock, request.signal);
    yield { type: "started" };
    const scene = readScene(request.messages);
    const offered = new Set(request.tools.map((tool) => tool.name));
    const steps = parseDirectives(scene.texts, offered);
    const done = scene.toolResults.length;
    const calls = nextCalls(steps, done);
    const performed = stepsOfAnswer(steps, done, calls);
    for (const step of performed) {
      if (step.kind === "fail") {
        this.#fail(step, request.messages);
        continue;
      }
      yield* writer.step(step);
    }
    if (calls.length > 0) {
      yield* writer.calls(calls, callPrefix(request.messages));
    } else if (steps.length === 0) {
      yield* writer.answer(scene, request);
    } else {
      yield* writer.summary(scene);
    }
    yield writer.finished(request, calls.length > 0);
  }

  /** @throws {ProviderError} as often as the directive says; each time when it names no number */
  #fail(
    step: { readonly code: string; readonly times: number | null },
    messages: readonly ModelMessage[],
  ): void {
    if (step.times !== null) {
      const key = `${step.code} ${requestHash(messages)}`;
      const failures = this.#failures.get(key) ?? 0;
      if (failures >= step.times) {
        this.#failures.delete(key);
        return;
      }
      if (this.#failures.size >= FAILURES_REMEMBERED_MAX) this.#failures.clear();
      this.#failures.set(key, failures + 1);
    }
    throw new ProviderError(step.code, `The demo model was told to fail with '${step.code}'`, {
      retryable: RETRYABLE_CODES.has(step.code),
    });
  }
}

const RETRYABLE_CODES = new Set(["rate_limited", "overloaded", "unavailable", "stream_broken"]);

/** What the answer is about: everything since the last answer that called no tool. */
interface Scene {
  readonly isFirst: boolean;
  readonly texts: readonly string[];
  readonly imageCount: number;
  readonly toolResults: readonly {
    readonly name: string;
    readonly output: string;
    readonly isError: boolean;
  }[];
}

function readScene(messages: readonly ModelMessage[]): Scene {
  const start = sceneStart(messages);
  const texts: string[] = [];
  const toolResults: { name: string; output: string; isError: boolean }[] = [];
  let imageCount = 0;
  for (const message of messages.slice(start)) {
    for (const part of message.parts) {
      if (part.type === "tool_result") toolResults.push(part);
      else if (part.type === "image") imageCount += 1;
      else if (part.type === "text" && message.role === "user") texts.push(part.text);
    }
  }
  const isFirst = !messages.slice(0, start).some((message) => message.role === "assistant");
  return { isFirst, texts, imageCount, toolResults };
}

/** The index behind the last answer without a tool call, or behind the last call that was interrupted. */
function sceneStart(messages: readonly ModelMessage[]): number {
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    const message = messages[index];
    if (message === undefined || message.role === "user") continue;
    const isFinal =
      message.role === "assistant"
        ? !message.parts.some((part) => part.type === "tool_call")
        : message.parts.some((part) => part.output.startsWith(INTERRUPTED_TOOL_OUTPUT));
    if (isFinal) return index + 1;
  }
  return 0;
}

/** The calls to make now: the next one, or all that are left where they may go in parallel. */
function nextCalls(steps: readonly DemoStep[], done: number): readonly DemoToolCall[] {
  const left = steps.filter((step) => step.kind === "call").slice(done);
  return steps.some((step) => step.kind === "parallel") ? left : left.slice(0, 1);
}

/** What stands between the last call that was made and the ones to be made now. */
function stepsOfAnswer(
  steps: readonly DemoStep[],
  done: number,
  calls: readonly DemoToolCall[],
): readonly SpokenStep[] {
  const result: SpokenStep[] = [];
  let seen = 0;
  for (const step of steps) {
    if (step.kind === "call") {
      seen += 1;
      if (seen > done + calls.length) break;
      if (calls.length === 1 && seen > done) break;
    } else if (step.kind === "slow" || (step.kind !== "parallel" && seen >= done)) {
      result.push(step);
    }
  }
  return result;
}

type SpokenStep = Exclude<DemoStep, { kind: "call" } | { kind: "parallel" }>;

function requestHash(messages: readonly ModelMessage[]): string {
  let hash = BigInt(messages.length);
  for (const message of messages) {
    for (const part of message.parts) {
      const text = part.type === "text" || part.type === "thinking" ? part.text : part.type;
      hash = BigInt(Bun.hash(text, hash));
      if (part.type === "tool_result") hash = BigInt(Bun.hash(part.id + part.output, hash));
    }
  }
  return hash.toString(36);
}

/** Makes ids of calls differ from one answer to the next. */
function callPrefix(messages: readonly ModelMessage[]): string {
  return `demo_${requestHash(messages)}`;
}

/** Writes blocks and calls, a small piece at a time. */
class AnswerWriter {
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  #blocks = 0;
  #deltas = 0;
  #delayMs = 0;

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#signal = signal;
  }

  async *step(step: Exclude<SpokenStep, { kind: "fail" }>): AsyncGenerator<ModelPart> {
    switch (step.kind) {
      case "slow":
        this.#delayMs = step.delayMs;
        break;
      case "think":
        yield* this.#block("thinking", pieces(step.text));
        break;
      case "say":
        yield* this.#block("text", pieces(step.text));
        break;
      case "repeat":
        yield* this.#block("text", repeated(`${step.text}\n`, step.times));
        break;
    }
  }

  async *calls(calls: readonly DemoToolCall[], prefix: string): AsyncGenerator<ModelPart> {
    for (const [index, call] of calls.entries()) {
      const id = `${prefix}_${index + 1}`;
      const text = JSON.stringify(call.input);
      yield { type: "tool_preview", id, name: call.name, text };
      await this.#pace();
      yield { type: "tool_call", id, name: call.name, input: call.input };
    }
  }

  async *answer(scene: Scene, request: ModelRequest): AsyncGenerator<ModelPart> {
    const last = scene.texts.at(-1) ?? "";
    if (request.thinking !== "off") {
      const images = scene.imageCount === 0 ? "" : ` and ${scene.imageCount} image(s)`;
      yield* this.#block(
        "thinking",
        pieces(
          `There is a message of ${last.length} characters${images}. No directive is in it, so I echo it.`,
        ),
      );
    }
    const said = last === "" ? "You sent no text." : `You said: ${cut(last)}`;
    const images =
      scene.imageCount === 0
        ? ""
        : ` I was shown ${scene.imageCount} image(s), which I cannot see.`;
    yield* this.#block("text", pieces(`${INTRODUCTION}\n\n${said}${images}`));
  }

  async *summary(scene: Scene): AsyncGenerator<ModelPart> {
    if (!scene.isFirst && scene.toolResults.length === 0) return;
    const lines = scene.isFirst ? [INTRODUCTION] : [];
    if (scene.toolResults.length > 0) {
      const failed = scene.toolResults.filter((result) => result.isError).length;
      lines.push(`I called ${scene.toolResults.length} tool(s), ${failed} failed.`);
    }
    for (const result of scene.toolResults) {
      lines.push(`${result.name}${result.isError ? " (failed)" : ""}: ${cut(result.output)}`);
    }
    yield* this.#block("text", pieces(lines.join("\n\n")));
  }

  finished(request: ModelRequest, called: boolean): ModelPart {
    let chars = request.system.length;
    for (const message of request.messages) {
      for (const part of message.parts) if (part.type === "text") chars += part.text.length;
    }
    return {
      type: "finished",
      reason: called ? "tool_calls" : "stop",
      usage: {
        inputTokens: Math.ceil(chars / 4),
        outputTokens: this.#deltas,
        cachedInputTokens: null,
        reasoningTokens: null,
      },
    };
  }

  async *#block(kind: "text" | "thinking", texts: Iterable<string>): AsyncGenerator<ModelPart> {
    const block = String(this.#blocks);
    this.#blocks += 1;
    yield { type: "block_started", block, kind };
    for (const text of texts) {
      await this.#pace();
      yield { type: "delta", block, text };
    }
    yield { type: "block_ended", block };
  }

  /** Waits where a delay was asked for, lets other work in now and then, and ends with the signal. */
  async #pace(): Promise<void> {
    this.#deltas += 1;
    if (this.#delayMs > 0) await sleep(this.#clock, this.#delayMs, this.#signal);
    else if (this.#deltas % DELTAS_PER_SLICE === 0) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    this.#signal.throwIfAborted();
  }
}

/** A text in pieces of about a word. */
function pieces(text: string): readonly string[] {
  return text.match(/\s*\S{1,16}|\s+$/gu) ?? [];
}

function* repeated(text: string, times: number): Generator<string> {
  for (let count = 0; count < times; count += 1) yield text;
}

function cut(text: string): string {
  if (text.length <= ECHO_CHARS_MAX) return text;
  const shown = text.slice(0, ECHO_CHARS_MAX).toWellFormed();
  return `${shown}… (${text.length - ECHO_CHARS_MAX} more characters)`;
}
