import { createServer, type Server, type Socket } from "node:net";
import type { AddressInfo } from "node:net";

/**
 * A model service on this machine that says exactly the bytes it is told to, and dies where it is told to. It
 * speaks HTTP/1.1 by hand over TCP, since no HTTP library sends half a character and then resets.
 */
export interface ModelAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Each becomes one chunk of the body, sent in a write of its own. */
  readonly chunks: readonly (string | Uint8Array)[];
  /** How it ends: properly, with a reset, without the end of the body, or not at all. */
  readonly ending?: "end" | "reset" | "cut" | "hang";
}

export interface ModelRequestSeen {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Record<string, unknown>;
}

export class ModelServer implements AsyncDisposable {
  readonly requests: ModelRequestSeen[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Answers the requests in order; the last answer stands for all that follow. */
  static async start(
    answers: readonly ModelAnswer[] | ((request: ModelRequestSeen, index: number) => ModelAnswer),
  ): Promise<ModelServer> {
    const server = createServer();
    const self = new ModelServer(server);
    const choose =
      typeof answers === "function"
        ? answers
        : (_: ModelRequestSeen, index: number) => answers[Math.min(index, answers.length - 1)]!;
    server.on("connection", (socket) => self.#serve(socket, choose));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return self;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Connections that are open right now. */
  get openConnections(): number {
    return this.#sockets.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #serve(socket: Socket, choose: (request: ModelRequestSeen, index: number) => ModelAnswer): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => {});
    let received: Buffer = Buffer.alloc(0);
    socket.on("data", (data) => {
      received = Buffer.concat([received, Buffer.from(data as Uint8Array)]);
      const request = parseRequest(received);
      if (request === null) return;
      received = Buffer.alloc(0);
      this.requests.push(request);
      void sendAnswer(socket, choose(request, this.requests.length - 1));
    });
  }
}

function parseRequest(bytes: Buffer): ModelRequestSeen | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end === -1) return null;
  const [first = "", ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const [method = "", path = ""] = first.split(" ");
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const body = bytes.subarray(end + 4);
  if (body.length < Number(headers["content-length"] ?? 0)) return null;
  const parsed = body.length === 0 ? {} : (JSON.parse(body.toString()) as Record<string, unknown>);
  return { method, path, headers, body: parsed };
}

async function sendAnswer(socket: Socket, answer: ModelAnswer): Promise<void> {
  const headers = {
    "content-type": answer.status === undefined ? "text/event-stream" : "application/json",
    "transfer-encoding": "chunked",
    ...answer.headers,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  await write(socket, `HTTP/1.1 ${answer.status ?? 200} Status\r\n${lines.join("")}\r\n`);
  for (const chunk of answer.chunks) {
    const bytes = Buffer.from(chunk as Uint8Array);
    await write(socket, `${bytes.length.toString(16)}\r\n`);
    await write(socket, bytes);
    await write(socket, "\r\n");
  }
  switch (answer.ending ?? "end") {
    case "end":
      await write(socket, "0\r\n\r\n");
      break;
    case "reset":
      socket.resetAndDestroy();
      break;
    case "cut":
      socket.end();
      break;
    case "hang":
      break;
  }
}

/** One write at a time, each a turn of the event loop apart, so that the reader sees the pieces. */
function write(socket: Socket, data: string | Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    if (socket.destroyed) return resolve();
    socket.write(data, () => setImmediate(resolve));
  });
}

/** Events as OpenAI's endpoints frame them. */
export function dataEvents(...values: readonly unknown[]): string[] {
  return values.map((value) =>
    typeof value === "string" ? `data: ${value}\n\n` : `data: ${JSON.stringify(value)}\n\n`,
  );
}

/** Events as Anthropic frames them: the type stands in `event` and in the data. */
export function typedEvents(...values: readonly { readonly type: string }[]): string[] {
  return values.map((value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`);
}
