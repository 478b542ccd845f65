import { resolve } from "node:path";
import { ADMISSION_BODY_BYTES_MAX, MIB } from "../base/limits.ts";
import { Uncertain } from "../client/client.ts";
import type { Client, OperationHandle, Turn, Upload } from "../client/client.ts";
import { CANCEL_WORDS } from "./cancel.ts";
import type { Context } from "./context.ts";
import { EXIT, usageError } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { keepOn, letGo, sendKept } from "./kept_send.ts";
import { findSession, orNoMatch } from "./lookup.ts";
import { cancelOwn } from "./own_cancellation.ts";
import type { OwnCancellation } from "./own_cancellation.ts";
import { processStdin, promptText, readImages } from "./prompt_text.ts";
import { resolveHint } from "./run.ts";
import { cutToWidth } from "./terminal_text.ts";
import { createPrinter } from "./turn_printer.ts";
import type { PromptOutcome, PromptResult, TurnPrinter } from "./turn_printer.ts";
import { watchTurn } from "./turn_watch.ts";
import type { TurnEnd } from "./turn_watch.ts";

/**
 * Owns `albedo prompt`: one message, its answer, its end (sessions.md, Prompt ownership and cancellation).
 *
 * A timeout and the first Ctrl-C take back this program's own submission, within five seconds of their own, and
 * say truthfully what came of it. The second Ctrl-C leaves at once and says how to find out later.
 */
export interface PromptOptions {
  readonly words: readonly string[];
  /** Goes on without a new message; only in a session that is there. */
  readonly continuation: boolean;
  /** An id of a session that must be there; without it a session is made in the current directory. */
  readonly session: string | null;
  readonly model: string | null;
  readonly images: readonly string[];
  readonly timeoutSeconds: number | null;
  readonly json: boolean;
  readonly quiet: boolean;
}

/** Why the verb stops before the turn has ended. */
type StopReason = "timeout" | "interrupted";

const SUMMARY_COLUMNS = 60;

export async function prompt(context: Context, options: PromptOptions): Promise<ExitCode> {
  return await new Prompt(context, options).run();
}

interface Message {
  readonly text: string;
  readonly images: readonly Upload[];
}

class Prompt {
  readonly #context: Context;
  readonly #options: PromptOptions;
  readonly #printer: TurnPrinter;
  readonly #stop = new AbortController();
  #stopReason: StopReason | null = null;
  #client: Client | null = null;
  #sessionId: string | null = null;
  /** The operation that is under way. */
  #handle: OperationHandle | null = null;
  #summary = "";
  #turnId: string | null = null;

  constructor(context: Context, options: PromptOptions) {
    this.#context = context;
    this.#options = options;
    this.#printer = createPrinter(context.output, options);
  }

  async run(): Promise<ExitCode> {
    const { clock, signals, connect } = this.#context;
    const seconds = this.#options.timeoutSeconds;
    const timer =
      seconds === null ? null : clock.timer(seconds * 1000, () => this.#abort("timeout"));
    const unlisten = signals.listen(
      () => this.#abort("interrupted"),
      () => this.#leave(),
    );
    try {
      try {
        const { signal } = this.#stop;
        // Whoever writes to the pipe may never finish: the time and Ctrl-C hold for that too.
        const message = await unlessAborted(this.#message(), signal);
        const client = await unlessAborted(connect(), signal);
        this.#client = client;
        return await this.#conclude(await this.#work(client, message));
      } catch (error) {
        if (this.#stopReason !== null) return await this.#takeBack(this.#stopReason, error);
        if (error instanceof Uncertain) return this.#uncertain(error);
        throw error;
      }
    } finally {
      timer?.cancel();
      unlisten();
    }
  }

  async #message(): Promise<Message> {
    const { continuation, words, images } = this.#options;
    return {
      text: continuation ? "" : await promptText(words, images.length, processStdin),
      images: await readImages(images),
    };
  }

  async #work(client: Client, { text, images }: Message): Promise<TurnEnd> {
    const { signal } = this.#stop;
    const fields = {
      ...(text === "" ? {} : { text }),
      ...(images.length === 0 ? {} : { images }),
    };
    // A refusal by the daemon would leave an empty session behind.
    if (images.length > 0) assertFits(client.prepareMessage(ANY_SESSION, fields));
    const { sessionId, afterRow } = await this.#openSession(client, text);
    signal.throwIfAborted();
    const handle = this.#options.continuation
      ? client.prepareContinuation(sessionId)
      : client.prepareMessage(sessionId, fields);
    this.#begin(handle, this.#options.continuation ? "(go on)" : text);
    const sent = sendKept(this.#context, handle, this.#summary, { signal }).then((accepted) => {
      this.#printer.accepted(sessionId, accepted.operationId);
    });
    // The stream is opened while the message is on its way, so that its first words are not missed.
    const watching = new AbortController();
    const watched = watchTurn({
      client,
      clock: this.#context.clock,
      sessionId,
      inputId: handle.operationId,
      afterRow,
      show: (shown) => {
        if (shown.type === "turn_started") this.#turnId = shown.turn_id;
        this.#printer.show(shown);
      },
      notice: this.#context.notice,
      signal: AbortSignal.any([signal, watching.signal]),
    });
    try {
      const [end] = await Promise.all([watched, sent]);
      return end;
    } catch (error) {
      watching.abort();
      // Both have ended before anything else is said.
      await Promise.allSettled([watched, sent]);
      throw error;
    }
  }

  /** The session to submit to, and the newest row that was there before. */
  async #openSession(
    client: Client,
    text: string,
  ): Promise<{ sessionId: string; afterRow: number }> {
    const { session, model } = this.#options;
    const { signal } = this.#stop;
    if (session !== null) {
      const sessionId = await findSession(client, session);
      this.#sessionId = sessionId;
      if (model !== null) {
        await client.patchSession(sessionId, { model }, {}, { signal });
        this.#context.notice(`the session's model is ${model} from now on`);
      }
      const page = await orNoMatch(session, client.history(sessionId, { limit: 1 }, { signal }));
      this.#printer.session(sessionId, false);
      return { sessionId, afterRow: page.watermark };
    }
    const handle = client.prepareSession({
      workspace: resolve(this.#context.workingDirectory),
      ...(model === null ? {} : { model }),
    });
    this.#begin(handle, `new session for: ${text}`);
    const { sessionId } = await sendKept(this.#context, handle, this.#summary, { signal });
    this.#sessionId = sessionId;
    this.#handle = null;
    this.#printer.session(sessionId, true);
    return { sessionId, afterRow: 0 };
  }

  #begin(handle: OperationHandle, summary: string): void {
    this.#handle = handle;
    this.#summary = cutToWidth(summary, SUMMARY_COLUMNS);
  }

  #abort(reason: StopReason): void {
    if (this.#stopReason !== null) return;
    this.#stopReason = reason;
    this.#stop.abort(new DOMException(reason, "AbortError"));
  }

  /** The second Ctrl-C: nothing is waited for. */
  #leave(): void {
    const { stderr } = this.#context.output;
    this.#printer.result(this.#result("interrupted", { cancellation: "unconfirmed" }));
    this.#say("left without waiting: unconfirmed cancellation");
    if (this.#handle !== null) stderr.line("  ", resolveHint(this.#handle.operationId));
    process.exit(EXIT.interrupted);
  }

  async #conclude(end: TurnEnd): Promise<ExitCode> {
    switch (end.state) {
      case "ended":
        return this.#turnEnded(end.turn);
      case "cancelled":
        return this.#finish(
          "cancelled",
          "the input was cancelled by someone else",
          EXIT.interrupted,
        );
      case "deleted":
        return this.#finish("interrupted", "the session was deleted", EXIT.interrupted);
      case "unreachable":
        if (this.#handle !== null) {
          await keepOn(this.#context, this.#handle, this.#summary, "outcome");
        }
        return this.#finish(
          "uncertain",
          `the daemon is gone, and the outcome is not known yet: ${end.reason}`,
          EXIT.uncertain,
        );
    }
  }

  #turnEnded(turn: Turn): ExitCode {
    const error = turn.error === undefined ? {} : { error: turn.error };
    switch (turn.state) {
      case "completed":
        this.#printer.result(this.#result("completed"));
        return EXIT.done;
      case "interrupted":
        return this.#finish("interrupted", "the turn was interrupted", EXIT.interrupted, error);
      case "failed":
      case "running": {
        const why = turn.error === undefined ? "" : `: ${turn.error.message} (${turn.error.code})`;
        return this.#finish("failed", `the turn failed${why}`, EXIT.failed, error);
      }
    }
  }

  /** Ends with words on stderr. */
  #finish(
    outcome: PromptOutcome,
    words: string,
    code: ExitCode,
    extra: { error?: Turn["error"]; cancellation?: OwnCancellation["result"] } = {},
  ): ExitCode {
    this.#printer.result(this.#result(outcome, extra));
    this.#say(words);
    if (code === EXIT.uncertain && this.#handle !== null) {
      this.#context.output.stderr.line("  ", resolveHint(this.#handle.operationId));
    }
    return code;
  }

  /** A timeout or Ctrl-C: takes the own submission back, and says what came of it. */
  async #takeBack(reason: StopReason, error: unknown): Promise<ExitCode> {
    const code = reason === "timeout" ? EXIT.timeout : EXIT.interrupted;
    const why =
      reason === "timeout" ? `timed out after ${this.#options.timeoutSeconds} s` : "interrupted";
    const handle = this.#handle;
    const sessionId = this.#sessionId;
    const client = this.#client;
    if (client === null || handle === null || !handle.maybeSent) {
      return this.#finish(reason, `${why}; nothing was sent`, code);
    }
    const hint = resolveHint(handle.operationId);
    if (handle.kind === "session_create" || sessionId === null) {
      const words =
        error instanceof Uncertain
          ? "whether the session was made is not known"
          : "the session was made, and nothing was sent to it";
      this.#finish(reason, `${why}; ${words}`, code);
      this.#context.output.stderr.line("  ", hint);
      return code;
    }
    // From here on a killed client leaves behind what is not known: how the input goes on.
    await keepOn(this.#context, handle, this.#summary, "outcome");
    const cancellation = await cancelOwn(
      client,
      { sessionId, inputId: handle.operationId },
      this.#context.clock,
    );
    if (cancellation.result !== "unconfirmed") {
      await letGo(this.#context, handle);
      const words = CANCEL_WORDS[cancellation.result];
      return this.#finish(reason, `${why}; ${words}`, code, { cancellation: cancellation.result });
    }
    const words = `unconfirmed cancellation (${cancellation.reason})`;
    this.#finish(reason, `${why}; ${words}`, code, { cancellation: "unconfirmed" });
    this.#context.output.stderr.line("  ", hint);
    return code;
  }

  #uncertain(error: Uncertain): ExitCode {
    return this.#finish("uncertain", error.message, EXIT.uncertain);
  }

  #result(
    outcome: PromptOutcome,
    extra: { error?: Turn["error"]; cancellation?: OwnCancellation["result"] } = {},
  ): PromptResult {
    const handle = this.#handle;
    return {
      outcome,
      session_id: this.#sessionId,
      operation_id: handle === null || !handle.maybeSent ? null : handle.operationId,
      turn_id: this.#turnId,
      ...extra,
    };
  }

  /** Shown with `--quiet` too: the person would not know how it ended. */
  #say(words: string): void {
    this.#context.output.stdout.endLineOnTerminal();
    this.#context.output.stderr.line(["red", "albedo: "], words);
  }
}

/** For a message whose size alone is asked for. */
const ANY_SESSION = "00000000-0000-7000-8000-000000000000";

/** @throws {CliError} when the message is larger than the daemon takes */
function assertFits(handle: OperationHandle): void {
  const bytes = handle.body.length;
  if (bytes <= ADMISSION_BODY_BYTES_MAX) return;
  throw usageError(
    `A message may have ${ADMISSION_BODY_BYTES_MAX / MIB} MiB in all: ` +
      `as they are sent, these images have ${(bytes / MIB).toFixed(1)} MiB`,
  );
}

/** The work, unless the signal ends the wait for it. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    work.then(resolve, reject);
  });
}
