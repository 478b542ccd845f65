/**
 * Owns an HTTP/1.1 client that costs as little as it can: on two cores the client's own work would otherwise hide
 * the server's. It speaks to servers of which it is known that they answer with a `Content-Length` or in chunks.
 */
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export interface RequestOptions {
  readonly method: string;
  readonly path: string;
  readonly port: number;
  readonly token?: string | undefined;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

/** The bytes of a request, so that encoding it is no part of what is measured. */
export function encodeRequest(options: RequestOptions): Uint8Array {
  const lines = [`${options.method} ${options.path} HTTP/1.1`, `Host: 127.0.0.1:${options.port}`];
  if (options.token !== undefined) lines.push(`Authorization: Bearer ${options.token}`);
  for (const [name, value] of Object.entries(options.headers ?? {}))
    lines.push(`${name}: ${value}`);
  if (options.body !== undefined) {
    lines.push("Content-Type: application/json");
    lines.push(`Content-Length: ${Buffer.byteLength(options.body)}`);
  }
  return encoder.encode(`${lines.join("\r\n")}\r\n\r\n${options.body ?? ""}`);
}

export interface Answer {
  readonly status: number;
  readonly headers: string;
  readonly body: Buffer;
}

const HEAD_END = Buffer.from("\r\n\r\n");
const LENGTH_REGEXP = /\r\ncontent-length: *(\d+)/i;

/** Takes one answer with a `Content-Length` from the front of the bytes, `null` while it is not all there. */
function takeAnswer(bytes: Buffer): { answer: Answer; rest: Buffer } | null {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd === -1) return null;
  const headers = bytes.toString("latin1", 0, headEnd);
  const length = Number(LENGTH_REGEXP.exec(headers)?.[1] ?? 0);
  const end = headEnd + 4 + length;
  if (bytes.length < end) return null;
  const answer = {
    status: Number(headers.slice(9, 12)),
    headers,
    body: bytes.subarray(headEnd + 4, end),
  };
  return { answer, rest: bytes.subarray(end) };
}

interface Waiting {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/** One kept-alive connection; one request at a time. */
export class Connection {
  #socket: Bun.Socket<undefined> | null = null;
  #bytes: Buffer = Buffer.alloc(0);
  #waiting: Waiting | null = null;
  #unsent: Uint8Array | null = null;

  static async open(port: number): Promise<Connection> {
    const connection = new Connection();
    await connection.#connect(port);
    return connection;
  }

  async #connect(port: number): Promise<void> {
    this.#socket = await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        data: (_socket, data) => this.#take(data),
        drain: () => this.#drain(),
        close: () => this.#fail(new Error("The server closed the connection")),
        error: (_socket, error) => this.#fail(error),
      },
    });
  }

  send(request: Uint8Array): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#unsent = request;
      this.#drain();
    });
  }

  close(): void {
    this.#waiting = null;
    this.#socket?.terminate();
  }

  #drain(): void {
    if (this.#unsent === null || this.#socket === null) return;
    const sent = this.#socket.write(this.#unsent);
    if (sent < 0) {
      this.#fail(new Error("The connection is closed"));
      return;
    }
    this.#unsent = sent === this.#unsent.length ? null : this.#unsent.subarray(sent);
  }

  #take(data: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? data : Buffer.concat([this.#bytes, data]);
    const taken = takeAnswer(this.#bytes);
    if (taken === null) return;
    this.#bytes = taken.rest;
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.resolve(taken.answer);
  }

  #fail(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.reject(error);
  }
}

/** One request on a connection of its own. */
export async function requestOnce(options: RequestOptions): Promise<Answer> {
  const connection = await Connection.open(options.port);
  try {
    return await connection.send(encodeRequest(options));
  } finally {
    connection.close();
  }
}

export function bodyJson(answer: Answer): unknown {
  return JSON.parse(decoder.decode(answer.body));
}

export interface Load {
  readonly perSecond: number;
  readonly latenciesMs: readonly number[];
  readonly answers: readonly Answer[];
}

/**
 * Sends every request once over so many connections, each as soon as the one before on its connection is answered.
 *
 * @throws when an answer has another status than the expected one
 */
export async function drive(options: {
  readonly port: number;
  readonly connections: number;
  readonly requests: readonly Uint8Array[];
  readonly status: number;
}): Promise<Load> {
  const { port, requests, status } = options;
  const opened = await Promise.all(
    Array.from({ length: Math.min(options.connections, requests.length) }, () =>
      Connection.open(port),
    ),
  );
  const latenciesMs: number[] = [];
  const answers: Answer[] = [];
  let next = 0;
  const work = async (connection: Connection): Promise<void> => {
    for (;;) {
      const request = requests[next];
      if (request === undefined) return;
      next += 1;
      const before = performance.now();
      const answer = await connection.send(request);
      latenciesMs.push(performance.now() - before);
      if (answer.status !== status) {
        throw new Error(`Answered ${answer.status}: ${decoder.decode(answer.body)}`);
      }
      answers.push(answer);
    }
  };
  const began = performance.now();
  await Promise.all(opened.map(work));
  const seconds = (performance.now() - began) / 1000;
  for (const connection of opened) connection.close();
  return { perSecond: requests.length / seconds, latenciesMs, answers };
}
