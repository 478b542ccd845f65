import type { ToolCallPart } from "../agent/provider.ts";
import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import type { Committed, ConsumeRequest, Consumption as Consumed } from "../store/conversation.ts";
import { renderPending } from "../store/render.ts";
import type { NewRow, PendingRecord, SessionRecord } from "../store/rows.ts";
import type { Store } from "../store/store.ts";
import type { EventBody } from "../wire/event.ts";
import type { Turn } from "../wire/input.ts";
import { Problem } from "../wire/problem.ts";
import type { SessionResource } from "../wire/session.ts";
import { BlockedQueue } from "./blocked_queue.ts";
import type { Batch, Consumption } from "./consumption.ts";
import { commitEvents, consumptionEvents } from "./publication.ts";
import type { Running, RunningOwner } from "./running.ts";
import {
  advance,
  type BlockingReason,
  initialState,
  isQuiet,
  maySteer,
  type SessionEffect,
  type SessionEvent,
  type SessionState,
  type StopReason,
  type View,
  viewOf,
  type Waiting,
} from "./session_state.ts";
import { sessionResource } from "./snapshot.ts";
import type { Spill } from "./spill.ts";
import { SessionStream } from "./stream.ts";
import type { StreamPosition, Subscription } from "./subscription.ts";
import { type CommitOptions, runTurn, type TurnDependencies, type TurnPort } from "./turn.ts";

/**
 * Owns one loaded session: its state, its stream, and the turn that runs (architecture.md, Who owns what).
 *
 * I1 Every change of its state is one synchronous step: state, events and wakes together. Steps follow commits;
 *    nothing is published before it is on disk.
 * I2 A snapshot is taken in one step, so its parts belong to the same cursor.
 * I3 It knows readers by their position alone, never a socket.
 * I4 A lifetime has one generation; a session that is loaded again has another.
 * I5 What belongs to an older preparation or turn (an epoch) changes nothing.
 */
export interface SessionDependencies {
  readonly store: Store;
  readonly consumption: Consumption;
  readonly turn: TurnDependencies;
  readonly spill: Spill;
  readonly running: Running;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** A turn that was interrupted has ended. */
  readonly onInterrupted: (sessionId: string) => void;
}

export class Session implements RunningOwner {
  readonly id: string;
  readonly #deps: SessionDependencies;
  readonly #stream: SessionStream;
  readonly #blocked: BlockedQueue;
  #record: SessionRecord;
  #state: SessionState;
  #view: View;
  #controller = new AbortController();
  #quietWaiters: (() => void)[] = [];
  #consuming = 0;
  #closed = false;

  constructor(dependencies: SessionDependencies, record: SessionRecord) {
    const { store, clock, ids, log } = dependencies;
    this.id = record.id;
    this.#deps = dependencies;
    this.#record = record;
    this.#state = initialState({
      waiting: this.#readWaiting(),
      interrupted: record.phase === "interrupted",
    });
    this.#view = viewOf(this.#state);
    this.#stream = new SessionStream({
      generation: ids.uuidv7(),
      clock,
      moment: () => this.#moment(),
      readTail: (rows, bytesMax) => store.history.tail(record.id, rows, bytesMax),
    });
    this.#blocked = new BlockedQueue({
      clock,
      log,
      reason: () => this.#state.blocking?.reason ?? null,
      workspace: () => this.#record.workspace,
      store: (reason) => store.operations.setBlocking(record.id, reason),
      onRetryDue: () => this.#step({ kind: "retry_due" }),
      onWorkspaceBack: () => this.unblock("workspace_missing"),
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  get parentId(): string | null {
    return this.#record.parentId;
  }

  get view(): View {
    return this.#view;
  }

  /** The turn that runs, and whether it was told to stop. */
  get turn(): { readonly turn: Turn; readonly stop: StopReason | null } | null {
    const { activity } = this.#state;
    return activity.kind === "turn" ? activity : null;
  }

  /** Nothing runs and nothing waits. */
  get quiet(): boolean {
    return isQuiet(this.#state);
  }

  /** A consumption is on its way to the disk: what it takes belongs to the turn, though the turn does not know yet. */
  get consuming(): boolean {
    return this.#consuming > 0;
  }

  get watched(): boolean {
    return this.#stream.watched;
  }

  /** Starts what waits. */
  wake(): void {
    this.#step({ kind: "woken" });
  }

  /** An input was accepted. */
  accept(record: PendingRecord): void {
    const input = toWaiting(record);
    if (this.#state.waiting.some(({ id }) => id === input.id)) return;
    const { blockingReason } = this.#view;
    const reason = blockingReason === null ? {} : { blocking_reason: blockingReason };
    const shown = { ...input.shown, ...reason };
    this.#step({ kind: "accepted", input }, [{ kind: "input_accepted", input: shown }]);
  }

  /** Waiting inputs were cancelled. */
  cancelled(ids: readonly string[]): void {
    if (ids.length === 0) return;
    this.#step(
      { kind: "cancelled", ids },
      ids.map((id) => ({ kind: "input_cancelled", input_id: id })),
    );
  }

  /** Tells the running turn to stop; the value is its id, or `null` where none runs. */
  stop(reason: StopReason): string | null {
    const { activity } = this.#state;
    if (activity.kind !== "turn") return null;
    this.#step({ kind: "stop", reason });
    return activity.turn.id;
  }

  /** Nothing starts any more, and the running turn is told to stop. */
  beginClosing(reason: StopReason): void {
    if (!this.#closed) this.#step({ kind: "closing", reason });
  }

  /** Resolves when no turn runs and none is prepared. */
  whenStopped(): Promise<void> {
    if (this.#closed || this.#state.activity.kind === "quiet") return Promise.resolve();
    return new Promise((resolve) => this.#quietWaiters.push(resolve));
  }

  /** The end of this lifetime: readers take what is left and end. */
  close(reason: StopReason): void {
    if (this.#closed) return;
    this.beginClosing(reason);
    this.#closed = true;
    this.#controller.abort(new TurnStopped(reason));
    this.#blocked.cancel();
    this.#deps.running.clear(this.id, this);
    this.#stream.close();
    this.#release();
  }

  /** The writable part was changed. */
  patched(record: SessionRecord): void {
    const { title, model } = this.#record;
    this.#record = record;
    if (record.title !== title || record.model !== model) this.#publishRecord();
    if (record.model !== model) this.unblock("model_unavailable");
  }

  /** What may have blocked the queue has changed. */
  unblock(reason: BlockingReason): void {
    this.#step({ kind: "unblocked", reason });
  }

  /**
   * Starts a turn that sums up the transcript.
   *
   * @throws {Problem} session_busy, storage_unavailable
   */
  async compact(): Promise<void> {
    if (this.#state.activity.kind !== "quiet" || this.#state.closing !== null) {
      throw new Problem("session_busy");
    }
    this.#step({ kind: "compaction_asked" });
    const { epoch } = this.#state;
    const batch: Batch = { inputs: [], rows: [], session: null, work: "compact" };
    try {
      await this.#begin(epoch, batch);
    } catch (error) {
      this.#step({ kind: "prepared_nothing", epoch, waiting: this.#state.waiting });
      throw error;
    }
  }

  subscribe(position: StreamPosition | null): Subscription {
    return this.#stream.subscribe(position);
  }

  /** @param tail how many history rows to show */
  resource(tail: number): SessionResource {
    const { store, clock } = this.#deps;
    const record = store.sessions.require(this.id);
    const rows = tail === 0 ? null : store.history.tail(this.id, tail);
    const moment = { ...this.#moment(), cursor: this.#stream.cursor };
    const { generation } = this.#stream;
    return sessionResource(record, moment, { generation, tail: rows, now: clock.now() });
  }

  /** Lets go of what only a reader that comes back would need. */
  rest(): void {
    if (this.quiet) this.#stream.forget();
  }

  #moment() {
    const turn = this.turn?.turn ?? this.#deps.store.turns.latest(this.id);
    return { view: this.#view, waiting: this.#state.waiting, turn };
  }

  #readWaiting(): Waiting[] {
    return this.#deps.store.operations.pending(this.id).map(toWaiting);
  }

  /** One step: what has happened is published, then the state follows, then what it looks like now. */
  #step(event: SessionEvent, published: readonly EventBody[] = []): void {
    if (this.#closed) return;
    for (const body of published) this.#stream.publish(body);
    this.#dispatch(event);
    this.#publishView();
  }

  #dispatch(event: SessionEvent): void {
    const { state, effects } = advance(this.#state, event, this.#deps.clock.monotonic());
    this.#state = state;
    for (const effect of effects) this.#perform(effect);
    if (state.activity.kind === "quiet") this.#release();
  }

  #perform(effect: SessionEffect): void {
    switch (effect.kind) {
      case "prepare":
        void this.#prepare(effect.epoch);
        break;
      case "prepare_compaction":
        // Whoever asked for it begins it, to hear of its failure.
        break;
      case "schedule_retry":
        this.#blocked.plan(effect.at);
        break;
      case "cancel_retry":
        this.#blocked.cancel();
        break;
      case "store_blocking":
        this.#blocked.tell();
        break;
      case "abort":
        this.#controller.abort(new TurnStopped(effect.reason));
        break;
    }
  }

  #publishView(): void {
    const before = this.#view;
    const view = viewOf(this.#state);
    this.#view = view;
    if (view.running) this.#deps.running.mark(this.id, this);
    else this.#deps.running.clear(this.id, this);
    if (
      view.phase === before.phase &&
      view.running === before.running &&
      view.blockingReason === before.blockingReason
    ) {
      return;
    }
    this.#stream.publish({
      kind: "status",
      phase: view.phase,
      running: view.running,
      ...(view.blockingReason === null ? {} : { blocking_reason: view.blockingReason }),
    });
  }

  #publishRecord(): void {
    const { title, model } = this.#record;
    this.#stream.publish({ kind: "session", title, model });
  }

  #release(): void {
    const waiters = this.#quietWaiters;
    this.#quietWaiters = [];
    for (const resolve of waiters) resolve();
  }

  /** Makes the head of the queue ready and begins a turn with it. */
  async #prepare(epoch: number): Promise<void> {
    // Whoever sent the input hears that it is on disk before any work for it begins.
    await answersFirst();
    if (this.#closed) return;
    const batch = await this.#ready();
    if (this.#closed) return;
    if (typeof batch === "string") {
      this.#step({ kind: "prepare_failed", epoch, reason: batch });
      return;
    }
    if (batch === null || this.#state.closing !== null) {
      this.#step({ kind: "prepared_nothing", epoch, waiting: this.#state.waiting });
      return;
    }
    try {
      await this.#begin(epoch, batch);
    } catch (error) {
      this.#deps.log.warn("Input could not be consumed", { session_id: this.id, error });
      this.#step({ kind: "prepare_failed", epoch, reason: "storage_failure" });
    }
  }

  /** The head of the queue, or why it cannot be consumed; `null` where nothing waits. */
  async #ready(): Promise<Batch | BlockingReason | null> {
    if (this.#state.waiting.length === 0) return null;
    try {
      const preparation = await this.#deps.consumption.prepare(this.#record, this.#state.waiting);
      return preparation.kind === "ready" ? preparation.batch : preparation.reason;
    } catch (error) {
      this.#deps.log.error("Input could not be prepared", { session_id: this.id, error });
      return "storage_failure";
    }
  }

  async #begin(epoch: number, batch: Batch): Promise<void> {
    const end = batch.work === "none" ? ({ end: { state: "completed" } } as const) : {};
    const turnId = this.#deps.ids.uuidv7();
    await this.#consume(batch, { turnId, startsTurn: true, ...end }, (value) =>
      this.#begun(epoch, batch, value),
    );
  }

  async #consume(
    batch: Batch,
    how: Pick<ConsumeRequest, "turnId" | "startsTurn" | "end">,
    effect: (value: Consumed) => void,
  ): Promise<void> {
    const { inputs, rows, session } = batch;
    const change = session === null ? {} : { session };
    const request = { sessionId: this.id, inputs, rows, ...change, ...how };
    this.#consuming += 1;
    try {
      await this.#deps.store.conversation.consume(request, effect);
    } finally {
      this.#consuming -= 1;
    }
  }

  /** A turn has begun, on disk. What it does first happens right here, so that no time is lost. */
  #begun(epoch: number, batch: Batch, value: Consumed): void {
    if (this.#closed) return;
    const { turn } = value;
    if (turn === null) {
      this.#step({ kind: "prepared_nothing", epoch, waiting: this.#readWaiting() });
      return;
    }
    this.#controller = new AbortController();
    this.#stream.beginTurn(turn.id, this.#deps.spill.run(this.id));
    this.#applyChange(batch);
    const events = consumptionEvents(value, true);
    if (turn.state !== "running") {
      // A command that is done already; nothing ran, so nothing has to look as if it did.
      for (const body of events) this.#stream.publish(body);
      this.#dispatch({ kind: "turn_started", epoch, turn });
      this.#ended(epoch, turn);
      return;
    }
    this.#step({ kind: "turn_started", epoch, turn }, events);
    void runTurn(this.#deps.turn, this.#port(epoch, turn.id), batch.work);
  }

  /** Takes what waits into the running turn. */
  async #steer(epoch: number, turnId: string): Promise<Batch["work"] | null> {
    const batch = await this.#ready();
    // A turn that was told to stop meanwhile takes nobody's input along.
    if (!this.#isTurn(epoch) || this.turn?.stop !== null || batch === null) return null;
    if (typeof batch === "string") {
      this.#step({ kind: "steer_failed", epoch, reason: batch });
      return null;
    }
    let joined = false;
    try {
      await this.#consume(batch, { turnId, startsTurn: false }, (value) => {
        const { turn } = value;
        if (turn === null || !this.#isTurn(epoch)) return;
        joined = true;
        this.#applyChange(batch);
        this.#step({ kind: "turn_changed", epoch, turn }, consumptionEvents(value, false));
      });
    } catch (error) {
      this.#deps.log.warn("Input could not be consumed", { session_id: this.id, error });
      this.#step({ kind: "steer_failed", epoch, reason: "storage_failure" });
    }
    return joined ? batch.work : null;
  }

  /** A command's change became part of the session. */
  #applyChange(batch: Batch): void {
    if (batch.session === null) return;
    this.#record = { ...this.#record, ...batch.session };
    this.#publishRecord();
  }

  #isTurn(epoch: number): boolean {
    const { activity } = this.#state;
    return !this.#closed && activity.kind === "turn" && activity.epoch === epoch;
  }

  #committed(epoch: number, value: Committed, options: CommitOptions): void {
    const { turn } = value;
    if (!this.#isTurn(epoch) || turn === null) return;
    for (const body of commitEvents(turn.id, value, options.replaces ?? null)) {
      this.#stream.publish(body);
    }
    if (options.replaces !== undefined) this.#stream.retireOutput();
    if (turn.state !== "running") this.#ended(epoch, turn);
  }

  #ended(epoch: number, turn: Turn): void {
    const stop = this.turn?.stop ?? null;
    this.#stream.endTurn();
    this.#step({ kind: "turn_ended", epoch, turn });
    if (stop === "interrupt") this.#deps.onInterrupted(this.id);
  }

  /** What a turn may do to its session. */
  #port(epoch: number, turnId: string): TurnPort {
    const { clock } = this.#deps;
    const isCurrent = (): boolean => this.#isTurn(epoch);
    return {
      turnId,
      signal: this.#controller.signal,
      isClosed: () => !isCurrent(),
      maySteer: () => maySteer(this.#state, clock.monotonic()),
      session: () => this.#record,
      delta: (delta) => {
        if (isCurrent()) this.#stream.delta(delta);
      },
      endBlock: (liveId) => {
        if (isCurrent()) this.#stream.endBlock(liveId);
      },
      preview: (call) => {
        if (isCurrent()) this.#preview(call);
      },
      toolRuns: (call) => {
        if (!isCurrent()) return;
        this.#stream.tools.enter({ ...call, phase: "running", preview: previewOf(call) });
      },
      toolOutput: (callId, preview) => {
        if (isCurrent()) this.#stream.tools.output(callId, preview);
      },
      retry: (failed) => {
        if (isCurrent()) this.#retried(turnId, failed);
      },
      commit: (rows, options) => this.#commit(epoch, turnId, rows, options),
      steer: () => this.#steer(epoch, turnId),
    };
  }

  async #commit(
    epoch: number,
    turnId: string,
    rows: readonly NewRow[],
    options: CommitOptions,
  ): Promise<void> {
    if (!this.#isTurn(epoch)) throw new Problem("session_not_found", "The turn is over");
    const { end } = options;
    await this.#deps.store.conversation.commit(
      { sessionId: this.id, turnId, rows, ...(end === undefined ? {} : { end }) },
      (value) => this.#committed(epoch, value, options),
    );
  }

  #preview(call: { readonly id: string; readonly name: string; readonly text: string }): void {
    const { tools } = this.#stream;
    if (tools.phase(call.id) !== null) tools.arguments(call.id, call.text);
    else tools.enter({ ...call, phase: "preparing", preview: call.text });
  }

  #retried(turnId: string, failed: Parameters<TurnPort["retry"]>[0]): void {
    this.#stream.tools.clear();
    this.#stream.publish({
      kind: "retry",
      turn_id: turnId,
      message_id: failed.messageId,
      attempt: failed.attempt,
      delay_ms: failed.delayMs,
      code: failed.code,
      message: failed.message,
      replaces_live_ids: [...failed.liveIds],
      replaces_all_live: true,
    });
    this.#stream.retireOutput();
  }
}

/** Why a turn's signal was aborted. */
export class TurnStopped extends Error {
  override readonly name = "TurnStopped";
  readonly reason: StopReason;

  constructor(reason: StopReason) {
    super(`The turn was told to stop: ${reason}`);
    this.reason = reason;
  }
}

function answersFirst(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function toWaiting(record: PendingRecord): Waiting {
  return {
    id: record.operationId,
    kind: record.kind,
    submissionId: record.submissionId,
    name: record.name,
    arguments: record.kind === "command" ? record.arguments : null,
    images: record.images,
    shown: renderPending(record, null),
  };
}

function previewOf(call: ToolCallPart): string {
  return typeof call.input === "string" ? call.input : (JSON.stringify(call.input) ?? "");
}
