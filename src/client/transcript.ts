import type {
  ActiveSegment,
  CurrentProgress,
  ResetEvent,
  StreamEvent,
  ToolProgress,
} from "../wire/event.ts";
import type { HistoryRow } from "../wire/history.ts";
import type { InputKind, PendingInput, Turn } from "../wire/input.ts";
import type { Phase } from "../wire/session.ts";

/**
 * Owns what a client shows of a session, folded from resets and events alone: no time, no network, the same events
 * give the same transcript (sessions.md, Stream failures and recovery; wire/event.ts).
 *
 * T1. Rows are kept by id, in ascending order; a row that arrives again replaces itself.
 * T2. Provisional chunks are kept by live id until a row, a commit, a retry or the turn's end retires them.
 * T3. A pending input is settled by its operation id alone, never by its text.
 * T4. A reset replaces all of it, except inputs of this program whose outcome the daemon has not shown yet.
 */

/** Unfinished output. */
export interface LiveChunk {
  readonly liveId: string;
  readonly messageId: string;
  readonly kind: "text" | "thinking";
  readonly text: string;
  /** The daemon could not keep its beginning; the whole arrives with the commit. */
  readonly unavailable: boolean;
}

/**
 * An input that is not in the transcript yet. `sending`, `uncertain` and `expired` are this program's own
 * knowledge of an operation; `waiting` is the daemon's.
 */
export interface TranscriptInput {
  readonly operationId: string;
  readonly kind: InputKind;
  readonly state: "sending" | "uncertain" | "expired" | "waiting";
  readonly displayText: string | null;
  readonly imageCount: number;
  readonly blockingReason: string | null;
  /** It was sent by this program. */
  readonly own: boolean;
}

export class Transcript {
  #rows: HistoryRow[] = [];
  readonly #live = new Map<string, LiveChunk>();
  readonly #inputs = new Map<string, TranscriptInput>();
  readonly #progress = new Map<string, ToolProgress>();
  #phase: Phase | null = null;
  #blockingReason: string | null = null;
  #turn: Turn | null = null;
  #watermark = 0;
  #hasOlder = false;
  #incomplete = false;
  #title: string | null = null;
  #model: string | null = null;

  /** Rows in ascending order of their ids. */
  get rows(): readonly HistoryRow[] {
    return this.#rows;
  }

  /** Older rows exist than the first one here: `prepend` pages of history before it. */
  get hasOlder(): boolean {
    return this.#hasOlder;
  }

  /** Unfinished output in the order it began. */
  get live(): readonly LiveChunk[] {
    return [...this.#live.values()];
  }

  /** Some unfinished output is missing from `live`; it arrives with the commit. */
  get incomplete(): boolean {
    return this.#incomplete;
  }

  /** Inputs that wait, in acceptance order, and then those of this program that nobody has seen accepted. */
  get inputs(): readonly TranscriptInput[] {
    const inputs = [...this.#inputs.values()];
    return [
      ...inputs.filter(({ state }) => state === "waiting"),
      ...inputs.filter(({ state }) => state !== "waiting"),
    ];
  }

  /** The tools that work right now, in the order they were called. */
  get progress(): readonly ToolProgress[] {
    return [...this.#progress.values()];
  }

  /** `null` before the first reset. */
  get phase(): Phase | null {
    return this.#phase;
  }

  get blockingReason(): string | null {
    return this.#blockingReason;
  }

  /** The newest turn, running or ended. */
  get turn(): Turn | null {
    return this.#turn;
  }

  /** The newest row id that the daemon has told of. */
  get watermark(): number {
    return this.#watermark;
  }

  /** As changed while attached; `null` means that no change was seen. */
  get model(): string | null {
    return this.#model;
  }

  /** As changed while attached. */
  get title(): string | null {
    return this.#title;
  }

  apply(event: StreamEvent): void {
    switch (event.kind) {
      case "reset":
        this.#reset(event);
        return;
      case "status":
        this.#phase = event.phase;
        this.#blockingReason = event.blocking_reason ?? null;
        return;
      case "input_accepted":
        this.#wait(event.input);
        return;
      case "input_committed":
        this.#inputs.delete(event.input_id);
        this.#addRow(event.row);
        return;
      case "input_cancelled":
        this.#inputs.delete(event.input_id);
        return;
      case "turn_started":
        this.#turn = event.turn;
        return;
      case "turn_members":
        if (this.#turn?.id === event.turn_id) {
          this.#turn = { ...this.#turn, members: event.members };
        }
        return;
      case "turn_finished":
        this.#turn = event.turn;
        this.#retire([], true);
        this.#progress.clear();
        return;
      case "session":
        this.#title = event.title;
        this.#model = event.model;
        return;
      case "text_delta":
      case "thinking_delta":
      case "assistant":
      case "thinking":
      case "note":
      case "tool_started":
      case "tool_progress":
      case "tool_finished":
      case "committed":
      case "retry":
        this.#applyOutput(event);
    }
  }

  #applyOutput(event: OutputEvent): void {
    switch (event.kind) {
      case "text_delta":
        this.#append("text", event);
        return;
      case "thinking_delta":
        this.#append("thinking", event);
        return;
      case "assistant":
      case "thinking":
      case "note":
        this.#addRow(event.row);
        return;
      case "tool_started":
      case "tool_progress":
        this.#progress.set(event.tool.tool_call_id, event.tool);
        return;
      case "tool_finished":
        this.#progress.delete(event.tool_call_id);
        this.#addRow(event.row);
        return;
      case "committed":
        for (const row of event.rows) this.#addRow(row);
        this.#watermark = Math.max(this.#watermark, event.history_watermark);
        this.#retire(event.replaces_live_ids, event.replaces_all_live);
        return;
      case "retry":
        this.#retire(event.replaces_live_ids, event.replaces_all_live);
        return;
    }
  }

  /** Adds rows of a page of older history. @param next the page's `next`; `null` when nothing is older */
  prepend(rows: readonly HistoryRow[], next: number | null): void {
    for (const row of rows) this.#addRow(row);
    this.#hasOlder = next !== null;
  }

  /** Puts an uncut row in the place of its cut one. */
  replace(row: HistoryRow): void {
    this.#addRow(row);
  }

  /** Shows an input of this program before the daemon knows it. Once the daemon's word is here it does nothing. */
  expect(input: {
    readonly operationId: string;
    readonly kind: InputKind;
    readonly displayText?: string;
    readonly imageCount?: number;
  }): void {
    const { operationId, kind } = input;
    if (this.#isSettled(operationId)) return;
    const known = this.#inputs.get(operationId);
    this.#inputs.set(operationId, {
      operationId,
      kind,
      state: "sending",
      displayText: input.displayText ?? null,
      imageCount: input.imageCount ?? 0,
      blockingReason: null,
      ...known,
      own: true,
    });
  }

  /** What this program learned of an own input. Later events of the daemon still settle it. */
  mark(operationId: string, state: "sending" | "uncertain" | "expired"): void {
    const known = this.#inputs.get(operationId);
    if (known === undefined || known.state === "waiting") return;
    this.#inputs.set(operationId, { ...known, state });
  }

  /** Takes an own input away: it was refused, or cancelled before anyone saw it. */
  forget(operationId: string): void {
    this.#inputs.delete(operationId);
  }

  /** What a protocol failure calls for until the reset is here. */
  clearProgress(): void {
    this.#progress.clear();
  }

  #reset(reset: ResetEvent): void {
    this.#rows = [...reset.history].sort((a, b) => a.id - b.id);
    this.#hasOlder = reset.history_more;
    this.#watermark = reset.history_watermark;
    this.#phase = reset.phase;
    this.#blockingReason = reset.blocking_reason ?? null;
    this.#turn = reset.turn;
    this.#incomplete = reset.active_output.incomplete;
    this.#live.clear();
    for (const segment of reset.active_output.segments) this.#restore(segment);
    this.#restoreProgress(reset.current_progress);
    this.#restoreInputs(reset.pending_inputs);
  }

  #restore(segment: ActiveSegment): void {
    this.#live.set(segment.live_id, {
      liveId: segment.live_id,
      messageId: segment.message_id,
      kind: segment.kind,
      text: segment.text ?? "",
      unavailable: segment.unavailable ?? false,
    });
  }

  #restoreProgress(progress: CurrentProgress | null): void {
    this.#progress.clear();
    for (const tool of progress?.tools ?? []) this.#progress.set(tool.tool_call_id, tool);
  }

  #restoreInputs(pending: readonly PendingInput[]): void {
    const before = [...this.#inputs.values()];
    this.#inputs.clear();
    const own = new Set(before.filter((input) => input.own).map((input) => input.operationId));
    for (const input of pending) this.#wait(input, own.has(input.id));
    for (const input of before) {
      if (!input.own || this.#inputs.has(input.operationId)) continue;
      if (this.#isSettled(input.operationId)) continue;
      // It waited and does no longer: consumed beyond the tail, or cancelled. Its receipt knows.
      const state = input.state === "waiting" ? "uncertain" : input.state;
      this.#inputs.set(input.operationId, { ...input, state });
    }
  }

  #wait(input: PendingInput, own = this.#inputs.get(input.id)?.own ?? false): void {
    // Acceptance order is the order of arrival here, also for one that this program expected earlier.
    this.#inputs.delete(input.id);
    this.#inputs.set(input.id, {
      operationId: input.id,
      kind: input.kind,
      state: "waiting",
      displayText: input.display_text ?? null,
      imageCount: input.image_count,
      blockingReason: input.blocking_reason ?? null,
      own,
    });
  }

  #isSettled(operationId: string): boolean {
    return this.#rows.some((row) => row.operation_id === operationId);
  }

  #append(kind: LiveChunk["kind"], delta: Delta): void {
    const known = this.#live.get(delta.live_id);
    this.#live.set(delta.live_id, {
      liveId: delta.live_id,
      messageId: delta.message_id,
      kind,
      text: (known?.text ?? "") + delta.text,
      unavailable: known?.unavailable ?? false,
    });
  }

  #retire(liveIds: readonly string[], all: boolean): void {
    if (all) {
      this.#live.clear();
      this.#incomplete = false;
    }
    for (const liveId of liveIds) this.#live.delete(liveId);
  }

  #addRow(row: HistoryRow): void {
    if (row.operation_id !== undefined) this.#inputs.delete(row.operation_id);
    // The row is what the chunk was to become; to show both would say it twice.
    if (row.live_id !== undefined) this.#live.delete(row.live_id);
    this.#watermark = Math.max(this.#watermark, row.id);
    const at = lowerBound(this.#rows, row.id);
    const isKnown = this.#rows[at]?.id === row.id;
    this.#rows.splice(at, isKnown ? 1 : 0, row);
  }
}

type OutputEvent = Extract<
  StreamEvent,
  {
    kind:
      | "text_delta"
      | "thinking_delta"
      | "assistant"
      | "thinking"
      | "note"
      | "tool_started"
      | "tool_progress"
      | "tool_finished"
      | "committed"
      | "retry";
  }
>;

type Delta = Extract<StreamEvent, { kind: "text_delta" | "thinking_delta" }>;

/** The index of the first row whose id is not below; new rows come last, so the search starts there. */
function lowerBound(rows: readonly HistoryRow[], id: number): number {
  const last = rows.at(-1);
  if (last === undefined || last.id < id) return rows.length;
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((rows[middle]?.id ?? id) < id) low = middle + 1;
    else high = middle;
  }
  return low;
}
