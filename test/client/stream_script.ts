import type { ResetEvent } from "../../src/wire/event.ts";
import type { HistoryRow } from "../../src/wire/history.ts";
import { resetEvent } from "../support/reset_event.ts";

/** Makers of frames and events for scripted streams. */

export const SESSION = "0192f0c1-2345-7abc-8def-0123456789ab";
export const TURN = "0192f0c1-2345-7abc-8def-0123456789ad";

/** The input id with this number. */
export function inputId(number: number): string {
  return `0192f0c1-2345-7abc-8def-${number.toString(16).padStart(12, "0")}`;
}

export interface RawFrame {
  readonly generation?: unknown;
  readonly cursor?: unknown;
  readonly events?: unknown;
}

export function frame(batch: RawFrame): string {
  const whole = { generation: "g1", events: [], ...batch };
  return `id: ${String(whole.generation)}:${String(whole.cursor)}\nevent: batch\ndata: ${JSON.stringify(whole)}\n\n`;
}

export function reset(seq: number, more: Partial<ResetEvent> = {}): ResetEvent {
  return resetEvent({ seq, ...more });
}

export function delta(seq: number, text = `delta ${seq}`, liveId = "l1"): object {
  return { seq, kind: "text_delta", message_id: "m1", live_id: liveId, text };
}

export function row(id: number, more: Partial<HistoryRow> = {}): HistoryRow {
  return { id, role: "assistant", text: `row ${id}`, turn_id: TURN, created_at: 1, ...more };
}

/** A stream that a test feeds by hand. */
export class HandStream {
  readonly response: Response;
  cancelled = false;
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;

  constructor(contentType: string | null = "text/event-stream") {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
      },
      cancel: () => {
        this.cancelled = true;
      },
    });
    const headers: Record<string, string> =
      contentType === null ? {} : { "content-type": contentType };
    this.response = new Response(body, { headers });
  }

  send(...frames: string[]): this {
    for (const text of frames) this.sendBytes(new TextEncoder().encode(text));
    return this;
  }

  sendBytes(bytes: Uint8Array): this {
    this.#controller?.enqueue(bytes);
    return this;
  }

  end(): this {
    this.#controller?.close();
    return this;
  }

  breakOff(): this {
    this.#controller?.error(new TypeError("terminated"));
    return this;
  }
}

/** A stream that sends these frames and ends. */
export function finished(...frames: string[]): Response {
  return new HandStream().send(...frames).end().response;
}

/** A stream that sends these frames and stays open. */
export function open(...frames: string[]): Response {
  return new HandStream().send(...frames).response;
}
