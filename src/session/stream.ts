import type { Clock } from "../base/clock.ts";
import type { HistoryTail } from "../store/history.ts";
import type { ActiveOutput as ActiveOutputWire, EventBody } from "../wire/event.ts";
import { ActiveOutput } from "./active_output.ts";
import { Emitter } from "./emit.ts";
import type { Delta } from "./frame.ts";
import { Reader, type ReaderSource } from "./reader.ts";
import { batchFrame } from "./ring.ts";
import { type Moment, resetEvent } from "./snapshot.ts";
import type { SpillRun } from "./spill.ts";
import type { Frame, StreamPosition } from "./subscription.ts";
import { ToolBoard } from "./tool_progress.ts";

/**
 * Owns what one lifetime of a session shows live: its numbered events, the projection of unfinished output, the
 * progress of tools, and the readers' positions (sessions.md, Stream failures and recovery). It knows nothing of
 * queues and turns; the session tells it what to publish, in its steps.
 *
 * I1 A reset holds parts of one moment: those of the session, and the live ones at the same cursor.
 * I2 A watch goes the moment its reader is closed, whether anything is published or not.
 */
export interface StreamOptions {
  readonly generation: string;
  readonly clock: Clock;
  /** The session's part of a reset. */
  readonly moment: () => Omit<Moment, "cursor" | "activeOutput" | "progress">;
  readonly readTail: (rows: number, bytesMax: number) => HistoryTail;
}

export class SessionStream implements ReaderSource {
  readonly tools: ToolBoard;
  readonly #options: StreamOptions;
  readonly #emitter: Emitter;
  readonly #output = new ActiveOutput();
  readonly #readers = new Set<Reader>();
  #turnId: string | null = null;
  #sharedReset: Frame | null = null;
  #closed = false;

  constructor(options: StreamOptions) {
    const { generation, clock } = options;
    this.#options = options;
    this.#emitter = new Emitter({
      generation,
      clock,
      onDelta: (delta) => this.#output.append(delta),
      onPublished: () => this.#published(),
    });
    this.tools = new ToolBoard(clock, (kind, tool) => {
      if (this.#turnId !== null) this.publish({ kind, turn_id: this.#turnId, tool });
    });
  }

  get generation(): string {
    return this.#emitter.generation;
  }

  get cursor(): number {
    return this.#emitter.cursor;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get watched(): boolean {
    return this.#readers.size > 0;
  }

  publish(body: EventBody): void {
    if (this.#closed) return;
    if (body.kind === "tool_finished") this.tools.leave(body.tool_call_id);
    this.#emitter.emit(body);
  }

  delta(delta: Delta): void {
    if (!this.#closed) this.#emitter.delta(delta);
  }

  endBlock(liveId: string): void {
    if (!this.#closed) this.#emitter.endBlock(liveId);
  }

  beginTurn(turnId: string, run: SpillRun): void {
    this.#turnId = turnId;
    this.#output.begin(run);
  }

  /** What was provisional is committed, or belongs to no attempt any more; published before. */
  retireOutput(): void {
    this.#output.retire();
    this.#sharedReset = null;
  }

  endTurn(): void {
    this.tools.clear();
    this.retireOutput();
    this.#turnId = null;
  }

  subscribe(position: StreamPosition | null): Reader {
    const reader = new Reader(this, position);
    this.#readers.add(reader);
    return reader;
  }

  release(reader: Reader): void {
    this.#readers.delete(reader);
  }

  after(seq: number): Frame | null {
    return this.#emitter.after(seq);
  }

  /**
   * Readers that attach at the same cursor share one, unless it refers to spilled output: a reference's time begins
   * at its capture, and whoever comes back because it is over needs another.
   */
  reset(): Frame {
    if (this.#sharedReset !== null) return this.#sharedReset;
    const activeOutput = this.#output.capture();
    const frame = this.#takeReset(activeOutput);
    if (!activeOutput.segments.some(({ content }) => content !== undefined)) {
      this.#sharedReset = frame;
    }
    return frame;
  }

  /** Lets go of what only readers that come back would need. */
  forget(): void {
    this.#sharedReset = null;
    if (!this.watched) this.#emitter.forget();
  }

  /** Readers are woken to take what is left, and end. */
  close(): void {
    if (this.#closed) return;
    this.endTurn();
    this.#emitter.close();
    this.#closed = true;
    for (const reader of this.#readers) reader.wake();
    this.#readers.clear();
  }

  #published(): void {
    this.#sharedReset = null;
    for (const reader of this.#readers) reader.wake();
  }

  #takeReset(activeOutput: ActiveOutputWire): Frame {
    const event = resetEvent(
      {
        ...this.#options.moment(),
        cursor: this.cursor,
        activeOutput,
        progress: this.tools.current(),
      },
      this.#options.readTail,
    );
    return batchFrame(this.generation, this.cursor, JSON.stringify(event));
  }
}
