import type { Clock, Timer } from "../base/clock.ts";
import type { CurrentProgress, ToolProgress } from "../wire/event.ts";

/**
 * Owns what the tools of a running turn are doing, as clients may see it (contract.md, The stream).
 *
 * I1 Progress of one tool is published at most once in `PROGRESS_MS`; the newest look wins.
 * I2 A preview is bounded, and so is the number of tools that are shown.
 */
const PROGRESS_MS = 100;
const PREVIEW_CHARS_MAX = 1000;
const TOOLS_MAX = 64;

export type ToolPhase = ToolProgress["phase"];

interface Entry {
  tool: ToolProgress;
  /** It changed since it was last published. */
  changed: boolean;
  timer: Timer | null;
}

export class ToolBoard {
  readonly #clock: Clock;
  readonly #publish: (kind: "tool_started" | "tool_progress", tool: ToolProgress) => void;
  readonly #entries = new Map<string, Entry>();

  constructor(
    clock: Clock,
    publish: (kind: "tool_started" | "tool_progress", tool: ToolProgress) => void,
  ) {
    this.#clock = clock;
    this.#publish = publish;
  }

  /** A call has appeared, or goes on to another phase; published at once. */
  enter(call: {
    readonly id: string;
    readonly name: string;
    readonly phase: ToolPhase;
    readonly preview: string;
  }): void {
    const entry = this.#entries.get(call.id);
    if (entry === undefined && this.#entries.size >= TOOLS_MAX) return;
    const tool: ToolProgress = {
      tool_call_id: call.id,
      tool_name: call.name,
      phase: call.phase,
      preview: head(call.preview),
      started_at: entry?.tool.started_at ?? this.#clock.now(),
    };
    if (entry === undefined) {
      const added = { tool, changed: false, timer: null };
      this.#entries.set(call.id, added);
      this.#publish("tool_started", tool);
      this.#rest(added);
      return;
    }
    entry.tool = tool;
    entry.changed = false;
    this.#publish("tool_progress", tool);
  }

  /** A look at the arguments of a call as they arrive. */
  arguments(id: string, preview: string): void {
    this.#look(id, head(preview));
  }

  /** A look at the newest output of a running tool. */
  output(id: string, preview: string): void {
    this.#look(id, tail(preview));
  }

  /** The phase of a known call, or `null`. */
  phase(id: string): ToolPhase | null {
    return this.#entries.get(id)?.tool.phase ?? null;
  }

  leave(id: string): void {
    this.#entries.get(id)?.timer?.cancel();
    this.#entries.delete(id);
  }

  clear(): void {
    for (const id of this.#entries.keys()) this.leave(id);
  }

  /** `null` when no tool works. */
  current(): CurrentProgress | null {
    if (this.#entries.size === 0) return null;
    return { tools: [...this.#entries.values()].map(({ tool }) => tool) };
  }

  #look(id: string, preview: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.tool.preview === preview) return;
    entry.tool = { ...entry.tool, preview };
    entry.changed = true;
    if (entry.timer === null) this.#show(entry);
  }

  #show(entry: Entry): void {
    entry.changed = false;
    this.#publish("tool_progress", entry.tool);
    this.#rest(entry);
  }

  #rest(entry: Entry): void {
    entry.timer = this.#clock.timer(PROGRESS_MS, () => {
      entry.timer = null;
      if (entry.changed) this.#show(entry);
    });
  }
}

function head(text: string): string {
  return text.slice(0, PREVIEW_CHARS_MAX).toWellFormed();
}

function tail(text: string): string {
  return text.slice(-PREVIEW_CHARS_MAX).toWellFormed();
}
