import type { ActiveSegment, ResetEvent, StreamEvent, ToolProgress } from "../../src/wire/event.ts";
import type { HistoryRow } from "../../src/wire/history.ts";
import type { PendingInput, Turn } from "../../src/wire/input.ts";
import type { Phase } from "../../src/wire/session.ts";
import { inputId } from "./stream_script.ts";

/**
 * A session as the daemon would know it, told by hand: commands in, events and the truth after each event out. It
 * folds nothing: the truth is written down where the event is made, so that a client's fold can be held against it.
 */

export interface ModelChunk {
  readonly liveId: string;
  readonly messageId: string;
  readonly kind: "text" | "thinking";
  readonly text: string;
}

export interface Truth {
  readonly rows: readonly HistoryRow[];
  readonly live: readonly ModelChunk[];
  readonly pending: readonly PendingInput[];
  readonly progress: readonly ToolProgress[];
  readonly phase: Phase;
  readonly turn: Turn | null;
}

/** What a person, a provider or a tool does. Commands that make no sense at their moment do nothing. */
export type Command =
  | { readonly kind: "submit"; readonly text: string }
  | { readonly kind: "cancel" }
  | { readonly kind: "delta"; readonly thinking: boolean; readonly text: string }
  | { readonly kind: "commit" }
  | { readonly kind: "retry" }
  | { readonly kind: "tool"; readonly preview: string }
  | { readonly kind: "tool_done"; readonly text: string }
  | { readonly kind: "steer" }
  | { readonly kind: "note"; readonly text: string }
  | { readonly kind: "finish" };

type Body<E = StreamEvent> = E extends unknown ? Omit<E, "seq"> : never;

export class ModelSession {
  /** Event bodies; the event at index i brings the truth from `truths[i]` to `truths[i + 1]`. */
  readonly events: Body[] = [];
  readonly truths: Truth[] = [];
  #rows: HistoryRow[] = [];
  #live: ModelChunk[] = [];
  #pending: PendingInput[] = [];
  #progress: ToolProgress[] = [];
  #phase: Phase = "idle";
  #turn: Turn | null = null;
  #ids = 0;
  #message = 0;

  constructor(commands: readonly Command[]) {
    this.#note();
    for (const command of commands) this.#run(command);
    this.#finish();
  }

  /** What a client that attaches after `index` events gets; `tail` rows of history. */
  reset(index: number, seq: number, tail: number, spillOver: number): ResetEvent {
    const truth = this.truths[index];
    if (truth === undefined) throw new Error(`No truth at ${index}`);
    return {
      seq,
      kind: "reset",
      history: truth.rows.slice(-tail),
      history_more: truth.rows.length > tail,
      history_watermark: truth.rows.at(-1)?.id ?? 0,
      active_output: {
        segments: truth.live.map((chunk) => segment(chunk, index, spillOver)),
        incomplete: false,
      },
      current_progress: truth.progress.length === 0 ? null : { tools: [...truth.progress] },
      pending_inputs: [...truth.pending],
      phase: truth.phase,
      turn: truth.turn,
    };
  }

  #run(command: Command): void {
    switch (command.kind) {
      case "submit":
        return this.#submit(command.text);
      case "cancel":
        return this.#cancel();
      case "steer":
        return this.#consume();
      case "finish":
        return this.#finish();
      case "note":
        return this.#addNote(command.text);
      case "delta":
      case "commit":
      case "retry":
      case "tool":
      case "tool_done":
        if (this.#turn?.state === "running") this.#work(command);
    }
  }

  #work(
    command: Extract<Command, { kind: "delta" | "commit" | "retry" | "tool" | "tool_done" }>,
  ): void {
    switch (command.kind) {
      case "delta":
        return this.#delta(command.thinking ? "thinking" : "text", command.text);
      case "commit":
        return this.#commit();
      case "retry":
        return this.#retry();
      case "tool":
        return this.#startTool(command.preview);
      case "tool_done":
        return this.#finishTool(command.text);
    }
  }

  #submit(text: string): void {
    const id = this.#id();
    const input: PendingInput = {
      id,
      kind: "message",
      display_text: text,
      submission_id: id,
      image_count: 0,
      accepted_at: 1,
    };
    this.#pending = [...this.#pending, input];
    this.#emit({ kind: "input_accepted", input });
    if (this.#turn?.state !== "running") this.#consume();
  }

  #cancel(): void {
    const [first, ...rest] = this.#pending;
    if (first === undefined) return;
    this.#pending = rest;
    this.#emit({ kind: "input_cancelled", input_id: first.id });
  }

  #consume(): void {
    const inputs = this.#pending;
    if (inputs.length === 0) return;
    const members = inputs.map(({ id }) => id);
    if (this.#turn?.state === "running") {
      this.#turn = { ...this.#turn, members: [...this.#turn.members, ...members] };
      this.#emit({ kind: "turn_members", turn_id: this.#turn.id, members: this.#turn.members });
    } else {
      this.#turn = { id: this.#id(), state: "running", members, started_at: 1 };
      this.#emit({ kind: "turn_started", turn: this.#turn });
      this.#phase = "running";
      this.#emit({ kind: "status", phase: "running", running: true });
    }
    for (const { id, display_text } of inputs) {
      const row = this.#row({ role: "user", display_text: display_text ?? "", operation_id: id });
      this.#pending = this.#pending.filter((input) => input.id !== id);
      this.#emit({ kind: "input_committed", input_id: id, turn_id: row.turn_id ?? "", row });
    }
  }

  #delta(kind: "text" | "thinking", text: string): void {
    const messageId = `m${this.#message}`;
    const liveId = `${messageId}:${kind}`;
    const known = this.#live.find((chunk) => chunk.liveId === liveId);
    const chunk = { liveId, messageId, kind, text: (known?.text ?? "") + text };
    this.#live =
      known === undefined
        ? [...this.#live, chunk]
        : this.#live.map((other) => (other === known ? chunk : other));
    this.#emit({ kind: `${kind}_delta`, message_id: messageId, live_id: liveId, text });
  }

  #commit(): void {
    const chunks = this.#live;
    if (chunks.length === 0) return;
    const rowIds: number[] = [];
    for (const { liveId, messageId, kind, text } of chunks) {
      const role = kind === "text" ? "assistant" : "thinking";
      const row = this.#row({ role, text, message_id: messageId, live_id: liveId });
      rowIds.push(row.id);
      this.#live = this.#live.filter((chunk) => chunk.liveId !== liveId);
      this.#emit({ kind: role, message_id: messageId, row });
    }
    const call = this.#row({ role: "tool_call", tool_name: "bash", tool_input: { n: 1 } });
    this.#emit({
      kind: "committed",
      turn_id: this.#turn?.id ?? "",
      row_ids: [...rowIds, call.id],
      rows: [call],
      history_watermark: call.id,
      replaces_live_ids: chunks.map(({ liveId }) => liveId),
      replaces_all_live: true,
    });
    this.#message += 1;
  }

  #retry(): void {
    const replaced = this.#live.map(({ liveId }) => liveId);
    const messageId = `m${this.#message}`;
    this.#message += 1;
    this.#live = [];
    this.#emit({
      kind: "retry",
      turn_id: this.#turn?.id ?? "",
      message_id: messageId,
      attempt: 1,
      delay_ms: 1,
      code: "overloaded",
      message: "Overloaded",
      replaces_live_ids: replaced,
      replaces_all_live: true,
    });
  }

  #startTool(preview: string): void {
    const turnId = this.#turn?.id ?? "";
    const id = `t${this.events.length}`;
    const tool: ToolProgress = {
      tool_call_id: id,
      tool_name: "bash",
      phase: "preparing",
      preview: "",
      started_at: 1,
    };
    this.#progress = [...this.#progress, tool];
    this.#emit({ kind: "tool_started", turn_id: turnId, tool });
    const running: ToolProgress = { ...tool, phase: "running", preview };
    this.#progress = this.#progress.map((other) => (other === tool ? running : other));
    this.#emit({ kind: "tool_progress", turn_id: turnId, tool: running });
  }

  #finishTool(text: string): void {
    const [tool, ...rest] = this.#progress;
    if (tool === undefined) return;
    const row = this.#row({
      role: "tool_result",
      text,
      tool_call_id: tool.tool_call_id,
      tool_status: "ok",
    });
    this.#progress = rest;
    this.#emit({
      kind: "tool_finished",
      turn_id: this.#turn?.id ?? "",
      tool_call_id: tool.tool_call_id,
      row,
    });
  }

  #addNote(text: string): void {
    this.#emit({ kind: "note", row: this.#row({ role: "note", text }) });
  }

  #finish(): void {
    if (this.#turn?.state !== "running") return;
    this.#turn = { ...this.#turn, state: "completed", ended_at: 2 };
    this.#live = [];
    this.#progress = [];
    this.#message += 1;
    this.#emit({ kind: "turn_finished", turn: this.#turn, replaces_all_live: true });
    this.#phase = "idle";
    this.#emit({ kind: "status", phase: "idle", running: false });
  }

  #row(fields: Partial<HistoryRow> & Pick<HistoryRow, "role">): HistoryRow {
    const id = (this.#rows.at(-1)?.id ?? 0) + 1 + (this.events.length % 2);
    const row: HistoryRow = { id, turn_id: this.#turn?.id ?? null, created_at: 1, ...fields };
    this.#rows = [...this.#rows, row];
    return row;
  }

  #emit(event: Body): void {
    this.events.push(event);
    this.#note();
  }

  #note(): void {
    this.truths.push({
      rows: this.#rows,
      live: this.#live,
      pending: this.#pending,
      progress: this.#progress,
      phase: this.#phase,
      turn: this.#turn,
    });
  }

  #id(): string {
    this.#ids += 1;
    return inputId(this.#ids);
  }
}

/** Long text is spilled, under a name that says what it is: the chunk, and the moment of its capture. */
function segment(chunk: ModelChunk, index: number, spillOver: number): ActiveSegment {
  const { liveId, messageId, kind, text } = chunk;
  const fields = { live_id: liveId, message_id: messageId, kind };
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= spillOver) return { ...fields, text };
  const content = { content_id: liveId, snapshot: `at-${index}`, bytes, expires_at: 1 };
  return { ...fields, content };
}
