import { connect } from "node:net";

export interface RawAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/**
 * Sends bytes as they are over one connection, and reads as many answers as there were requests. For what no
 * well-behaved client would send.
 */
export function sendRaw(
  port: number,
  bytes: string | Uint8Array,
  answers = 1,
): Promise<readonly RawAnswer[]> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: "127.0.0.1" });
    let received = Buffer.alloc(0);
    const finish = (): void => {
      socket.destroy();
      resolve(parseAnswers(received));
    };
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (parseAnswers(received).length >= answers) finish();
    });
    socket.on("end", finish);
    socket.on("error", reject);
    socket.setTimeout(10_000, () => {
      socket.destroy();
      reject(new Error(`Gave up waiting for an answer after '${received.toString("latin1")}'`));
    });
    socket.write(bytes);
  });
}

/** Sends bytes, waits until they have been read by the other side, and is gone. */
export async function breakOff(port: number, bytes: string): Promise<void> {
  const socket = connect({ port, host: "127.0.0.1" });
  socket.on("error", () => {});
  await new Promise<void>((resolve) => socket.write(bytes, () => resolve()));
  // What was written on a loopback socket is there; one answered request shows that it was read.
  await sendRaw(port, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await new Promise<void>((resolve) => {
    socket.on("close", () => resolve());
    socket.destroy();
  });
  await sendRaw(port, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

/** The complete answers at the start of what was received; bodies are of a declared length or chunked. */
export function parseAnswers(received: Buffer): RawAnswer[] {
  const answers: RawAnswer[] = [];
  let rest = received;
  for (;;) {
    const headEnd = rest.indexOf("\r\n\r\n");
    if (headEnd === -1) return answers;
    const [statusLine = "", ...lines] = rest.subarray(0, headEnd).toString("latin1").split("\r\n");
    const headers = new Map(
      lines.map((line): [string, string] => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    const length = Number(headers.get("content-length") ?? 0);
    const bodyStart = headEnd + 4;
    if (rest.length < bodyStart + length) return answers;
    answers.push({
      status: Number(statusLine.split(" ")[1]),
      headers,
      body: rest.subarray(bodyStart, bodyStart + length).toString("utf8"),
    });
    rest = rest.subarray(bodyStart + length);
  }
}

/** The text of a request with a body of a declared length. */
export function rawRequest(
  method: string,
  target: string,
  headers: Readonly<Record<string, string>>,
  body = "",
): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n${body}`;
}
