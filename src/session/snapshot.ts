import { ACTIVE_SESSION_MS, HISTORY_ROWS_DEFAULT, KIB, RING_BYTES_MAX } from "../base/limits.ts";
import type { HistoryTail } from "../store/history.ts";
import { cutText, jsonBytes } from "../store/json.ts";
import type { SessionListRecord, SessionRecord } from "../store/rows.ts";
import type { ActiveOutput, CurrentProgress, ResetEvent } from "../wire/event.ts";
import type { PendingInput, Turn } from "../wire/input.ts";
import type { SessionResource, SessionSummary } from "../wire/session.ts";
import type { View, Waiting } from "./session_state.ts";

/**
 * Owns how a session looks at one moment: to a reader that attaches (`reset`), as a resource and in the list
 * (contract.md, One admission, two doors; The stream). Pure: whoever calls it takes all parts in one step.
 */
export interface Moment {
  readonly cursor: number;
  readonly view: View;
  readonly waiting: readonly Waiting[];
  /** The running turn, else the newest one. */
  readonly turn: Turn | null;
  readonly activeOutput: ActiveOutput;
  readonly progress: CurrentProgress | null;
}

const RESET_HISTORY_BYTES_MAX = 512 * KIB;
/** A restored queue may be long; a reset has to fit one frame. */
const RESET_PENDING_MAX = 500;
const RESET_PENDING_TEXT_BYTES_MAX = 192 * KIB;

/**
 * The reset of this moment; with all that is in it it fits one frame.
 *
 * @param readTail reads the newest rows within a number of bytes
 */
export function resetEvent(
  moment: Moment,
  readTail: (rows: number, bytesMax: number) => HistoryTail,
): ResetEvent {
  const { view } = moment;
  const rest = {
    seq: moment.cursor,
    kind: "reset" as const,
    active_output: moment.activeOutput,
    current_progress: moment.progress,
    pending_inputs: shownInReset(moment.waiting, view),
    phase: view.phase,
    ...(view.blockingReason === null ? {} : { blocking_reason: view.blockingReason }),
    turn: moment.turn,
  };
  const room = RING_BYTES_MAX - jsonBytes(rest) - KIB;
  const tail = readTail(HISTORY_ROWS_DEFAULT, Math.min(RESET_HISTORY_BYTES_MAX, room));
  return {
    ...rest,
    history: [...tail.rows],
    history_more: tail.more,
    history_watermark: tail.watermark,
  };
}

/** The session resource of a loaded session. */
export function sessionResource(
  record: SessionRecord,
  moment: Omit<Moment, "activeOutput" | "progress">,
  options: {
    readonly generation: string;
    readonly tail: HistoryTail | null;
    readonly now: number;
  },
): SessionResource {
  const { view, turn } = moment;
  return {
    ...summary(record, view, { loaded: true, now: options.now }),
    settings: record.settings,
    ...(view.blockingReason === null ? {} : { blocking_reason: view.blockingReason }),
    ...(turn === null ? {} : { turn }),
    pending_inputs: moment.waiting.map(({ shown }) => withReason(shown, view)),
    generation: options.generation,
    cursor: moment.cursor,
    ...(options.tail === null ? {} : { history: [...options.tail.rows] }),
    history_watermark: record.lastRowId,
  };
}

/** An entry of the list; `view` is `null` for a session that is not loaded. */
export function sessionSummary(
  record: SessionListRecord,
  view: View | null,
  now: number,
): SessionSummary {
  return {
    ...summary(record, view ?? storedView(record), { loaded: view !== null, now }),
    pending_count: record.pendingCount,
  };
}

function summary(
  record: SessionRecord,
  view: View,
  { loaded, now }: { readonly loaded: boolean; readonly now: number },
): Omit<SessionSummary, "pending_count"> {
  return {
    id: record.id,
    title: record.title,
    workspace: record.workspace,
    model: record.model,
    parent_id: record.parentId,
    phase: view.phase,
    running: view.running,
    loaded,
    active: loaded && now - record.activityAt < ACTIVE_SESSION_MS,
    created_at: record.createdAt,
    activity_at: record.activityAt,
  };
}

/** A session that is not loaded runs nothing: without a record in the running cache it reads as idle. */
function storedView(record: SessionRecord): View {
  const phase = record.phase === "interrupted" ? "interrupted" : "idle";
  return { phase, running: false, blockingReason: null };
}

function shownInReset(waiting: readonly Waiting[], view: View): PendingInput[] {
  const few = waiting.slice(0, RESET_PENDING_MAX);
  const textBytesMax = Math.floor(RESET_PENDING_TEXT_BYTES_MAX / Math.max(1, few.length));
  return few.map(({ shown }) => {
    const text = shown.display_text;
    if (text === undefined) return withReason(shown, view);
    const cut = cutText(text, textBytesMax);
    const isCut = cut.length < text.length;
    return withReason(isCut ? { ...shown, display_text: cut, truncated: true } : shown, view);
  });
}

function withReason(shown: PendingInput, view: View): PendingInput {
  return view.blockingReason === null ? shown : { ...shown, blocking_reason: view.blockingReason };
}
