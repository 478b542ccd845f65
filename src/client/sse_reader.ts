import { createParser } from "eventsource-parser";
import type { EventSourceMessage } from "eventsource-parser";
import { RESPONSE_BYTES_MAX } from "../base/limits.ts";
import { ProtocolError, TransportError } from "./errors.ts";
import { abortable } from "./transport.ts";

/**
 * Owns the way from a response's bytes to SSE messages. It reads when it is asked to, so a slow consumer slows the
 * socket; a message that was cut off at the end is dropped, as the standard says.
 */

/** Room for a whole frame with its `id` and `event` lines; what grows past it is not the contract's. */
const BUFFER_CHARS_MAX = 2 * RESPONSE_BYTES_MAX;

export class SseReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>;
  readonly #signal: AbortSignal;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  #messages: EventSourceMessage[] = [];
  #overflow: Error | null = null;
  readonly #parser = createParser({
    maxBufferSize: BUFFER_CHARS_MAX,
    onEvent: (message) => {
      this.#messages.push(message);
    },
    onError: (error) => {
      // Unknown fields are to be ignored.
      if (error.type === "max-buffer-size-exceeded") this.#overflow = error;
    },
  });

  constructor(body: ReadableStream<Uint8Array<ArrayBuffer>>, signal: AbortSignal) {
    this.#reader = body.getReader();
    this.#signal = signal;
  }

  /**
   * The messages that the next bytes complete, maybe none; `null` at the end of the stream.
   *
   * @throws {TransportError} when the stream broke
   * @throws {ProtocolError} when it is not UTF-8, or a frame has no end
   */
  async next(): Promise<EventSourceMessage[] | null> {
    const chunk = await this.#read();
    if (chunk === null) return null;
    this.#parser.feed(this.#decode(chunk));
    if (this.#overflow !== null) {
      throw new ProtocolError("A frame larger than the contract allows", this.#overflow);
    }
    const messages = this.#messages;
    this.#messages = [];
    return messages;
  }

  /** Lets the stream go, without waiting for whoever is at its other end. */
  close(): void {
    this.#reader.cancel().catch(() => {
      // It broke already, which lets it go as well.
    });
  }

  async #read(): Promise<Uint8Array | null> {
    try {
      const { done, value } = await abortable(this.#reader.read(), this.#signal);
      return done ? null : value;
    } catch (error) {
      if (this.#signal.aborted) throw error;
      throw new TransportError("connection", "The stream broke off", error);
    }
  }

  #decode(chunk: Uint8Array): string {
    try {
      return this.#decoder.decode(chunk, { stream: true });
    } catch (error) {
      throw new ProtocolError("The stream is not UTF-8", error);
    }
  }
}
