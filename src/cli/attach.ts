import type { SubscriptionEnd } from "../client/client.ts";
import type { Context } from "./context.ts";
import { CliError, EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { rowBefore, rowsBetween, wholeEvent, wholeRows } from "./history_rows.ts";
import { findSession, noMatchOr } from "./lookup.ts";
import type { Sink } from "./output.ts";
import { blockedWords, printRow, printToolCall, printToolResult } from "./row_text.ts";
import { StreamFollower } from "./stream_follower.ts";
import type { Shown } from "./stream_follower.ts";

/**
 * Owns `albedo attach` in line form: the end of the history, then text, thinking and tools as they come, until
 * Ctrl-C (sessions.md, session attachment). It only watches: leaving stops nothing.
 */
export interface AttachOptions {
  readonly json: boolean;
  /** Rows of history to begin with. */
  readonly tail: number;
}

export async function attach(
  context: Context,
  sessionText: string,
  options: AttachOptions,
): Promise<ExitCode> {
  const client = await context.connect();
  const sessionId = await findSession(client, sessionText);
  const { stdout } = context.output;
  const follower = new StreamFollower({
    inputId: null,
    afterRow: await rowBefore(client, sessionId, options.tail),
  });
  const view = options.json ? null : new LineView(stdout);
  const show = (shown: readonly Shown[]): void => {
    for (const each of shown) {
      if (view === null) printJson(stdout, each);
      else view.show(each);
    }
  };
  const stop = new AbortController();
  const unlisten = context.signals.listen(
    () => stop.abort(),
    () => process.exit(EXIT.interrupted),
  );
  if (!options.json) context.notice(`attached to ${sessionId}; Ctrl-C leaves it running`);
  const subscription = client.subscribe(sessionId, {
    signal: stop.signal,
    onReset: async (reset) => {
      const first = reset.history[0]?.id ?? reset.history_watermark + 1;
      const missed = await rowsBetween(client, sessionId, follower.lastRow, first);
      show(follower.rows(await wholeRows(client, sessionId, missed)));
      const history = await wholeRows(client, sessionId, reset.history);
      show(follower.reset({ ...reset, history }));
    },
    onEvent: async (event) => show(follower.event(await wholeEvent(client, sessionId, event))),
    onState: (state) => {
      if (state.kind === "waiting") {
        context.notice(`the connection is gone (${state.cause.message}); trying again`);
      }
      if (state.kind === "recovering") {
        context.notice(`the stream was not understood (${state.cause.message}); starting over`);
      }
    },
  });
  const ended = await subscription.ended;
  unlisten();
  view?.end();
  return conclude(ended, sessionText);
}

function conclude(ended: SubscriptionEnd, sessionText: string): ExitCode {
  if (ended.reason === "aborted") return EXIT.done;
  const error = noMatchOr(sessionText, ended.error);
  if (error instanceof CliError) throw error;
  throw new CliError(`The stream ended: ${error.message}`, {
    hints: ["What runs in the session goes on; `albedo attach` watches it again"],
    cause: ended.error,
  });
}

function printJson(stdout: Sink, shown: Shown): void {
  if (shown.type !== "check") stdout.json(shown);
}

/** Text and thinking run on; everything else is lines of its own. */
class LineView {
  readonly #sink: Sink;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  end(): void {
    this.#sink.endLine();
  }

  show(shown: Shown): void {
    const sink = this.#sink;
    switch (shown.type) {
      case "text":
        sink.put(shown.text);
        return;
      case "thinking":
        sink.put(["faint", shown.text]);
        return;
      case "block_end":
        sink.endLine();
        return;
      case "input":
        printRow(sink, shown.row);
        return;
      case "tool_started":
        printToolCall(sink, shown.tool_name, shown.preview);
        return;
      case "tool_finished":
        printToolResult(sink, shown.status, shown.text);
        return;
      case "retry":
        sink.line(["yellow", `attempt ${shown.attempt} failed: ${shown.message}; it is void`]);
        return;
      case "note":
        for (const line of shown.text.split("\n")) sink.line(["faint", line]);
        return;
      case "blocked":
        sink.line(["yellow", blockedWords(shown.reason)]);
        return;
      case "turn_finished":
        this.#turnFinished(shown);
        return;
      case "turn_started":
      case "check":
        return;
    }
  }

  #turnFinished({ turn }: Extract<Shown, { type: "turn_finished" }>): void {
    if (turn.state === "completed") return;
    const why = turn.error === undefined ? "" : `: ${turn.error.message} (${turn.error.code})`;
    this.#sink.line(["yellow", `— turn ${turn.state}${why} —`]);
  }
}
