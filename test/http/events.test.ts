import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { type Socket, connect } from "node:net";
import { createParser } from "eventsource-parser";
import { KEEPALIVE_MS, WRITE_STALL_MS } from "../../src/base/limits.ts";
import type { StreamPosition } from "../../src/session/sessions.ts";
import { Problem } from "../../src/wire/problem.ts";
import { FakeSubscription } from "../support/fake_subscription.ts";
import { fakeSessions } from "../support/fake_sessions.ts";
import { TEST_TOKEN, type TestApp, startTestApp } from "../support/http_app.ts";
import { until } from "../support/until.ts";

/**
 * Goal: the stream's rules of sessions.md and contract.md section 5 that are the HTTP floor's own: negotiation,
 * positions, framing, coding, keepalives, back-pressure, and letting readers go.
 * Method: subscriptions fed by hand, read over real sockets; the clock moves when a test says so.
 */
const ID = "01970000-0000-7000-8000-000000000001";
const PATH = `/sessions/${ID}/events`;

let app: TestApp;
let subscriptions: FakeSubscription[];
let positions: (StreamPosition | null)[];
let refusal: Problem | null;

beforeEach(() => {
  subscriptions = [];
  positions = [];
  refusal = null;
  app = startTestApp({
    sessions: fakeSessions({
      subscribe(_id, position) {
        if (refusal !== null) throw refusal;
        positions.push(position);
        const subscription = new FakeSubscription();
        subscription.push([{ seq: 0, kind: "reset" }], 5);
        subscriptions.push(subscription);
        return subscription;
      },
      historyPage() {
        if (refusal !== null) throw refusal;
        return { items: [], next: null, watermark: 0 };
      },
    }),
  });
});
afterEach(() => app[Symbol.asyncDispose]());

function nth(index: number): FakeSubscription {
  const subscription = subscriptions[index];
  if (subscription === undefined) throw new Error(`There is no subscription ${index}`);
  return subscription;
}

interface Received {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly data: {
    readonly generation: string;
    readonly cursor: number;
    readonly events: unknown[];
  };
}

/** A stream as a program reads it: events as they come, and the end. */
class Reader {
  readonly events: Received[] = [];
  ended = false;
  failed: unknown = null;
  readonly response: Response;

  constructor(response: Response) {
    this.response = response;
    void this.#read();
  }

  async #read(): Promise<void> {
    const parser = createParser({
      onEvent: ({ id, event, data }) => this.events.push({ id, event, data: JSON.parse(data) }),
    });
    const decoder = new TextDecoder();
    try {
      for await (const chunk of this.response.body ?? []) {
        parser.feed(decoder.decode(chunk, { stream: true }));
      }
      this.ended = true;
    } catch (error) {
      this.failed = error;
    }
  }

  async count(events: number): Promise<readonly Received[]> {
    await until(`${events} events`, () => this.events.length >= events || this.failed !== null);
    return this.events;
  }
}

async function open(headers: Record<string, string> = {}, query = ""): Promise<Reader> {
  const response = await app.request(PATH + query, {
    headers: { "accept-encoding": "identity", ...headers },
  });
  expect(response.status).toBe(200);
  return new Reader(response);
}

/** A connection that says what it wants and then reads nothing. */
function openStalled(): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: app.listener.port, host: "127.0.0.1" }, () => {
      socket.write(
        `GET ${PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${TEST_TOKEN}\r\n\r\n`,
      );
      socket.pause();
      resolve(socket);
    });
    socket.on("error", reject);
  });
}

describe("negotiation and positions", () => {
  test("a client that refuses the media type gets 406 and no subscription", async () => {
    for (const accept of ["application/json", "text/event-stream;q=0, */*", "*/*;q=0"]) {
      const response = await app.request(PATH, { headers: { accept } });
      expect(response.status).toBe(406);
      expect((await response.json()).code).toBe("not_acceptable");
    }
    expect(subscriptions).toHaveLength(0);
  });

  test.each([
    ["no position", "", {}, null],
    ["both parts", "?after_generation=g1&after_seq=0", {}, { generation: "g1", seq: 0 }],
    ["Last-Event-ID", "", { "last-event-id": "a:b:17" }, { generation: "a:b", seq: 17 }],
    ["an empty Last-Event-ID", "", { "last-event-id": "" }, null],
    [
      "both kinds, of which the header is newer",
      "?after_generation=g1&after_seq=1",
      { "last-event-id": "g1:9" },
      { generation: "g1", seq: 9 },
    ],
    [
      "the largest number there is",
      `?after_generation=g1&after_seq=${Number.MAX_SAFE_INTEGER}`,
      {},
      { generation: "g1", seq: Number.MAX_SAFE_INTEGER },
    ],
  ])("%s reaches the session", async (_name, query, headers, position) => {
    await open(headers as Record<string, string>, query);
    expect(positions).toEqual([position]);
  });

  test.each([
    "?after_generation=g1",
    "?after_seq=1",
    "?after_generation=&after_seq=1",
    "?after_generation=g1&after_seq=",
    "?after_generation=g1&after_seq=-1",
    "?after_generation=g1&after_seq=1.5",
    "?after_generation=g1&after_seq=1e3",
    "?after_generation=g1&after_seq=9007199254740992",
    "?after_generation=g1&after_seq=99999999999999999999999",
    "?after_generation=g1&after_seq=x",
    "?after_generation=g1&after_seq=1&x=1",
    "?after=1",
  ])("%s is answered at once with 400", async (query) => {
    const response = await app.request(PATH + query);
    expect(response.status).toBe(400);
    expect((await response.json()).code).toBe("invalid_request");
    expect(subscriptions).toHaveLength(0);
  });

  test.each(["g1", "g1:", ":1", "g1:-1", "g1:1.5", "g1:9007199254740992", "g1:0x1", "g1: 1"])(
    "Last-Event-ID '%s' is answered at once with 400",
    async (id) => {
      const response = await app.request(PATH, { headers: { "last-event-id": id } });
      expect(response.status).toBe(400);
      expect(subscriptions).toHaveLength(0);
    },
  );

  test("an unknown session is a problem document", async () => {
    refusal = new Problem("session_not_found");
    for (const method of ["GET", "HEAD"]) {
      const response = await app.request(PATH, { method });
      expect(response.status).toBe(404);
      expect(response.headers.get("content-type")).toBe("application/problem+json");
    }
  });

  test("HEAD has the stream's headers and watches nothing", async () => {
    const response = await app.request(PATH, { method: "HEAD" });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/event-stream");
    expect(subscriptions).toHaveLength(0);
  });
});

describe("frames", () => {
  test("headers and the first batch come at once, and nothing may hold them back", async () => {
    const reader = await open();
    const { headers } = reader.response;
    expect(Object.fromEntries(headers)).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store, no-transform",
      "x-accel-buffering": "no",
      vary: "Accept-Encoding",
    });
    expect(headers.get("content-encoding")).toBeNull();
    expect(await reader.count(1)).toEqual([
      {
        id: "g1:5",
        event: "batch",
        data: { generation: "g1", cursor: 5, events: [{ seq: 0, kind: "reset" }] },
      },
    ]);
  });

  test("are exactly an id, an event and a line of data", async () => {
    const response = await app.request(PATH, { headers: { "accept-encoding": "identity" } });
    const [chunk] = await Array.fromAsync(
      (async function* first() {
        for await (const part of response.body ?? []) {
          yield new TextDecoder().decode(part);
          return;
        }
      })(),
    );
    expect(chunk).toBe(
      'id: g1:5\nevent: batch\ndata: {"generation":"g1","cursor":5,"events":[{"seq":0,"kind":"reset"}]}\n\n',
    );
  });

  test("come as they are made, in order, with text of any kind in them", async () => {
    const reader = await open();
    await reader.count(1);
    const texts = ["id: 5\n\ndata: x", "\r\n\r\n", "\u2028 \u0000 😀", ":", "x".repeat(900_000)];
    for (const [index, text] of texts.entries()) {
      nth(0).push([{ seq: 6 + index, kind: "text_delta", text }]);
      const events = await reader.count(2 + index);
      expect(events[1 + index]?.data.events).toEqual([
        { seq: 6 + index, kind: "text_delta", text },
      ]);
      expect(events[1 + index]?.id).toBe(`g1:${6 + index}`);
    }
  });

  test("a wake that brings nothing sends nothing", async () => {
    const reader = await open();
    await reader.count(1);
    for (let round = 0; round < 20; round += 1) {
      nth(0).wake();
      await app.clock.advance(1);
    }
    nth(0).push([{ seq: 6, kind: "status" }]);
    expect((await reader.count(2)).length).toBe(2);
  });

  test("are coded with zstd as one stream where that is admitted, each to be read at once", async () => {
    const reader = await open({ "accept-encoding": "gzip, zstd;q=0.8, *;q=0.1" });
    expect(reader.response.headers.get("vary")).toBe("Accept-Encoding");
    await reader.count(1);
    for (let seq = 6; seq < 60; seq += 1) {
      nth(0).push([{ seq, kind: "text_delta", text: "a word or two " }]);
      expect((await reader.count(seq - 4)).at(-1)?.data.cursor).toBe(seq);
    }
    nth(0).end();
    await until("the end", () => reader.ended);
  });
});

test("a page of an allowed origin may read the stream, and is let go when it goes", async () => {
  const origin = app.listener.url;
  const aborter = new AbortController();
  const response = await app.request(PATH, { headers: { origin }, signal: aborter.signal });
  expect(response.headers.get("access-control-allow-origin")).toBe(origin);
  expect(response.headers.get("vary")).toBe("Accept-Encoding, Origin");
  await new Reader(response).count(1);
  aborter.abort();
  await until("the watch to be taken away", () => nth(0).closed > 0);
});

describe("keepalives", () => {
  test("are batches without events that carry the position, every 15 seconds of the clock", async () => {
    const reader = await open();
    await reader.count(1);
    await until("the wait", () => app.clock.waiting > 0);
    await app.clock.advance(KEEPALIVE_MS - 1);
    expect(reader.events).toHaveLength(1);
    await app.clock.advance(1);
    expect((await reader.count(2))[1]).toEqual({
      id: "g1:5",
      event: "batch",
      data: { generation: "g1", cursor: 5, events: [] },
    });
    await until("the next wait", () => app.clock.waiting > 0);
    await app.clock.advance(KEEPALIVE_MS);
    expect((await reader.count(3))[2]?.data.events).toEqual([]);
    // Any number of keepalives costs one wait of the session.
    expect(nth(0).waits).toBe(1);
  });

  test("wait again after each frame", async () => {
    const reader = await open();
    await reader.count(1);
    await until("the wait", () => app.clock.waiting > 0);
    await app.clock.advance(KEEPALIVE_MS - 1);
    nth(0).push([{ seq: 6, kind: "status" }]);
    await reader.count(2);
    await until("the next wait", () => app.clock.waiting === 1);
    await app.clock.advance(KEEPALIVE_MS - 1);
    expect(reader.events).toHaveLength(2);
  });
});

describe("the end", () => {
  test.each(["identity", "zstd"])("is clean after the last frame, in %s", async (coding) => {
    const reader = await open({ "accept-encoding": coding });
    await reader.count(1);
    nth(0).push([{ seq: 6, kind: "status" }]);
    nth(0).end();
    await until("the end", () => reader.ended);
    expect(reader.events).toHaveLength(2);
    expect(nth(0).closed).toBeGreaterThan(0);
    expect(app.clock.waiting).toBe(0);
  });

  test("of a session that does not answer is clean too, and logged", async () => {
    const reader = await open();
    await reader.count(1);
    nth(0).fail(new Error("the session's secret"));
    await until("the end", () => reader.ended);
    expect(reader.events).toHaveLength(1);
    expect(nth(0).closed).toBeGreaterThan(0);
    expect(app.logged.map(({ message }) => message)).toEqual([
      "A session could not be read for its stream",
    ]);
    expect(JSON.stringify(app.logged)).not.toContain("secret");
  });

  test("in zstd ends the coding, so that the bytes stand alone", async () => {
    const bytes: Buffer[] = [];
    const socket = connect({ port: app.listener.port, host: "127.0.0.1" });
    socket.on("data", (chunk: Buffer) => bytes.push(chunk));
    socket.write(
      `GET ${PATH} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: zstd\r\n` +
        `Authorization: Bearer ${TEST_TOKEN}\r\nConnection: close\r\n\r\n`,
    );
    await until("the first frame", () => bytes.length > 0);
    nth(0).push([{ seq: 6, kind: "status" }]);
    nth(0).end();
    await new Promise((resolve) => socket.on("close", resolve));
    const body = dechunk(Buffer.concat(bytes));
    const text = new TextDecoder().decode(Bun.zstdDecompressSync(body));
    expect(text.match(/^id: .*$/gm)).toEqual(["id: g1:5", "id: g1:6"]);
  });
});

/** The body of an answer in chunks (RFC 9112 §7.1); throws where its end is missing. */
function dechunk(answer: Buffer): Buffer {
  let rest = answer.subarray(answer.indexOf("\r\n\r\n") + 4);
  const parts: Buffer[] = [];
  for (;;) {
    const lineEnd = rest.indexOf("\r\n");
    if (lineEnd === -1) throw new Error("The last chunk is missing");
    const size = Number.parseInt(rest.subarray(0, lineEnd).toString("latin1"), 16);
    if (size === 0) return Buffer.concat(parts);
    parts.push(rest.subarray(lineEnd + 2, lineEnd + 2 + size));
    rest = rest.subarray(lineEnd + 4 + size);
  }
}

describe("readers that go or do not read", () => {
  test("a reader that goes is let go at once, idle or in the middle of things", async () => {
    for (let round = 0; round < 3; round += 1) {
      const aborter = new AbortController();
      const response = await app.request(PATH, {
        headers: { "accept-encoding": round === 1 ? "zstd" : "identity" },
        signal: aborter.signal,
      });
      const reader = new Reader(response);
      await reader.count(1);
      if (round === 2) nth(round).push([{ seq: 6, kind: "status" }]);
      aborter.abort();
      await until("the watch to be taken away", () => nth(round).closed > 0);
    }
    await until("the timers to be gone", () => app.clock.waiting === 0);
  });

  test("a reader that does not read is given a bounded part and pulls no more", async () => {
    const socket = await openStalled();
    await until("the subscription", () => subscriptions.length === 1);
    const text = "x".repeat(256 * 1024);
    for (let seq = 6; seq < 200; seq += 1) nth(0).push([{ seq, kind: "text_delta", text }]);
    let before = -1;
    await until("the pulling to stop", async () => {
      const same = nth(0).taken === before;
      before = nth(0).taken;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return same;
    });
    // What was taken sits in the kernel's buffers; 193 frames are 48 MiB.
    expect(nth(0).taken).toBeLessThan(100);
    socket.destroy();
    await until("the watch to be taken away", () => nth(0).closed > 0);
  });

  test("a reader whose frame finds no taker for long enough is cut off", async () => {
    const socket = await openStalled();
    let gone = false;
    socket.on("close", () => (gone = true));
    socket.on("error", () => {});
    await until("the subscription", () => subscriptions.length === 1);
    const text = "x".repeat(512 * 1024);
    for (let seq = 6; seq < 60; seq += 1) nth(0).push([{ seq, kind: "text_delta", text }]);
    let before = -1;
    await until("the pulling to stop", async () => {
      const same = nth(0).taken === before;
      before = nth(0).taken;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return same;
    });
    await app.clock.advance(WRITE_STALL_MS - 1);
    expect(nth(0).closed).toBe(0);
    await app.clock.advance(1);
    expect(nth(0).closed).toBe(1);
    expect(app.clock.waiting).toBe(0);
    socket.resume();
    await until("the connection to be cut", () => gone);
  });

  test("readers at one position share their bytes", async () => {
    const readers = [await open(), await open(), await open()];
    for (const reader of readers) await reader.count(1);
    const frame = new FakeSubscription().push([{ seq: 9, kind: "status" }], 9);
    for (const subscription of subscriptions) subscription.feed(frame);
    for (const reader of readers) expect((await reader.count(2))[1]?.id).toBe("g1:9");
    const { encodeFrame } = await import("../../src/http/sse_writer.ts");
    expect(encodeFrame(frame)).toBe(encodeFrame(frame));
  });

  test("a thousand streams that come and go leave no watch and no timer behind", async () => {
    for (let round = 0; round < 20; round += 1) {
      const aborter = new AbortController();
      await Promise.all(
        Array.from({ length: 50 }, async (_value, index) => {
          const response = await app.request(PATH, {
            headers: { "accept-encoding": index % 2 === 0 ? "zstd" : "identity" },
            signal: aborter.signal,
          });
          await new Reader(response).count(1);
        }),
      );
      aborter.abort();
    }
    await until("every watch to be taken away", () =>
      subscriptions.every(({ closed }) => closed > 0),
    );
    expect(subscriptions).toHaveLength(1000);
    await until("the timers to be gone", () => app.clock.waiting === 0);
  }, 30_000);
});
