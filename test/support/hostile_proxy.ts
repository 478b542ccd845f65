import { createServer, connect } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";

/**
 * What the network does to one connection. Bytes are counted on the wire, heads included.
 *
 * - `pass`: nothing, or, with `pieceBytes`, the answer in pieces of that size.
 * - `refuse`: the connection is reset at once; the request is lost.
 * - `late_request`: the whole request reaches the daemon only after `delayMs`, also when the client has left by then.
 * - `cut_request`: the daemon gets the first `bytes` of the request, then both sides are reset.
 * - `lose_response`: the daemon answers, and the client gets a reset instead.
 * - `cut_response`: the client gets the first `bytes` of the answer, then a reset, or an end with `clean`.
 * - `stall`: the daemon gets the request, the client gets nothing, ever.
 * - `answer`: the client gets `response` from the proxy; the daemon gets the request only with `forward`, and has
 *   answered by then.
 */
export type Fault =
  | { readonly kind: "pass"; readonly delayMs?: number; readonly pieceBytes?: number }
  | { readonly kind: "refuse" }
  | { readonly kind: "late_request"; readonly delayMs: number }
  | { readonly kind: "cut_request"; readonly bytes: number }
  | { readonly kind: "lose_response" }
  | { readonly kind: "cut_response"; readonly bytes: number; readonly clean?: boolean }
  | { readonly kind: "stall" }
  | { readonly kind: "answer"; readonly response: string; readonly forward: boolean };

export interface HostileProxyOptions {
  /** Asked for each connection, so that a daemon may come back on another port; `null` while there is none. */
  readonly target: () => number | null;
  /** Called when a request's first bytes have come, with its first line, before any of it is forwarded. */
  readonly onRequest?: (line: string) => void;
  /** Called when the daemon's first answering bytes are here, before the client gets any. */
  readonly onAnswer?: () => void | Promise<void>;
}

/** A raw HTTP answer for `Fault.answer`. */
export function rawAnswer(status: number, contentType: string, body: string): string {
  const bytes = Buffer.byteLength(body);
  return `HTTP/1.1 ${status} Answer\r\ncontent-type: ${contentType}\r\ncontent-length: ${bytes}\r\nconnection: close\r\n\r\n${body}`;
}

/**
 * A TCP proxy that mistreats connections by plan: each new connection takes the next fault of `plan`, and `pass`
 * when the plan is over. It knows nothing of HTTP beyond where a request ends, so a client that keeps connections
 * alive gets one fault for all that it sends over one.
 */
export class HostileProxy {
  /** Faults to come; tests push to it. */
  readonly plan: Fault[] = [];
  /** First lines of the requests that reached the proxy. */
  readonly requests: string[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #options: HostileProxyOptions;
  /** Late requests that the daemon has not answered yet. */
  readonly #late = new Set<Promise<void>>();

  private constructor(server: Server, options: HostileProxyOptions) {
    this.#server = server;
    this.#options = options;
    server.on("connection", (socket) => this.#serve(socket));
  }

  static start(options: HostileProxyOptions): Promise<HostileProxy> {
    const server = createServer({ allowHalfOpen: true });
    const proxy = new HostileProxy(server, options);
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen(0, "127.0.0.1", () => resolve(proxy));
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Resolves when every late request has been answered, or its daemon is gone. */
  async settled(): Promise<void> {
    await Promise.all(this.#late);
  }

  /** Resets every connection there is. */
  dropAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.dropAll();
    await closed;
  }

  #serve(client: Socket): void {
    this.#track(client);
    const fault = this.plan.shift() ?? { kind: "pass" };
    if (fault.kind === "refuse") {
      client.resetAndDestroy();
      return;
    }
    if (fault.kind === "answer" && !fault.forward) {
      this.#collect(client, () => client.end(fault.response));
      return;
    }
    if (fault.kind === "late_request") {
      this.#collect(client, (request) => this.#deliverLate(client, request, fault.delayMs));
      return;
    }
    const port = this.#options.target();
    if (port === null) {
      client.resetAndDestroy();
      return;
    }
    const daemon = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    this.#track(daemon);
    daemon.on("error", () => client.destroy());
    daemon.on("close", () => client.destroy());
    client.on("close", () => daemon.destroy());
    this.#forwardRequest(client, daemon, fault);
    this.#forwardAnswer(client, daemon, fault);
  }

  #track(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#sockets.delete(socket));
  }

  /** Notes the request's first line once. */
  #note(first: Buffer): void {
    const line = first.toString("latin1").split("\r\n", 1)[0] ?? "";
    this.requests.push(line);
    this.#options.onRequest?.(line);
  }

  /** Reads one whole request. */
  #collect(client: Socket, onWhole: (request: Buffer) => void): void {
    let request = Buffer.alloc(0);
    let isWhole = false;
    client.on("data", (chunk: Buffer) => {
      if (request.length === 0) this.#note(chunk);
      request = Buffer.concat([request, chunk]);
      if (isWhole || !isWholeRequest(request)) return;
      isWhole = true;
      onWhole(request);
    });
  }

  #deliverLate(client: Socket, request: Buffer, delayMs: number): void {
    const delivery = pause(delayMs).then(() => {
      const port = this.#options.target();
      if (port === null) {
        client.destroy();
        return undefined;
      }
      const daemon = connect({ port, host: "127.0.0.1" });
      this.#track(daemon);
      daemon.write(request);
      return new Promise<void>((resolve) => {
        daemon.on("close", () => {
          client.destroy();
          resolve();
        });
        // The daemon has answered; what the client makes of it is its own affair.
        daemon.once("data", () => resolve());
        daemon.on("data", (chunk: Buffer) => void (client.destroyed || client.write(chunk)));
      });
    });
    this.#late.add(delivery);
    void delivery.finally(() => this.#late.delete(delivery));
  }

  #forwardRequest(client: Socket, daemon: Socket, fault: Fault): void {
    let seen = 0;
    client.on("data", (chunk: Buffer) => {
      if (seen === 0) this.#note(chunk);
      const room = fault.kind === "cut_request" ? Math.max(0, fault.bytes - seen) : chunk.length;
      seen += chunk.length;
      daemon.write(chunk.subarray(0, room));
      if (fault.kind === "cut_request" && seen >= fault.bytes) {
        // What was let through has to arrive before the reset does.
        daemon.end(() => {
          client.resetAndDestroy();
          daemon.destroy();
        });
      }
    });
    client.on("end", () => daemon.end());
  }

  #forwardAnswer(client: Socket, daemon: Socket, fault: Fault): void {
    let seen = 0;
    let queue = Promise.resolve();
    const inOrder = (step: () => void | Promise<void>): void => {
      queue = queue.then(step);
    };
    daemon.on("data", (chunk: Buffer) => {
      if (seen === 0) {
        inOrder(async () => {
          await this.#options.onAnswer?.();
          if (fault.kind === "pass" && fault.delayMs !== undefined) await pause(fault.delayMs);
        });
      }
      const offset = seen;
      seen += chunk.length;
      inOrder(() => passOn(client, daemon, chunk, offset, fault));
    });
    daemon.on("end", () => inOrder(() => endAnswer(client, seen, fault)));
  }
}

function passOn(
  client: Socket,
  daemon: Socket,
  chunk: Buffer,
  offset: number,
  fault: Fault,
): void | Promise<void> {
  switch (fault.kind) {
    case "pass":
      return fault.pieceBytes === undefined
        ? write(client, daemon, chunk)
        : writePieces(client, daemon, chunk, fault.pieceBytes);
    case "lose_response":
      client.resetAndDestroy();
      return;
    case "answer":
      client.end(fault.response);
      return;
    case "cut_response": {
      const room = fault.bytes - offset;
      if (room > 0) client.write(chunk.subarray(0, room));
      if (room > chunk.length) return;
      // The bytes that were let through have to arrive before the end does.
      if (fault.clean === true) client.end();
      else client.end(() => client.destroy());
      daemon.destroy();
      return;
    }
    case "stall":
    case "refuse":
    case "cut_request":
    case "late_request":
      return;
  }
}

function endAnswer(client: Socket, seen: number, fault: Fault): void {
  if (fault.kind === "stall") return;
  if (fault.kind === "lose_response" && seen === 0) client.resetAndDestroy();
  else client.end();
}

/** Holds the daemon back while the client does not read, as a network does. */
function write(client: Socket, daemon: Socket, bytes: Uint8Array): void {
  if (client.destroyed || client.write(bytes)) return;
  daemon.pause();
  client.once("drain", () => daemon.resume());
}

async function writePieces(
  client: Socket,
  daemon: Socket,
  chunk: Buffer,
  pieceBytes: number,
): Promise<void> {
  for (let start = 0; start < chunk.length; start += pieceBytes) {
    write(client, daemon, chunk.subarray(start, start + pieceBytes));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Whether the head and as much body as it announces are here. */
function isWholeRequest(request: Buffer): boolean {
  const end = request.indexOf("\r\n\r\n");
  if (end === -1) return false;
  const length = /\r\ncontent-length: *(\d+)/i.exec(request.subarray(0, end).toString("latin1"));
  return request.length >= end + 4 + Number(length?.[1] ?? 0);
}
