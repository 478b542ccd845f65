import type { ModelDirectory } from "../agent/models.ts";
import { splitModelId } from "../agent/models.ts";
import { buildMessages, systemPrompt } from "../agent/prompt.ts";
import {
  type Model,
  type ModelMessage,
  type ModelPart,
  type ModelRequest,
  ProviderError,
  type ToolCallPart,
} from "../agent/provider.ts";
import { randomUnit, retryDelayMs } from "../agent/retry.ts";
import type { Tool, ToolResult } from "../agent/tool.ts";
import { type Clock, sleep, type Timer } from "../base/clock.ts";
import type { Ids, RandomSource } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { scrub } from "../base/redact.ts";
import type { NewRow, SessionRecord, TurnEnd } from "../store/rows.ts";
import type { Store } from "../store/store.ts";
import { Problem } from "../wire/problem.ts";
import { Answer, type AnswerSink } from "./answer.ts";
import type { Batch } from "./consumption.ts";
import type { Flood } from "./flood.ts";
import type { Overflow } from "./overflow.ts";

/**
 * Owns the course of one turn: steps of a model and its tools, retries, steering at step boundaries, and its end
 * (contract.md, Pending inputs, turns and cancellation; Turns, models, tools). It keeps no state of the session: all
 * it does goes through its port, whose session hears nothing more of it once the turn is over.
 *
 * I1 A turn always ends, whatever a model or a tool does when it is told to stop: it is not waited for beyond
 *    `STOP_GRACE_MS`.
 * I2 What a model said is committed before its tools run, and a tool's result before the next step.
 * I3 A commit that fails for the disk's sake is tried again until it succeeds or the session closes; nothing that
 *    was produced is thrown away for it.
 */
export interface TurnPort extends AnswerSink {
  readonly turnId: string;
  /** Aborts when the turn is told to stop. */
  readonly signal: AbortSignal;
  /** The session is over: nothing can be written any more. */
  isClosed(): boolean;
  session(): SessionRecord;
  /** A call runs from now on. */
  toolRuns(call: ToolCallPart): void;
  toolOutput(callId: string, preview: string): void;
  retry(attempt: FailedAttempt): void;
  /** Resolves when the rows are on disk and published. @throws {Problem} storage_unavailable, session_not_found */
  commit(rows: readonly NewRow[], options: CommitOptions): Promise<void>;
  /** Whether something waits that a boundary may take. */
  maySteer(): boolean;
  /** Takes what waits into this turn; `null` when nothing could be taken. */
  steer(): Promise<Batch["work"] | null>;
}

export interface CommitOptions {
  /** The rows are a model's: all provisional output is retired, these identities by name. */
  readonly replaces?: readonly string[];
  readonly end?: TurnEnd;
}

export interface FailedAttempt {
  readonly messageId: string;
  readonly attempt: number;
  readonly delayMs: number;
  readonly code: string;
  readonly message: string;
  readonly liveIds: readonly string[];
}

export interface TurnDependencies {
  readonly store: Store;
  readonly models: ModelDirectory;
  readonly tools: readonly Tool[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly random: RandomSource;
  readonly log: Log;
  readonly overflow: Overflow;
  readonly flood: Flood;
}

/** How long tools may take to end what they started once the turn is told to stop. */
const STOP_GRACE_MS = 2000;
/** A model that goes on calling tools after so many steps does not get anywhere. */
const STEPS_MAX = 1000;
const COMMIT_RETRY_MS_MIN = 1000;
const COMMIT_RETRY_MS_MAX = 15_000;
/** How long a stream may keep the event loop before others get it. */
const SLICE_MS = 8;
const SLICE_PARTS_MAX = 64;
const ERROR_CHARS_MAX = 500;

const COMPACT_INSTRUCTION =
  "Sum up the conversation so far, so that the work can go on from your summary alone: what was asked for, what was " +
  "done and found out, which files matter, what is left to do. Write the summary and nothing else.";

/** Runs a turn to its end; never rejects. */
export async function runTurn(
  dependencies: TurnDependencies,
  port: TurnPort,
  work: Batch["work"],
): Promise<void> {
  await new TurnRun(dependencies, port).run(work);
}

class TurnRun {
  readonly #deps: TurnDependencies;
  readonly #port: TurnPort;
  readonly #callIds = new Set<string>();

  constructor(dependencies: TurnDependencies, port: TurnPort) {
    this.#deps = dependencies;
    this.#port = port;
  }

  async run(work: Batch["work"]): Promise<void> {
    try {
      await this.#steps(work);
    } catch (error) {
      await this.#fail(error);
    }
  }

  async #steps(first: Batch["work"]): Promise<void> {
    const port = this.#port;
    let owesAnswer = first === "answer";
    let compacts = first === "compact";
    for (let step = 0; step < STEPS_MAX; step += 1) {
      port.signal.throwIfAborted();
      if (compacts) {
        await this.#compact();
        compacts = false;
      } else if (owesAnswer) {
        const answer = await this.#ask(this.#request());
        owesAnswer = answer.calls.length > 0;
        // The last commit and the end of the turn are one.
        if (!owesAnswer && !port.maySteer()) return this.#complete(answer);
        await this.#commit(answer.rows(), { replaces: answer.liveIds });
        if (owesAnswer) await this.#callTools(answer.calls);
      }
      port.signal.throwIfAborted();
      const steered = await port.steer();
      port.signal.throwIfAborted();
      if (steered === "answer") owesAnswer = true;
      else if (steered === "compact") compacts = true;
      else if (steered === null && !owesAnswer) {
        return this.#commit([], { end: { state: "completed" } });
      }
    }
    throw new ProviderError("too_many_steps", `The turn did not end within ${STEPS_MAX} steps`, {
      retryable: false,
    });
  }

  #complete(answer: Answer): Promise<void> {
    return this.#commit(answer.rows(), {
      replaces: answer.liveIds,
      end: { state: "completed" },
    });
  }

  /** Ends a turn that was told to stop, or that could not go on. */
  async #fail(error: unknown): Promise<void> {
    const { port, log } = this.#scope();
    if (port.isClosed()) return;
    const end = port.signal.aborted
      ? ({ state: "interrupted" } as const)
      : ({ state: "failed", error: describe(error) } as const);
    if (end.state === "failed" && !(error instanceof ProviderError)) {
      log.error("A turn failed by a fault of the program", { error });
    }
    try {
      await this.#commit([], { end }, "whatever");
    } catch (failure) {
      // The session has gone, or closes with the store out of order: the next start ends the turn.
      if (!port.isClosed()) log.error("The end of a turn could not be stored", { error: failure });
    }
  }

  async #compact(): Promise<void> {
    const request = this.#request();
    const instruction = { type: "text", text: COMPACT_INSTRUCTION } as const;
    const last = request.messages.at(-1);
    const messages: readonly ModelMessage[] =
      last?.role === "user"
        ? [...request.messages.slice(0, -1), { ...last, parts: [...last.parts, instruction] }]
        : [...request.messages, { role: "user", parts: [instruction] }];
    const answer = await this.#ask({ ...request, messages, tools: [] });
    const text = answer.text.trim();
    const row: NewRow =
      text === ""
        ? { role: "note", text: "The conversation could not be summed up: the model said nothing" }
        : { role: "compaction", text };
    await this.#commit([row], { replaces: answer.liveIds });
  }

  #request(): ModelRequest {
    const { port, store, tools, clock } = this.#scope();
    const session = port.session();
    const { instructions, thinking, max_output_tokens: maxOutputTokens } = session.settings;
    const messages = buildMessages({
      rows: store.conversation.transcript(session.id),
      provider: splitModelId(session.model)[0],
      readImage: (imageId) => store.images.get(session.id, imageId, "fitted"),
    });
    return {
      system: systemPrompt({
        workspace: session.workspace,
        platform: process.platform,
        now: clock.now(),
        instructions: instructions ?? null,
        toolNames: tools.map(({ name }) => name),
      }),
      messages,
      tools,
      thinking: thinking ?? "medium",
      maxOutputTokens: maxOutputTokens ?? null,
      signal: port.signal,
    };
  }

  /** Asks until there is an answer. Each attempt has an identity of its own. */
  async #ask(request: ModelRequest): Promise<Answer> {
    const { port, models, ids, clock, random } = this.#scope();
    for (let attempt = 1; ; attempt += 1) {
      port.signal.throwIfAborted();
      const answer = new Answer(ids.uuidv7(), port, this.#callIds);
      try {
        await this.#stream(models.resolve(port.session().model), request, answer);
        // What was streamed leaves the process at the end of a turn of the event loop; the commit that follows holds
        // everything up until it is on disk.
        await otherWork();
        port.signal.throwIfAborted();
        for (const { id } of answer.calls) this.#callIds.add(id);
        return answer;
      } catch (error) {
        port.signal.throwIfAborted();
        const delayMs = retryDelayMs(attempt, error, randomUnit(random));
        if (delayMs === null) throw error;
        const { code, message } = describe(error);
        const { messageId, liveIds } = answer;
        port.retry({ messageId, attempt, delayMs, code, message, liveIds });
        await sleep(clock, delayMs, port.signal);
      }
    }
  }

  async #stream(model: Model, request: ModelRequest, answer: Answer): Promise<void> {
    const { port, clock, flood } = this.#scope();
    const parts = model.stream(request)[Symbol.asyncIterator]();
    let sliceStart = clock.monotonic();
    let sliceParts = 0;
    try {
      for (;;) {
        const next = await nextOrAbort(parts, port.signal);
        if (next.done === true) break;
        answer.take(next.value);
        if (next.value.type === "delta") flood.passed(next.value.text.length);
        sliceParts += 1;
        if (sliceParts < SLICE_PARTS_MAX && clock.monotonic() - sliceStart < SLICE_MS) continue;
        await otherWork();
        port.signal.throwIfAborted();
        sliceStart = clock.monotonic();
        sliceParts = 0;
      }
    } catch (error) {
      letGo(parts);
      throw error;
    }
    if (answer.finished === null) {
      throw new ProviderError("stream_broken", "The answer broke off", { retryable: true });
    }
  }

  /** Runs the calls side by side; each result is committed as it comes. */
  async #callTools(calls: readonly ToolCallPart[]): Promise<void> {
    const { port, clock } = this.#scope();
    const runs = calls.map((call) => this.#callTool(call));
    const all = Promise.allSettled(runs);
    await settledOrStopped(all, port.signal, clock);
    port.signal.throwIfAborted();
    for (const outcome of await all) if (outcome.status === "rejected") throw outcome.reason;
  }

  async #callTool(call: ToolCallPart): Promise<void> {
    const port = this.#port;
    port.toolRuns(call);
    const { output, isError } = await this.#runTool(call);
    port.signal.throwIfAborted();
    await this.#commit(
      [
        {
          role: "tool_result",
          toolCallId: call.id,
          toolName: call.name,
          text: output.toWellFormed(),
          status: isError ? "error" : "ok",
        },
      ],
      {},
    );
  }

  async #runTool(call: ToolCallPart): Promise<ToolResult> {
    const { port, tools, clock, log, overflow } = this.#scope();
    const tool = tools.find(({ name }) => name === call.name);
    if (tool === undefined) {
      return { output: `There is no tool '${call.name}'`, isError: true };
    }
    const session = port.session();
    const overflowDirectory = await overflow.directory(session.id);
    try {
      return await tool.run(call.input, {
        workspace: session.workspace,
        signal: port.signal,
        clock,
        overflowDirectory,
        progress: (preview) => port.toolOutput(call.id, preview),
      });
    } catch (error) {
      port.signal.throwIfAborted();
      log.error("A tool failed by a fault of the program", { tool: call.name, error });
      return { output: "The tool failed by a fault of its own", isError: true };
    }
  }

  /**
   * @param until `told`: gives up when the turn is told to stop; `whatever`: only when the session closes
   */
  async #commit(
    rows: readonly NewRow[],
    options: CommitOptions,
    until: "told" | "whatever" = "told",
  ): Promise<void> {
    const { port, clock, log } = this.#scope();
    for (
      let delayMs = COMMIT_RETRY_MS_MIN;
      ;
      delayMs = Math.min(COMMIT_RETRY_MS_MAX, 2 * delayMs)
    ) {
      try {
        await port.commit(rows, options);
        return;
      } catch (error) {
        if (
          port.isClosed() ||
          !(error instanceof Problem) ||
          error.code !== "storage_unavailable"
        ) {
          throw error;
        }
        log.warn("A turn waits for the store", { turn_id: port.turnId, delay_ms: delayMs });
        await sleep(clock, delayMs, until === "told" ? port.signal : undefined);
        if (port.isClosed()) throw error;
      }
    }
  }

  #scope(): TurnDependencies & { readonly port: TurnPort } {
    return { ...this.#deps, port: this.#port };
  }
}

/** The next part, or the signal's reason as soon as it aborts; what comes later is not listened to. */
async function nextOrAbort(
  parts: AsyncIterator<ModelPart>,
  signal: AbortSignal,
): Promise<IteratorResult<ModelPart>> {
  signal.throwIfAborted();
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([parts.next(), aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Tells a stream that nobody reads it any more, without waiting for it. */
function letGo(parts: AsyncIterator<ModelPart>): void {
  const ended = parts.return?.();
  // A stream that was broken may say so again; the turn knows already.
  ended?.then(
    () => undefined,
    () => undefined,
  );
}

/** Resolves when all is settled, or `STOP_GRACE_MS` after the signal aborted. */
async function settledOrStopped(
  all: Promise<unknown>,
  signal: AbortSignal,
  clock: Clock,
): Promise<void> {
  const { promise: graceOver, resolve } = Promise.withResolvers<void>();
  let timer: Timer | null = null;
  const onAbort = (): void => {
    timer = clock.timer(STOP_GRACE_MS, resolve);
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  try {
    await Promise.race([all, graceOver]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    cancel(timer);
  }
}

function cancel(timer: Timer | null): void {
  timer?.cancel();
}

function otherWork(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function describe(error: unknown): { code: string; message: string } {
  if (error instanceof ProviderError) {
    return { code: error.code, message: scrub(error.message, ERROR_CHARS_MAX) };
  }
  return { code: "internal", message: "The turn failed by a fault of the daemon" };
}
