import { createZstdDecompress } from "node:zlib";
import { encodeRequest } from "./http_client.ts";

/** Owns a reader of the daemon's event stream that knows when each frame came and how many bytes it took. */
export interface StreamEventLike {
  readonly kind: string;
  readonly seq: number;
  readonly text?: string;
  readonly [field: string]: unknown;
}

export interface ReceivedBatch {
  /** Milliseconds since the epoch, with fractions, when its last byte arrived. */
  readonly at: number;
  readonly generation: string;
  readonly cursor: number;
  readonly events: readonly StreamEventLike[];
}

export interface StreamOptions {
  readonly port: number;
  readonly token: string;
  readonly sessionId: string;
  readonly coding?: "identity" | "zstd";
  readonly position?: { readonly generation: string; readonly seq: number };
  readonly onBatch?: (batch: ReceivedBatch) => void;
  /** Takes no byte at all after the head. */
  readonly stalled?: boolean;
  /** Decodes nothing: the chunks of the body are counted as frames, so that the reader costs next to nothing. */
  readonly counting?: boolean;
}

/** The wall clock, finer than `Date.now()`; the same for every process of this machine. */
export function preciseNow(): number {
  return performance.timeOrigin + performance.now();
}

const HEAD_END = Buffer.from("\r\n\r\n");
const FRAME_END = Buffer.from("\n\n");
const CR = 13;

/** Takes the chunks of a chunked body out of their wrapping (RFC 9112 §7.1). */
export class ChunkedBody {
  #rest: Buffer = Buffer.alloc(0);
  #left = 0;
  #needsLineEnd = false;
  ended = false;

  feed(data: Buffer, take: (bytes: Buffer) => void): void {
    let bytes = this.#rest.length === 0 ? data : Buffer.concat([this.#rest, data]);
    this.#rest = Buffer.alloc(0);
    while (bytes.length > 0 && !this.ended) {
      if (this.#left > 0) {
        const part = bytes.subarray(0, this.#left);
        this.#left -= part.length;
        bytes = bytes.subarray(part.length);
        if (this.#left === 0) this.#needsLineEnd = true;
        take(part);
        continue;
      }
      const from = this.#needsLineEnd ? 2 : 0;
      const lineEnd = bytes.indexOf(CR, from);
      if (lineEnd === -1 || bytes.length < lineEnd + 2) {
        this.#rest = bytes;
        return;
      }
      this.#left = Number.parseInt(bytes.toString("latin1", from, lineEnd), 16);
      this.#needsLineEnd = false;
      bytes = bytes.subarray(lineEnd + 2);
      if (this.#left === 0) this.ended = true;
    }
  }
}

export class EventStream {
  #socket: Bun.Socket<undefined> | null = null;
  readonly #options: StreamOptions;
  readonly #chunked = new ChunkedBody();
  readonly #decoder: ReturnType<typeof createZstdDecompress> | null;
  #head: Buffer | null = Buffer.alloc(0);
  #text: Buffer = Buffer.alloc(0);
  readonly #waiting: { test: (batch: ReceivedBatch) => boolean; resolve: () => void }[] = [];
  readonly #closed = Promise.withResolvers<void>();
  readonly #opened = Promise.withResolvers<void>();
  /** Bytes of the body as they were coded. */
  bytes = 0;
  frames = 0;
  ended = false;

  private constructor(options: StreamOptions) {
    this.#options = options;
    this.#decoder = options.coding === "zstd" ? createZstdDecompress() : null;
    this.#decoder?.on("data", (data: Buffer) => this.#decode(data));
    // A reader that goes away leaves a frame unfinished.
    this.#decoder?.on("error", () => undefined);
  }

  /** Resolves once the head of the answer is there. */
  static async open(options: StreamOptions): Promise<EventStream> {
    const stream = new EventStream(options);
    await stream.#connect();
    return stream;
  }

  /** Resolves when a batch for which the test holds arrives from now on. */
  until(test: (batch: ReceivedBatch) => boolean): Promise<void> {
    return new Promise((resolve) => this.#waiting.push({ test, resolve }));
  }

  untilEvent(kind: string): Promise<void> {
    return this.until((batch) => batch.events.some((event) => event.kind === kind));
  }

  /** Resolves when the connection is gone. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Goes away as a client that was killed does. */
  close(): void {
    this.#socket?.terminate();
    this.#decoder?.destroy();
  }

  async #connect(): Promise<void> {
    const { port, token, sessionId, position } = this.#options;
    const query =
      position === undefined
        ? ""
        : `?after_generation=${position.generation}&after_seq=${position.seq}`;
    const request = encodeRequest({
      method: "GET",
      path: `/sessions/${sessionId}/events${query}`,
      port,
      token,
      headers: {
        Accept: "text/event-stream",
        "Accept-Encoding": this.#options.coding ?? "identity",
      },
    });
    this.#socket = await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open: (socket) => {
          socket.write(request);
          if (this.#options.stalled === true) {
            socket.pause();
            this.#opened.resolve();
          }
        },
        data: (_socket, data) => this.#take(data),
        close: () => this.#end(),
        error: () => this.#end(),
      },
    });
    await this.#opened.promise;
  }

  #end(): void {
    this.ended = true;
    this.#opened.reject(new Error("The stream ended before its head"));
    this.#closed.resolve();
  }

  #take(data: Buffer): void {
    if (this.#head === null) {
      this.#body(data);
      return;
    }
    this.#head = Buffer.concat([this.#head, data]);
    const end = this.#head.indexOf(HEAD_END);
    if (end === -1) return;
    const head = this.#head.toString("latin1", 0, end);
    const rest = this.#head.subarray(end + 4);
    this.#head = null;
    if (!head.startsWith("HTTP/1.1 200")) {
      this.#opened.reject(new Error(`The stream was refused: ${head} ${rest.toString()}`));
      this.close();
      return;
    }
    const coded = /\r\ncontent-encoding: zstd/i.test(head);
    if (coded !== (this.#decoder !== null)) throw new Error(`The coding is another one: ${head}`);
    this.#opened.resolve();
    if (rest.length > 0) this.#body(rest);
  }

  #body(data: Buffer): void {
    this.#chunked.feed(data, (bytes) => {
      this.bytes += bytes.length;
      if (this.#options.counting === true) this.frames += 1;
      else if (this.#decoder === null) this.#decode(bytes);
      // What the socket gave is only lent.
      else this.#decoder.write(Buffer.from(bytes));
    });
  }

  #decode(bytes: Buffer): void {
    let text = this.#text.length === 0 ? bytes : Buffer.concat([this.#text, bytes]);
    for (;;) {
      const end = text.indexOf(FRAME_END);
      if (end === -1) break;
      this.#frame(text.subarray(0, end));
      text = text.subarray(end + 2);
    }
    this.#text = text.length === 0 ? text : Buffer.from(text);
  }

  #frame(frame: Buffer): void {
    this.frames += 1;
    if (this.#options.onBatch === undefined && this.#waiting.length === 0) return;
    const text = frame.toString();
    const from = text.indexOf("data: ");
    const batch = JSON.parse(text.slice(from + 6)) as Omit<ReceivedBatch, "at">;
    const received = { ...batch, at: preciseNow() };
    this.#options.onBatch?.(received);
    const waiting = this.#waiting.splice(0);
    for (const each of waiting) {
      if (each.test(received)) each.resolve();
      else this.#waiting.push(each);
    }
  }
}
