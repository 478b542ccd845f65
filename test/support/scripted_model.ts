import type { ModelDirectory } from "../../src/agent/models.ts";
import {
  type Model,
  type ModelPart,
  type ModelRequest,
  ProviderError,
} from "../../src/agent/provider.ts";
import type { ModelInfo } from "../../src/wire/server.ts";

const USAGE = {
  inputTokens: null,
  outputTokens: null,
  cachedInputTokens: null,
  reasoningTokens: null,
};

/** One request to a scripted model, answered by the test a part at a time. */
export class Exchange {
  readonly request: ModelRequest;
  #queue: (ModelPart | Error | "end")[] = [];
  #wake: (() => void) | null = null;
  #blocks = 0;
  /** The turn reads no further. */
  released = false;
  /** Goes on as if it had not been told to stop. */
  deaf = false;

  constructor(request: ModelRequest) {
    this.request = request;
  }

  get aborted(): boolean {
    return this.request.signal.aborted;
  }

  send(...parts: ModelPart[]): this {
    this.#queue.push(...parts);
    this.#wake?.();
    return this;
  }

  /** A whole block. */
  block(kind: "text" | "thinking", ...texts: string[]): this {
    const block = this.open(kind);
    for (const text of texts) this.delta(block, text);
    return this.send({ type: "block_ended", block });
  }

  say(...texts: string[]): this {
    return this.block("text", ...texts);
  }

  think(...texts: string[]): this {
    return this.block("thinking", ...texts);
  }

  open(kind: "text" | "thinking"): string {
    this.#blocks += 1;
    const block = `b${this.#blocks}`;
    this.send({ type: "block_started", block, kind });
    return block;
  }

  delta(block: string, text: string): this {
    return this.send({ type: "delta", block, text });
  }

  call(id: string, name: string, input: unknown = {}): this {
    return this.send({ type: "tool_call", id, name, input });
  }

  finish(reason: "stop" | "tool_calls" = "stop"): void {
    this.send({ type: "finished", reason, usage: USAGE });
    this.#push("end");
  }

  fail(error: Error): void {
    this.#push(error);
  }

  /** Ends the stream without `finished`. */
  breakOff(): void {
    this.#push("end");
  }

  async *stream(): AsyncGenerator<ModelPart> {
    try {
      for (;;) {
        const item = this.#queue.shift();
        if (item === undefined) await this.#more();
        else if (item === "end") return;
        else if (item instanceof Error) throw item;
        else yield item;
      }
    } finally {
      this.released = true;
    }
  }

  #push(item: Error | "end"): void {
    this.#queue.push(item);
    this.#wake?.();
  }

  #more(): Promise<void> {
    const { signal } = this.request;
    return new Promise((resolve, reject) => {
      if (!this.deaf) {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      }
      this.#wake = () => {
        this.#wake = null;
        resolve();
      };
    });
  }
}

/** A model that answers what the test says, when the test says it. */
export class ScriptedModel implements Model {
  readonly id: string;
  readonly exchanges: Exchange[] = [];
  /** Answers each request at once instead of waiting for the test. */
  answer: ((exchange: Exchange) => void) | null = null;
  #waiting: ((exchange: Exchange) => void)[] = [];
  #unseen: Exchange[] = [];

  constructor(id = "test/scripted") {
    this.id = id;
  }

  stream(request: ModelRequest): AsyncIterable<ModelPart> {
    const exchange = new Exchange(request);
    this.exchanges.push(exchange);
    exchange.send({ type: "started" });
    const waiting = this.#waiting.shift();
    if (this.answer !== null) this.answer(exchange);
    else if (waiting === undefined) this.#unseen.push(exchange);
    else waiting(exchange);
    return exchange.stream();
  }

  /** The next request that the model is asked, in order; resolves when it comes. */
  next(): Promise<Exchange> {
    const unseen = this.#unseen.shift();
    if (unseen !== undefined) return Promise.resolve(unseen);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Requests that no test has looked at. */
  get unseen(): number {
    return this.#unseen.length;
  }
}

/** The scripted models by id; one may be made unavailable. */
export class ScriptedModels implements ModelDirectory {
  readonly #models: ReadonlyMap<string, Model>;
  readonly #listeners = new Set<() => void>();
  readonly unavailable = new Set<string>();
  /** How often a model was looked for in vain. */
  refusals = 0;

  constructor(...models: Model[]) {
    this.#models = new Map(models.map((model) => [model.id, model]));
  }

  async list(): Promise<readonly ModelInfo[]> {
    return [];
  }

  async known(id: string): Promise<boolean> {
    return this.#models.has(id);
  }

  async defaultId(): Promise<string> {
    return [...this.#models.keys()][0] ?? "none/none";
  }

  resolve(id: string): Model {
    const model = this.unavailable.has(id) ? undefined : this.#models.get(id);
    if (model !== undefined) return model;
    this.refusals += 1;
    throw new ProviderError("model_unavailable", "Not now", { retryable: false });
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** What a change of the settings does. */
  changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** The text of the newest user message of a request. */
export function lastUserText(request: ModelRequest): string {
  const message = request.messages.findLast(({ role }) => role === "user");
  return (message?.parts ?? [])
    .map((part) => (part.type === "text" ? part.text : `[${part.type}]`))
    .join("\n");
}
