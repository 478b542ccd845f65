import { sleep } from "../base/clock.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, TransportError } from "../client/client.ts";
import type { Client, Input, SubscriptionEnd, SubscriptionState, Turn } from "../client/client.ts";
import { rowsBetween, wholeEvent, wholeRows } from "./history_rows.ts";
import { StreamFollower } from "./stream_follower.ts";
import type { Shown } from "./stream_follower.ts";

/**
 * Owns following one input to its end (sessions.md, Prompt ownership and cancellation). The stream tells what
 * happens, the durable input tells how it ended: never echo metadata, never an idle status. Both survive
 * reconnects and restarts.
 */
export type TurnEnd =
  | { readonly state: "ended"; readonly turn: Turn }
  /** Somebody cancelled it while it waited. */
  | { readonly state: "cancelled" }
  /** The session is gone, and its waiting inputs with it. */
  | { readonly state: "deleted" }
  /** The daemon was stopped in order and nobody has started it again. */
  | { readonly state: "unreachable"; readonly reason: string };

export interface WatchOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly sessionId: string;
  readonly inputId: string;
  /** Rows up to this one were there before the input. */
  readonly afterRow: number;
  readonly show: (shown: Shown) => void;
  readonly notice: (text: string) => void;
  readonly signal: AbortSignal;
}

/** How long a daemon that was stopped in order may take to come back. */
const AWAY_MS_MAX = 15_000;
const POLL_MS = 500;

/**
 * @returns how the input ended
 * @throws the signal's reason when it aborts
 */
export async function watchTurn(options: WatchOptions): Promise<TurnEnd> {
  const watch = new TurnWatch(options);
  return await watch.run();
}

class TurnWatch {
  readonly #options: WatchOptions;
  readonly #follower: StreamFollower;
  readonly #stop = new AbortController();
  #end: TurnEnd | null = null;
  #awaySince: number | null = null;

  constructor(options: WatchOptions) {
    this.#options = options;
    const { inputId, afterRow } = options;
    this.#follower = new StreamFollower({ inputId, afterRow });
  }

  async run(): Promise<TurnEnd> {
    const { clock, signal, notice } = this.#options;
    for (;;) {
      const ended = await this.#subscribe();
      signal.throwIfAborted();
      if (this.#end !== null) return this.#end;
      if (ended.reason === "callback" && mayPass(ended.error)) {
        // What a reset left out could not be read just then; a new attachment begins with a reset.
        this.#noteAway(ended.error);
        await sleep(clock, POLL_MS, signal);
        continue;
      }
      if (ended.reason !== "aborted") {
        notice(`the stream ended: ${ended.error.message}; asking for the outcome instead`);
      }
      return await this.#poll();
    }
  }

  #subscribe(): Promise<SubscriptionEnd> {
    const { client, sessionId, signal } = this.#options;
    const subscription = client.subscribe(sessionId, {
      signal: AbortSignal.any([signal, this.#stop.signal]),
      onReset: async (reset) => {
        await this.#readGap(reset.history[0]?.id ?? reset.history_watermark + 1);
        const history = await wholeRows(client, sessionId, reset.history, { signal });
        await this.#take(this.#follower.reset({ ...reset, history }));
      },
      onEvent: async (event) => {
        const whole = await wholeEvent(client, sessionId, event, { signal });
        await this.#take(this.#follower.event(whole));
      },
      onState: (state) => this.#onState(state),
    });
    return subscription.ended;
  }

  /** That the stream failed does not say that the work did: the input still tells how it ends. */
  async #poll(): Promise<TurnEnd> {
    const { clock, signal } = this.#options;
    for (;;) {
      try {
        await this.#check();
        this.#awaySince = null;
      } catch (error) {
        if (!(error instanceof Error) || !mayPass(error)) throw error;
        this.#noteAway(error);
      }
      if (this.#end !== null) return this.#end;
      await sleep(clock, POLL_MS, signal);
    }
  }

  async #take(shown: readonly Shown[]): Promise<void> {
    for (const each of shown) {
      if (each.type === "check") await this.#check();
      else this.#options.show(each);
      if (each.type === "turn_finished") this.#finish({ state: "ended", turn: each.turn });
    }
  }

  /** Asks the durable input how it stands. */
  async #check(): Promise<void> {
    const { client, sessionId, inputId, signal } = this.#options;
    let input: Input;
    try {
      input = await client.getInput(sessionId, inputId, { signal });
    } catch (error) {
      // A submission that is still on its way is not known yet; the stream will tell of it.
      if (error instanceof ApiError && error.code === "input_not_found") return;
      if (error instanceof ApiError && error.code === "session_not_found") {
        this.#finish({ state: "deleted" });
        return;
      }
      throw error;
    }
    if (input.state === "cancelled") this.#finish({ state: "cancelled" });
    if (input.turn === undefined) return;
    for (const each of this.#follower.joinTurn(input.turn.id)) this.#options.show(each);
    if (input.turn.state === "running") return;
    await this.#readGap(Number.POSITIVE_INFINITY);
    this.#finish({ state: "ended", turn: input.turn });
  }

  /** Shows the rows between the last one taken in and the first one that the reset holds. */
  async #readGap(before: number): Promise<void> {
    const { client, sessionId, signal, show } = this.#options;
    const missed = await rowsBetween(client, sessionId, this.#follower.lastRow, before, { signal });
    const rows = await wholeRows(client, sessionId, missed, { signal });
    for (const each of this.#follower.rows(rows)) show(each);
  }

  #onState(state: SubscriptionState): void {
    if (state.kind === "live") this.#awaySince = null;
    if (state.kind === "waiting") this.#noteAway(state.cause);
    if (state.kind === "recovering") {
      this.#options.notice(`the stream was not understood (${state.cause.message}); starting over`);
    }
  }

  #noteAway(cause: Error): void {
    const { clock, notice } = this.#options;
    const now = clock.monotonic();
    if (this.#awaySince === null) {
      this.#awaySince = now;
      notice("the connection to the daemon is gone; waiting for it");
    }
    if (now - this.#awaySince > AWAY_MS_MAX) {
      this.#finish({ state: "unreachable", reason: cause.message });
    }
  }

  #finish(end: TurnEnd): void {
    this.#end ??= end;
    this.#stop.abort();
  }
}

/** Whether the same request may succeed later, since the daemon is away or busy. */
function mayPass(error: Error): boolean {
  if (error instanceof ApiError) return error.status >= 500 || error.status === 429;
  return error instanceof TransportError;
}
