import { createParser } from "eventsource-parser";
import * as v from "valibot";
import { KNOWN_EVENT_SCHEMAS, type StreamEvent } from "../../src/wire/event.ts";
import { until } from "./until.ts";

export interface ReadBatch {
  readonly id: string | undefined;
  readonly generation: string;
  readonly cursor: number;
  readonly events: readonly StreamEvent[];
}

/** A stream as it is read by a program: batches as they come, each event held against its schema, and the end. */
export class EventReader {
  readonly response: Response;
  readonly batches: ReadBatch[] = [];
  /** The body ended as it should. */
  ended = false;
  failed: unknown = null;
  readonly #stream: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(response: Response) {
    this.response = response;
    this.#stream = response.body?.getReader();
    void this.#read();
  }

  get events(): readonly StreamEvent[] {
    return this.batches.flatMap(({ events }) => events);
  }

  get last(): ReadBatch {
    const last = this.batches.at(-1);
    if (last === undefined) throw new Error("There is no batch yet");
    return last;
  }

  /** Waits for the first event of a kind after the given number of events. */
  async event<K extends StreamEvent["kind"]>(
    kind: K,
    after = 0,
  ): Promise<Extract<StreamEvent, { kind: K }>> {
    return until(`the event '${kind}'`, () => {
      if (this.failed !== null) throw new Error("The stream failed", { cause: this.failed });
      const found = this.events.slice(after).find((event) => event.kind === kind);
      return found as Extract<StreamEvent, { kind: K }> | undefined;
    });
  }

  async closed(): Promise<void> {
    await until("the end of the stream", () => this.ended || this.failed !== null);
  }

  async cancel(): Promise<void> {
    await this.#stream?.cancel();
  }

  async #read(): Promise<void> {
    const parser = createParser({
      onEvent: ({ id, data }) => {
        const batch = JSON.parse(data) as Omit<ReadBatch, "id">;
        for (const event of batch.events) v.parse(KNOWN_EVENT_SCHEMAS[event.kind], event);
        this.batches.push({ ...batch, id });
      },
    });
    const decoder = new TextDecoder();
    try {
      for (;;) {
        const part = await this.#stream?.read();
        if (part === undefined || part.done) break;
        parser.feed(decoder.decode(part.value, { stream: true }));
      }
      this.ended = true;
    } catch (error) {
      this.failed = error;
    }
  }
}
