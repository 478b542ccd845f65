import type { ActiveSegment, ToolProgress } from "../wire/event.ts";
import type { HistoryRow, LiveEvent, ResetEvent, Turn } from "../client/client.ts";

/**
 * Owns what an append-only display shows of a session: it folds resets, rows and events into pieces that are
 * printed once and in order, whatever reconnects and restarts lie between. No network, no time.
 *
 * I1 A text is printed as a growing whole: after a reset only what is not yet printed follows.
 * I2 A row is shown once; a row that was seen live is not shown again.
 * I3 In the scope of an input, nothing is shown before that input joined its turn and nothing after that turn.
 *
 * A row that is cut (`truncated`) must be replaced by the whole one before it comes here.
 */
export type Shown =
  | { readonly type: "turn_started"; readonly turn_id: string }
  /** A user's input; only in the scope of a session. */
  | { readonly type: "input"; readonly row: HistoryRow }
  | { readonly type: "text"; readonly message_id: string | null; readonly text: string }
  | { readonly type: "thinking"; readonly message_id: string | null; readonly text: string }
  /** The text or thinking that was begun has ended. */
  | { readonly type: "block_end" }
  | {
      readonly type: "tool_started";
      readonly tool_call_id: string;
      readonly tool_name: string;
      readonly preview: string;
    }
  | {
      readonly type: "tool_finished";
      readonly tool_call_id: string;
      readonly tool_name: string;
      readonly status: "ok" | "error" | "interrupted";
      readonly text: string;
    }
  /** What the failed attempt wrote is void. */
  | {
      readonly type: "retry";
      /** The attempt that failed. */
      readonly message_id: string;
      readonly attempt: number;
      readonly delay_ms: number;
      readonly code: string;
      readonly message: string;
    }
  | { readonly type: "note"; readonly text: string }
  | { readonly type: "blocked"; readonly reason: string }
  | { readonly type: "turn_finished"; readonly turn: Turn }
  /** The durable input has to be asked how it stands. */
  | { readonly type: "check" };

interface Block {
  readonly kind: "text" | "thinking";
  shown: string;
  /** Its beginning is not known here: it is shown whole when it is committed. */
  readonly deaf: boolean;
}

export interface FollowerOptions {
  /** Follows this input's turn alone; `null` shows the whole session. */
  readonly inputId: string | null;
  /** Rows up to this one are known already. */
  readonly afterRow: number;
}

export class StreamFollower {
  readonly #inputId: string | null;
  #lastRow: number;
  #turnId: string | null = null;
  /** The input has joined a turn; always so in the scope of a session. */
  #joined: boolean;
  #finished = false;
  #blocks = new Map<string, Block>();
  #open: string | null = null;
  readonly #toolsStarted = new Set<string>();
  readonly #toolsFinished = new Set<string>();
  #blocked: string | null = null;
  /** Output is under way that no segment of the last reset held. */
  #incomplete = false;

  constructor({ inputId, afterRow }: FollowerOptions) {
    this.#inputId = inputId;
    this.#lastRow = afterRow;
    this.#joined = inputId === null;
  }

  /** The newest row that has been taken in; a reset that begins later leaves a gap to be read first. */
  get lastRow(): number {
    return this.#lastRow;
  }

  /** The turn that is followed, once it is known. */
  get turnId(): string | null {
    return this.#turnId;
  }

  /** The durable input has told which turn it belongs to. */
  joinTurn(turnId: string): Shown[] {
    return this.#turnId === turnId ? [] : this.#join(turnId);
  }

  /** Rows in ascending order that were read from history. */
  rows(rows: readonly HistoryRow[]): Shown[] {
    return rows.flatMap((row) => this.#row(row));
  }

  reset(reset: ResetEvent): Shown[] {
    const shown: Shown[] = [];
    if (reset.turn !== null && this.#isMine(reset.turn.members)) {
      shown.push(...this.joinTurn(reset.turn.id));
    }
    shown.push(...this.rows(reset.history));
    this.#incomplete = reset.active_output.incomplete;
    const runs = reset.turn?.state === "running" && this.#covers(reset.turn.id);
    if (runs) {
      for (const segment of reset.active_output.segments) shown.push(...this.#segment(segment));
      for (const tool of reset.current_progress?.tools ?? []) shown.push(...this.#tool(tool));
    }
    const waits = reset.pending_inputs.some((input) => input.id === this.#inputId);
    if (waits) shown.push(...this.#blockedBy(reset.blocking_reason));
    if (this.#inputId !== null && !waits && !runs) {
      // Its turn is over, or was never seen: what others' turns do from here on is not to be shown.
      this.#finished = this.#joined;
      shown.push({ type: "check" });
    }
    return shown;
  }

  event(event: LiveEvent): Shown[] {
    switch (event.kind) {
      case "turn_started":
        return this.#members(event.turn.id, event.turn.members);
      case "turn_members":
        return this.#members(event.turn_id, event.members);
      case "input_committed":
        return [
          ...(event.input_id === this.#inputId ? this.joinTurn(event.turn_id) : []),
          ...this.#row(event.row),
        ];
      case "text_delta":
        return this.#delta("text", event.live_id, event.message_id, event.text);
      case "thinking_delta":
        return this.#delta("thinking", event.live_id, event.message_id, event.text);
      case "assistant":
      case "thinking":
      case "note":
        return this.#row(event.row);
      case "tool_started":
      case "tool_progress":
        return this.#covers(event.turn_id) ? this.#tool(event.tool) : [];
      case "tool_finished":
        return this.#row(event.row);
      case "committed":
        if (event.replaces_all_live) this.#incomplete = false;
        return this.rows(event.rows);
      case "retry":
        return this.#covers(event.turn_id) ? this.#retry(event) : [];
      case "status":
        return event.phase === "blocked" && this.#turnId === null
          ? this.#blockedBy(event.blocking_reason)
          : [];
      case "input_cancelled":
        return event.input_id === this.#inputId ? [{ type: "check" }] : [];
      case "turn_finished":
        return this.#turnFinished(event.turn);
      case "input_accepted":
      case "session":
        return [];
    }
  }

  #members(turnId: string, members: readonly string[]): Shown[] {
    if (this.#inputId === null) {
      if (this.#turnId === turnId) return [];
      this.#turnId = turnId;
      return [{ type: "turn_started", turn_id: turnId }];
    }
    return this.#isMine(members) ? this.joinTurn(turnId) : [];
  }

  #isMine(members: readonly string[]): boolean {
    return this.#inputId !== null && members.includes(this.#inputId);
  }

  #join(turnId: string): Shown[] {
    this.#turnId = turnId;
    this.#joined = true;
    this.#finished = false;
    return [{ type: "turn_started", turn_id: turnId }];
  }

  /** Whether what this turn does is to be shown now. */
  #covers(turnId: string | null): boolean {
    if (this.#inputId === null) return true;
    return this.#joined && !this.#finished && turnId === this.#turnId;
  }

  #row(row: HistoryRow): Shown[] {
    if (row.id <= this.#lastRow) return [];
    this.#lastRow = row.id;
    const isOwnInput = this.#inputId !== null && row.operation_id === this.#inputId;
    if (isOwnInput && row.turn_id !== null) return this.joinTurn(row.turn_id);
    if (!this.#covers(row.turn_id)) return [];
    switch (row.role) {
      case "user":
      case "continuation":
        return this.#inputId === null ? [...this.#endBlock(), { type: "input", row }] : [];
      case "assistant":
        return this.#whole("text", row);
      case "thinking":
        return this.#whole("thinking", row);
      case "tool_call":
        return this.#toolCall(row);
      case "tool_result":
        return this.#toolResult(row);
      case "compaction":
        return [...this.#endBlock(), { type: "note", text: "Older rows were summed up" }];
      case "note":
        return [...this.#endBlock(), { type: "note", text: row.text ?? "" }];
    }
  }

  #delta(kind: Block["kind"], key: string, messageId: string, text: string): Shown[] {
    if (!this.#joined || this.#finished) return [];
    const known = this.#blocks.get(key);
    if (known === undefined ? this.#incomplete : known.deaf) return [];
    return this.#grow(kind, key, messageId, (known?.shown ?? "") + text);
  }

  #segment(segment: ActiveSegment): Shown[] {
    if (segment.text === undefined) {
      this.#blocks.set(segment.live_id, { kind: segment.kind, shown: "", deaf: true });
      return [];
    }
    return this.#grow(segment.kind, segment.live_id, segment.message_id, segment.text);
  }

  /** A canonical row: what is missing of it, and its end. */
  #whole(kind: Block["kind"], row: HistoryRow): Shown[] {
    const key = row.live_id ?? `row ${row.id}`;
    const grown = this.#grow(kind, key, row.message_id ?? null, row.text ?? "");
    this.#blocks.delete(key);
    return [...grown, ...this.#endBlock()];
  }

  #grow(kind: Block["kind"], key: string, messageId: string | null, whole: string): Shown[] {
    const block = this.#blocks.get(key) ?? { kind, shown: "", deaf: false };
    this.#blocks.set(key, block);
    // A text that is not the one printed so far is printed anew, from its beginning.
    const diverged = !whole.startsWith(block.shown);
    const text = diverged ? whole : whole.slice(block.shown.length);
    if (text === "") return [];
    const ended = this.#open !== key || diverged ? this.#endBlock() : [];
    this.#open = key;
    block.shown = whole;
    return [...ended, { type: kind, message_id: messageId, text }];
  }

  #endBlock(): Shown[] {
    if (this.#open === null) return [];
    this.#open = null;
    return [{ type: "block_end" }];
  }

  #tool(tool: ToolProgress): Shown[] {
    // While its arguments are still being written there is nothing to show of it.
    if (tool.phase === "preparing") return [];
    return this.#toolStarted(tool.tool_call_id, tool.tool_name, tool.preview);
  }

  #toolCall(row: HistoryRow): Shown[] {
    return this.#toolStarted(
      row.tool_call_id ?? `row ${row.id}`,
      row.tool_name ?? "tool",
      row.tool_input === undefined ? "" : JSON.stringify(row.tool_input),
    );
  }

  #toolStarted(id: string, name: string, preview: string): Shown[] {
    if (this.#toolsStarted.has(id)) return [];
    this.#toolsStarted.add(id);
    return [
      ...this.#endBlock(),
      { type: "tool_started", tool_call_id: id, tool_name: name, preview },
    ];
  }

  #toolResult(row: HistoryRow): Shown[] {
    const id = row.tool_call_id ?? `row ${row.id}`;
    if (this.#toolsFinished.has(id)) return [];
    this.#toolsFinished.add(id);
    return [
      ...this.#endBlock(),
      {
        type: "tool_finished",
        tool_call_id: id,
        tool_name: row.tool_name ?? "tool",
        status: row.tool_status ?? "ok",
        text: row.text ?? "",
      },
    ];
  }

  #retry(event: Extract<LiveEvent, { kind: "retry" }>): Shown[] {
    this.#blocks = new Map();
    const { message_id, attempt, delay_ms, code, message } = event;
    return [...this.#endBlock(), { type: "retry", message_id, attempt, delay_ms, code, message }];
  }

  #blockedBy(reason: string | undefined): Shown[] {
    if (reason === undefined || reason === this.#blocked) return [];
    this.#blocked = reason;
    return [{ type: "blocked", reason }];
  }

  #turnFinished(turn: Turn): Shown[] {
    const mine = this.#inputId === null || turn.id === this.#turnId || this.#isMine(turn.members);
    if (!mine) return [];
    this.#blocks = new Map();
    this.#finished = this.#inputId !== null;
    return [...this.#endBlock(), { type: "turn_finished", turn }];
  }
}
