import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { constants, createZstdCompress } from "node:zlib";
import { problemBody } from "../../src/wire/problem.ts";
import type { ModelSession } from "./model_session.ts";

/** How one stream connection is treated; past the end of the plan a connection is left in peace. */
export interface ConnectionPlan {
  /** The connection ends after this many bytes of body; `Infinity` leaves it open. */
  readonly cutAt: number;
  /** It ends with a reset instead of an end. */
  readonly abruptly?: boolean;
  /** The session begins a new generation before this connection is answered. */
  readonly regenerate?: boolean;
  /** How many of the events to come happen while this connection is served, cut or not. @default all */
  readonly happen?: number;
  /** How many of them share a batch. @default 2 */
  readonly batch?: number;
  /** The body is written in pieces of this size. */
  readonly pieceBytes?: number;
  /** References of this connection's reset have expired when they are asked for. */
  readonly expire?: boolean;
}

export interface StreamServerOptions {
  readonly coding: "identity" | "zstd";
  /** How many events can be replayed. */
  readonly window: number;
  /** Rows in a reset. */
  readonly tail: number;
  /** Bytes above which a segment's text is spilled. */
  readonly spillOver: number;
}

/**
 * The stream of a `ModelSession` over a raw socket: replay windows, resets, generations, spilled output, keepalives
 * and codings as in the contract, and cuts wherever the plan says. The session's later events happen while streams
 * are served, so a cut stream leaves some for the next.
 */
export class StreamServer {
  readonly plan: ConnectionPlan[] = [];
  /** Paths of the stream connections. */
  readonly streams: string[] = [];
  readonly #session: ModelSession;
  readonly #options: StreamServerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #generation = 1;
  /** The index at which this generation began. */
  #base = 0;
  /** How many events have happened. */
  #head = 0;
  readonly #expired = new Set<string>();

  private constructor(session: ModelSession, options: StreamServerOptions, server: Server) {
    this.#session = session;
    this.#options = options;
    this.#server = server;
    server.on("connection", (socket) => this.#serve(socket));
  }

  static start(session: ModelSession, options: StreamServerOptions): Promise<StreamServer> {
    const server = createServer({ noDelay: true });
    const model = new StreamServer(session, options, server);
    return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(model)));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Nothing has happened yet, and nothing is planned. */
  rewind(): void {
    this.plan.length = 0;
    this.#generation = 1;
    this.#base = 0;
    this.#head = 0;
    this.#expired.clear();
  }

  /** How many events a client at this position has seen; `null` for a position of an older generation. */
  indexOf(generation: string, seq: number): number | null {
    return generation === `g${this.#generation}` ? this.#base + seq : null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    let request = "";
    socket.on("data", (chunk: Buffer) => {
      request += chunk.toString("latin1");
      if (!request.endsWith("\r\n\r\n")) return;
      const target = request.split(" ", 2)[1] ?? "";
      request = "";
      const url = new URL(target, "http://localhost");
      const [, , , route, contentId] = url.pathname.split("/");
      if (route === "events") void this.#stream(socket, url);
      else if (route === "history") this.#history(socket, url);
      else if (route === "active-output")
        this.#content(socket, url, decodeURIComponent(contentId ?? ""));
      else answer(socket, 404, problemBody("not_found"));
    });
  }

  async #stream(socket: Socket, url: URL): Promise<void> {
    this.streams.push(url.search);
    const plan = this.plan.shift() ?? { cutAt: Infinity };
    if (plan.regenerate === true) {
      this.#generation += 1;
      this.#base = this.#head;
    }
    const frames = this.#frames(url.searchParams, plan);
    const bytes =
      this.#options.coding === "zstd" ? await compress(frames) : Buffer.from(frames.join(""));
    const coding = this.#options.coding === "zstd" ? "content-encoding: zstd\r\n" : "";
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n${coding}connection: close\r\n\r\n`,
    );
    await writePieces(socket, bytes.subarray(0, plan.cutAt), plan.pieceBytes ?? bytes.length);
    if (plan.cutAt === Infinity) return;
    if (plan.abruptly === true) socket.resetAndDestroy();
    else socket.end();
  }

  #frames(search: URLSearchParams, plan: ConnectionPlan): string[] {
    const frames: string[] = [];
    let index = this.#resumeAt(search);
    if (index === null) {
      index = this.#head;
      const { tail, spillOver } = this.#options;
      const reset = this.#session.reset(index, index - this.#base, tail, spillOver);
      if (plan.expire === true) this.#expired.add(`at-${index}`);
      else this.#expired.delete(`at-${index}`);
      frames.push(this.#frame(index, [reset]));
    } else {
      frames.push(this.#frame(this.#head, this.#eventsBetween(index, this.#head)));
      index = this.#head;
    }
    const end = Math.min(this.#session.events.length, this.#head + (plan.happen ?? Infinity));
    while (index < end) {
      const next = Math.min(end, index + (plan.batch ?? 2));
      frames.push(this.#frame(next, this.#eventsBetween(index, next)));
      index = next;
    }
    this.#head = end;
    return [...frames, this.#frame(end, [])];
  }

  #resumeAt(search: URLSearchParams): number | null {
    const generation = search.get("after_generation");
    const index = this.#base + Number(search.get("after_seq"));
    if (generation !== `g${this.#generation}`) return null;
    return index <= this.#head && index >= this.#head - this.#options.window ? index : null;
  }

  #eventsBetween(from: number, to: number): object[] {
    return this.#session.events
      .slice(from, to)
      .map((event, offset) => ({ ...event, seq: from + offset + 1 - this.#base }));
  }

  #frame(index: number, events: readonly object[]): string {
    const generation = `g${this.#generation}`;
    const cursor = index - this.#base;
    const data = JSON.stringify({ generation, cursor, events });
    return `id: ${generation}:${cursor}\nevent: batch\ndata: ${data}\n\n`;
  }

  #history(socket: Socket, url: URL): void {
    const rows = this.#session.truths[this.#head]?.rows ?? [];
    const before = Number(url.searchParams.get("before") ?? Infinity);
    const older = rows.filter(({ id }) => id < before);
    const items = older.slice(-3);
    const next = items.length < older.length ? (items[0]?.id ?? null) : null;
    answer(socket, 200, { items, next, watermark: rows.at(-1)?.id ?? 0 });
  }

  /** Pages of four characters. */
  #content(socket: Socket, url: URL, contentId: string): void {
    const snapshot = url.searchParams.get("snapshot") ?? "";
    if (this.#expired.has(snapshot)) {
      answer(socket, 410, problemBody("active_output_expired"));
      return;
    }
    const truth = this.#session.truths[Number(snapshot.slice("at-".length))];
    const whole = truth?.live.find(({ liveId }) => liveId === contentId)?.text ?? "";
    // By code points, so that no page ends inside one.
    const characters = Array.from(whole);
    const start = Number(url.searchParams.get("next") ?? 0);
    const text = characters.slice(start, start + 4).join("");
    const next = start + 4 < characters.length ? String(start + 4) : null;
    answer(socket, 200, { content_id: contentId, snapshot, text, next });
  }
}

function answer(socket: Socket, status: number, body: object): void {
  const bytes = Buffer.from(JSON.stringify(body));
  socket.write(
    `HTTP/1.1 ${status} Answer\r\ncontent-type: application/json\r\ncontent-length: ${bytes.length}\r\n\r\n`,
  );
  socket.write(bytes);
}

async function writePieces(socket: Socket, bytes: Buffer, pieceBytes: number): Promise<void> {
  if (bytes.length === 0) return;
  for (let start = 0; start < bytes.length; start += pieceBytes) {
    socket.write(bytes.subarray(start, start + pieceBytes));
    if (start + pieceBytes < bytes.length) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** One context for all frames, flushed after each. */
async function compress(frames: readonly string[]): Promise<Buffer> {
  const coder = createZstdCompress();
  const chunks: Buffer[] = [];
  coder.on("data", (chunk: Buffer) => chunks.push(chunk));
  for (const frame of frames) {
    coder.write(frame);
    await new Promise<void>((resolve) => coder.flush(constants.ZSTD_e_flush, () => resolve()));
  }
  coder.destroy();
  return Buffer.concat(chunks);
}
