import { CONSUME_RETRY_MS } from "../base/limits.ts";
import type { PendingRecord } from "../store/rows.ts";
import type { PendingInput, Turn } from "../wire/input.ts";
import type { Phase } from "../wire/session.ts";
import type { SubmissionKind } from "../wire/submission.ts";

/**
 * Owns how a session's state changes, as pure functions; `session.ts` runs them and does what they ask for
 * (contract.md, Pending inputs, turns and cancellation).
 *
 * I1 At most one turn, and while one is prepared or runs no other is.
 * I2 The queue mirrors the store's, in acceptance order; it only follows commits.
 * I3 A preparation that failed is tried again when `retryAt` has come or what blocked it has changed, not before:
 *    at most once in `CONSUME_RETRY_MS`.
 * I4 Each preparation and each turn has an epoch of its own; what an older one still says is not heard.
 * I5 Once `closing` is set nothing starts any more.
 */

/** Why the head of the queue cannot be consumed. */
export type BlockingReason = "workspace_missing" | "model_unavailable" | "storage_failure";

/**
 * Why a turn was told to stop. `interrupt` goes for everything below the session too, `cancel` for this turn alone;
 * `shutdown` leaves waiting input alone; `removed` has nothing left to write to.
 */
export type StopReason = "interrupt" | "cancel" | "shutdown" | "removed";

/** What a session remembers of an input that waits; its text stays in the store. */
export interface Waiting {
  readonly id: string;
  readonly kind: SubmissionKind;
  readonly submissionId: string;
  /** Of a skill or a command. */
  readonly name: string | null;
  readonly arguments: string | null;
  readonly images: PendingRecord["images"];
  /** As clients see it, without its blocking reason. */
  readonly shown: PendingInput;
}

export interface Blocking {
  readonly reason: BlockingReason;
  /** Monotonic milliseconds. */
  readonly retryAt: number;
}

export type Activity =
  | { readonly kind: "quiet" }
  /** The head of the queue is made ready for a new turn. */
  | { readonly kind: "preparing"; readonly epoch: number }
  | {
      readonly kind: "turn";
      readonly epoch: number;
      readonly turn: Turn;
      /** It was told to stop; it may still run. */
      readonly stop: StopReason | null;
    };

export interface SessionState {
  readonly activity: Activity;
  readonly waiting: readonly Waiting[];
  readonly blocking: Blocking | null;
  /** How the last turn ended, also before a restart. */
  readonly interrupted: boolean;
  readonly closing: StopReason | null;
  readonly epoch: number;
}

export type SessionEvent =
  /** The session was loaded, or waits no longer for a restart of the daemon. */
  | { readonly kind: "woken" }
  | { readonly kind: "accepted"; readonly input: Waiting }
  | { readonly kind: "cancelled"; readonly ids: readonly string[] }
  | { readonly kind: "prepare_failed"; readonly epoch: number; readonly reason: BlockingReason }
  /** Nothing was left to consume; `waiting` is what the store says waits. */
  | {
      readonly kind: "prepared_nothing";
      readonly epoch: number;
      readonly waiting: readonly Waiting[];
    }
  | { readonly kind: "turn_started"; readonly epoch: number; readonly turn: Turn }
  | { readonly kind: "turn_changed"; readonly epoch: number; readonly turn: Turn }
  /** At a step boundary the queue's head could not be consumed. */
  | { readonly kind: "steer_failed"; readonly epoch: number; readonly reason: BlockingReason }
  | { readonly kind: "turn_ended"; readonly epoch: number; readonly turn: Turn }
  | { readonly kind: "stop"; readonly reason: StopReason }
  | { readonly kind: "closing"; readonly reason: StopReason }
  /** The time of another try has come. */
  | { readonly kind: "retry_due" }
  /** A turn without input: the transcript is summed up because someone asked for it now. */
  | { readonly kind: "compaction_asked" }
  /** What may have blocked the queue has changed. */
  | { readonly kind: "unblocked"; readonly reason: BlockingReason };

export type SessionEffect =
  /** Make the head of the queue ready, under this epoch. */
  | { readonly kind: "prepare"; readonly epoch: number }
  | { readonly kind: "prepare_compaction"; readonly epoch: number }
  /** Send `retry_due` at this monotonic time; it takes the place of an earlier one. */
  | { readonly kind: "schedule_retry"; readonly at: number }
  | { readonly kind: "cancel_retry" }
  /** Store why the queue waits; a consumption clears it by itself. */
  | { readonly kind: "store_blocking"; readonly reason: BlockingReason }
  /** Tell the turn of this epoch to stop. */
  | { readonly kind: "abort"; readonly epoch: number; readonly reason: StopReason };

export interface Transition {
  readonly state: SessionState;
  readonly effects: readonly SessionEffect[];
}

export function initialState(options: {
  readonly waiting: readonly Waiting[];
  readonly interrupted: boolean;
}): SessionState {
  return {
    activity: { kind: "quiet" },
    waiting: options.waiting,
    blocking: null,
    interrupted: options.interrupted,
    closing: null,
    epoch: 0,
  };
}

/** @param now monotonic milliseconds */
export function advance(state: SessionState, event: SessionEvent, now: number): Transition {
  switch (event.kind) {
    case "woken":
      return settle(state, now);
    case "retry_due":
      return retryDue(state, now);
    case "accepted":
      return accepted(state, event.input, now);
    case "cancelled":
      return cancelled(state, event.ids);
    case "prepare_failed":
      if (!isPreparing(state, event.epoch)) return same(state);
      return block({ ...state, activity: { kind: "quiet" } }, event.reason, now);
    case "prepared_nothing":
      if (!isPreparing(state, event.epoch)) return same(state);
      return settle({ ...state, activity: { kind: "quiet" }, waiting: event.waiting }, now);
    case "turn_started":
      return started(state, event.turn, event.epoch);
    case "turn_changed":
      return changed(state, event.turn, event.epoch);
    case "steer_failed":
      return isTurn(state, event.epoch) ? block(state, event.reason, now) : same(state);
    case "turn_ended":
      return ended(state, event.turn, event.epoch, now);
    case "stop":
      return stop(state, event.reason);
    case "closing":
      return closing(state, event.reason);
    case "compaction_asked":
      return begin(state, "prepare_compaction");
    case "unblocked":
      return unblocked(state, event.reason, now);
  }
}

/** What clients see of a state. */
export interface View {
  readonly phase: Phase;
  readonly running: boolean;
  readonly blockingReason: BlockingReason | null;
}

export function viewOf(state: SessionState): View {
  const blockingReason = state.waiting.length === 0 ? null : (state.blocking?.reason ?? null);
  return { phase: phaseOf(state), running: state.activity.kind === "turn", blockingReason };
}

/** Whether a step boundary may take from the queue now. */
export function maySteer(state: SessionState, now: number): boolean {
  return state.waiting.length > 0 && (state.blocking === null || state.blocking.retryAt <= now);
}

/** Whether the session could be unloaded: nothing runs and nothing waits. */
export function isQuiet(state: SessionState): boolean {
  return state.activity.kind === "quiet" && state.waiting.length === 0;
}

function phaseOf(state: SessionState): Phase {
  switch (state.activity.kind) {
    case "turn":
      return "running";
    case "preparing":
      // Another try of what is blocked is not worth a flicker.
      return state.blocking === null ? "opening" : "blocked";
    case "quiet":
      if (state.blocking !== null && state.waiting.length > 0) return "blocked";
      return state.interrupted ? "interrupted" : "idle";
  }
}

function accepted(state: SessionState, input: Waiting, now: number): Transition {
  if (state.waiting.some(({ id }) => id === input.id)) return settle(state, now);
  return settle({ ...state, waiting: [...state.waiting, input] }, now);
}

function cancelled(state: SessionState, ids: readonly string[]): Transition {
  const gone = new Set(ids);
  const waiting = state.waiting.filter(({ id }) => !gone.has(id));
  if (waiting.length === state.waiting.length) return same(state);
  if (waiting.length > 0 || state.blocking === null) return same({ ...state, waiting });
  // The store forgets the reason of an empty queue in the same transaction.
  return { state: { ...state, waiting, blocking: null }, effects: [{ kind: "cancel_retry" }] };
}

function started(state: SessionState, turn: Turn, epoch: number): Transition {
  // The store has begun the turn: that stands, also when its session is closing.
  const next = consumed(
    {
      ...state,
      activity: { kind: "turn", epoch, turn, stop: state.closing },
      interrupted: false,
    },
    turn,
  );
  if (state.closing === null) return next;
  return {
    state: next.state,
    effects: [...next.effects, { kind: "abort", epoch, reason: state.closing }],
  };
}

function changed(state: SessionState, turn: Turn, epoch: number): Transition {
  const { activity } = state;
  if (activity.kind !== "turn" || activity.epoch !== epoch) return same(state);
  return consumed({ ...state, activity: { ...activity, turn } }, turn);
}

/** Members of the turn wait no longer. */
function consumed(state: SessionState, turn: Turn): Transition {
  const members = new Set(turn.members);
  const waiting = state.waiting.filter(({ id }) => !members.has(id));
  if (waiting.length === state.waiting.length || state.blocking === null) {
    return same({ ...state, waiting });
  }
  return { state: { ...state, waiting, blocking: null }, effects: [{ kind: "cancel_retry" }] };
}

function ended(state: SessionState, turn: Turn, epoch: number, now: number): Transition {
  if (!isTurn(state, epoch)) return same(state);
  return settle(
    { ...state, activity: { kind: "quiet" }, interrupted: turn.state === "interrupted" },
    now,
  );
}

function stop(state: SessionState, reason: StopReason): Transition {
  const { activity } = state;
  if (activity.kind !== "turn") return same(state);
  if (activity.stop === "cancel" && reason === "interrupt") {
    // It was told already; but now what is below the session is to stop too.
    return same({ ...state, activity: { ...activity, stop: reason } });
  }
  if (activity.stop !== null) return same(state);
  return {
    state: { ...state, activity: { ...activity, stop: reason } },
    effects: [{ kind: "abort", epoch: activity.epoch, reason }],
  };
}

function closing(state: SessionState, reason: StopReason): Transition {
  const stopped = stop({ ...state, closing: reason }, reason);
  return { state: stopped.state, effects: [{ kind: "cancel_retry" }, ...stopped.effects] };
}

function block(state: SessionState, reason: BlockingReason, now: number): Transition {
  const retryAt = now + CONSUME_RETRY_MS;
  if (state.waiting.length === 0) return same({ ...state, blocking: null });
  const effects: SessionEffect[] = [{ kind: "schedule_retry", at: retryAt }];
  if (state.blocking?.reason !== reason) effects.push({ kind: "store_blocking", reason });
  return { state: { ...state, blocking: { reason, retryAt } }, effects };
}

function unblocked(state: SessionState, reason: BlockingReason, now: number): Transition {
  if (state.blocking?.reason !== reason) return same(state);
  return settle({ ...state, blocking: { reason, retryAt: now } }, now);
}

/** A timer that fired early is planned again: nothing else would ever try what waits. */
function retryDue(state: SessionState, now: number): Transition {
  const { blocking, closing } = state;
  if (blocking === null || closing !== null || blocking.retryAt <= now) return settle(state, now);
  return { state, effects: [{ kind: "schedule_retry", at: blocking.retryAt }] };
}

/** Starts what can start. */
function settle(state: SessionState, now: number): Transition {
  if (state.activity.kind !== "quiet" || state.closing !== null) return same(state);
  return maySteer(state, now) ? begin(state, "prepare") : same(state);
}

function begin(state: SessionState, kind: "prepare" | "prepare_compaction"): Transition {
  if (state.activity.kind !== "quiet" || state.closing !== null) return same(state);
  const epoch = state.epoch + 1;
  return {
    state: { ...state, epoch, activity: { kind: "preparing", epoch } },
    effects: [{ kind, epoch }],
  };
}

function isPreparing({ activity }: SessionState, epoch: number): boolean {
  return activity.kind === "preparing" && activity.epoch === epoch;
}

function isTurn({ activity }: SessionState, epoch: number): boolean {
  return activity.kind === "turn" && activity.epoch === epoch;
}

function same(state: SessionState): Transition {
  return { state, effects: [] };
}
