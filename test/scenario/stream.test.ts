import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { type Socket, connect } from "node:net";
import { KEEPALIVE_MS, RING_EVENTS_MAX, WRITE_STALL_MS } from "../../src/base/limits.ts";
import type { ResetEvent } from "../../src/wire/event.ts";
import { TestDaemon } from "../support/daemon.ts";
import type { EventReader } from "../support/event_reader.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { until } from "../support/until.ts";

/**
 * Goal: sessions.md, "Stream failures and recovery", and contract.md section 5 over real HTTP: attach, resume, reset,
 * keepalives, clean ends, and readers that do not read.
 * Method: a whole daemon, a clock that a test moves, a model that speaks when a test says so.
 */
let clock: FakeClock;
let daemon: TestDaemon;

beforeEach(async () => {
  clock = new FakeClock();
  daemon = await TestDaemon.start({ clock });
});
afterEach(() => daemon[Symbol.asyncDispose]());

function resetOf(reader: EventReader): ResetEvent {
  const [first] = reader.events;
  if (first?.kind !== "reset") throw new Error("The stream does not begin with a reset");
  return first;
}

function position(generation: string, seq: number): string {
  return `?after_generation=${encodeURIComponent(generation)}&after_seq=${seq}`;
}

describe("attachment", () => {
  test("begins with a reset that holds what is there, at one position", async () => {
    const sessionId = await daemon.session({ title: "One" });
    const first = await daemon.say(sessionId, "hello", { clientId: "mine" });
    const exchange = await daemon.model.next();
    const block = exchange.open("text");
    exchange.delta(block, "so far");
    const waiting = await daemon.say(sessionId, "and then");
    const reader = await daemon.stream(sessionId);
    const reset = await reader.event("reset");
    expect(reset.seq).toBe(reader.batches[0]?.cursor ?? -1);
    expect(reset.history.map(({ role }) => role)).toEqual(["user"]);
    expect(reset.history[0]).toMatchObject({
      display_text: "hello",
      client_id: "mine",
      operation_id: first,
    });
    expect(reset.history_watermark).toBe(reset.history[0]?.id ?? -1);
    expect(reset.active_output.segments.map(({ text }) => text)).toEqual(["so far"]);
    expect(reset.pending_inputs.map(({ id }) => id)).toEqual([waiting]);
    expect(reset.phase).toBe("running");
    expect(reset.turn).toMatchObject({ state: "running", members: [first] });
    exchange.send({ type: "block_ended", block }).finish();
  });

  test("and then brings each event once, in order, up to the end of the turn", async () => {
    const sessionId = await daemon.session();
    const reader = await daemon.stream(sessionId);
    await reader.event("reset");
    const id = await daemon.say(sessionId, "hello");
    const exchange = await daemon.model.next();
    exchange.think("well").say("hello ", "there");
    exchange.finish();
    await until("the held deltas", async () => {
      await clock.advance(16);
      return reader.events.some(({ kind }) => kind === "turn_finished");
    });
    const { events } = reader;
    const kinds = events.map(({ kind }) => kind);
    for (const kind of ["input_accepted", "input_committed", "turn_started", "thinking_delta"]) {
      expect(kinds).toContain(kind as (typeof kinds)[number]);
    }
    const seqs = events.slice(1).map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.toSorted((a, b) => a - b));
    expect(new Set(seqs).size).toBe(seqs.length);
    const text = events.flatMap((event) => (event.kind === "text_delta" ? [event.text] : []));
    expect(text.join("")).toBe("hello there");
    expect(kinds.indexOf("assistant")).toBeLessThan(kinds.indexOf("committed"));
    const finished = events.find(({ kind }) => kind === "turn_finished");
    expect(finished).toMatchObject({ turn: { state: "completed", members: [id] } });
    for (const batch of reader.batches) {
      expect(batch.id).toBe(`${batch.generation}:${batch.cursor}`);
    }
  });

  test("to a session that is not there is refused, and to one that is loads it", async () => {
    const sessionId = await daemon.session();
    await daemon.restart();
    const { items } = await daemon.json<{ items: { loaded: boolean }[] }>("GET", "/sessions");
    expect(items.map(({ loaded }) => loaded)).toEqual([false]);
    const unknown = await daemon.send("GET", `/sessions/${daemon.ids.uuidv7()}/events`);
    expect(unknown.status).toBe(404);
    await (await daemon.stream(sessionId)).event("reset");
    const after = await daemon.json<{ items: { loaded: boolean }[] }>("GET", "/sessions");
    expect(after.items.map(({ loaded }) => loaded)).toEqual([true]);
  });
});

describe("resumption", () => {
  test("from a position in the window brings exactly what came after it", async () => {
    const sessionId = await daemon.session();
    const whole = await daemon.stream(sessionId);
    await whole.event("reset");
    const id = await daemon.say(sessionId, "hello");
    (await daemon.model.next()).say("one").finish();
    await daemon.ended(sessionId, id);
    await whole.event("turn_finished");
    const { generation, cursor } = whole.last;
    const after = whole.events.slice(1);
    for (let seq = resetOf(whole).seq; seq <= cursor; seq += 1) {
      const byQuery = await daemon.stream(sessionId, { query: position(generation, seq) });
      const byHeader = await daemon.stream(sessionId, {
        headers: { "last-event-id": `${generation}:${seq}` },
      });
      for (const reader of [byQuery, byHeader]) {
        await until("the first batch", () => reader.batches.length > 0);
        expect(reader.last.cursor).toBe(cursor);
        expect(reader.events).toEqual(after.filter((event) => event.seq > seq));
        await reader.cancel();
      }
    }
  });

  test("from another generation, from the future and from outside the window is a reset", async () => {
    const sessionId = await daemon.session();
    const first = await daemon.stream(sessionId);
    await first.event("reset");
    const { generation, cursor } = first.last;
    for (const query of [
      position("another", 0),
      position(generation, cursor + 1),
      position(generation, Number.MAX_SAFE_INTEGER),
    ]) {
      const reader = await daemon.stream(sessionId, { query });
      await reader.event("reset");
      expect(reader.last.generation).toBe(generation);
      await reader.cancel();
    }
    await daemon.say(sessionId, "much");
    const exchange = await daemon.model.next();
    const block = exchange.open("text");
    for (let count = 0; count < RING_EVENTS_MAX + 10; count += 1) {
      exchange.delta(block, `${count} `);
      await clock.advance(17);
    }
    exchange.send({ type: "block_ended", block }).finish();
    await first.event("turn_finished");
    const late = await daemon.stream(sessionId, { query: position(generation, cursor) });
    await late.event("reset");
    expect(late.batches).toHaveLength(1);
  });

  test("after a restart is a reset of another generation that holds the whole transcript", async () => {
    const sessionId = await daemon.session();
    const before = await daemon.stream(sessionId);
    await before.event("reset");
    const id = await daemon.say(sessionId, "hello");
    (await daemon.model.next()).say("hi").finish();
    await daemon.ended(sessionId, id);
    await before.event("turn_finished");
    const { generation, cursor } = before.last;
    await daemon.restart();
    await before.closed();
    expect(before.ended).toBe(true);
    const reader = await daemon.stream(sessionId, { query: position(generation, cursor) });
    const reset = await reader.event("reset");
    expect(reader.last.generation).not.toBe(generation);
    expect(reset.history.map(({ role }) => role)).toEqual(["user", "assistant"]);
  });
});

describe("a quiet stream", () => {
  test("has a batch without events every 15 seconds, with its position", async () => {
    const sessionId = await daemon.session();
    const reader = await daemon.stream(sessionId);
    await reader.event("reset");
    const { generation, cursor } = reader.last;
    for (let round = 2; round < 5; round += 1) {
      await clock.advance(KEEPALIVE_MS);
      await until("the keepalive", () => reader.batches.length >= round);
      expect(reader.last).toEqual({
        id: `${generation}:${cursor}`,
        generation,
        cursor,
        events: [],
      });
    }
  });
});

describe("the end of a stream", () => {
  test.each(["identity", "zstd"])("is clean when the daemon stops, in %s", async (coding) => {
    const sessionId = await daemon.session();
    await daemon.say(sessionId, "hello");
    await daemon.model.next();
    const readers = await Promise.all(
      Array.from({ length: 5 }, () =>
        daemon.stream(sessionId, { headers: { "accept-encoding": coding } }),
      ),
    );
    for (const reader of readers) await reader.event("reset");
    await daemon.daemon.stop();
    for (const reader of readers) {
      await reader.closed();
      expect(reader.failed).toBeNull();
      expect(reader.ended).toBe(true);
    }
  });

  test("is clean when the session is deleted, and the next attachment learns why", async () => {
    const sessionId = await daemon.session();
    const reader = await daemon.stream(sessionId, { headers: { "accept-encoding": "zstd" } });
    await reader.event("reset");
    expect((await daemon.send("DELETE", `/sessions/${sessionId}`)).status).toBe(204);
    await reader.closed();
    expect(reader.ended).toBe(true);
    expect((await daemon.send("GET", `/sessions/${sessionId}/events`)).status).toBe(404);
  });

  test("in zstd is a whole frame for the standard tool", async () => {
    const sessionId = await daemon.session();
    const socket = connect({ port: Number(new URL(daemon.url).port), host: "127.0.0.1" });
    let received = Buffer.alloc(0);
    socket.on("data", (chunk: Buffer) => (received = Buffer.concat([received, chunk])));
    socket.write(
      `GET /sessions/${sessionId}/events HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: zstd\r\n` +
        `Authorization: Bearer ${daemon.token}\r\n\r\n`,
    );
    await until("the reset", () => received.length > 0);
    const id = await daemon.say(sessionId, "hello");
    (await daemon.model.next()).say("hi").finish();
    await daemon.ended(sessionId, id);
    const closed = new Promise((resolve) => socket.on("close", resolve));
    await daemon.daemon.stop();
    await closed;
    const head = received.subarray(0, received.indexOf("\r\n\r\n")).toString("latin1");
    expect(head.toLowerCase()).toContain("content-encoding: zstd");
    const body = received.subarray(received.indexOf("\r\n\r\n") + 4);
    const coded = head.toLowerCase().includes("chunked") ? dechunk(body) : body;
    const text = new TextDecoder().decode(Bun.zstdDecompressSync(coded));
    expect(text).toContain('"kind":"turn_finished"');
    const tool = Bun.which("zstd");
    if (tool === null) return;
    const decoded = Bun.spawnSync([tool, "-dqc"], { stdin: coded });
    expect([decoded.exitCode, decoded.stdout.toString()]).toEqual([0, text]);
  });
});

function dechunk(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  let rest = body;
  for (;;) {
    const lineEnd = rest.indexOf("\r\n");
    const size = Number.parseInt(rest.subarray(0, lineEnd).toString("latin1"), 16);
    if (!(size > 0)) return Buffer.concat(parts);
    parts.push(rest.subarray(lineEnd + 2, lineEnd + 2 + size));
    rest = rest.subarray(lineEnd + 4 + size);
  }
}

describe("readers that do not read", () => {
  async function stalled(sessionId: string): Promise<Socket> {
    const socket = connect({ port: Number(new URL(daemon.url).port), host: "127.0.0.1" });
    socket.pause();
    socket.on("error", () => {});
    await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
    socket.write(
      `GET /sessions/${sessionId}/events HTTP/1.1\r\nHost: localhost\r\n` +
        `Authorization: Bearer ${daemon.token}\r\n\r\n`,
    );
    return socket;
  }

  /** Streams so many bytes as deltas; each advance of the clock ends a frame. */
  async function pour(sessionId: string, bytes: number): Promise<void> {
    await daemon.say(sessionId, "much");
    const exchange = await daemon.model.next();
    const block = exchange.open("text");
    const text = "0123456789abcdef".repeat(2048);
    for (let sent = 0; sent < bytes; sent += text.length) {
      exchange.delta(block, text);
      await clock.advance(17);
    }
    exchange.send({ type: "block_ended", block }).finish();
  }

  test("cost the daemon next to nothing: 40 of them while 8 MiB go by", async () => {
    const sessionId = await daemon.session();
    const reader = await daemon.stream(sessionId);
    await reader.event("reset");
    const sockets = await Promise.all(Array.from({ length: 40 }, () => stalled(sessionId)));
    Bun.gc(true);
    const before = process.memoryUsage().rss;
    await pour(sessionId, 8 * 1024 * 1024);
    await reader.event("turn_finished");
    Bun.gc(true);
    const grown = process.memoryUsage().rss - before;
    expect(grown).toBeLessThan(100 * 1024 * 1024);
    // The one that reads has missed nothing.
    const deltas = reader.events.flatMap((event) =>
      event.kind === "text_delta" ? [event.text.length] : [],
    );
    expect(deltas.reduce((sum, length) => sum + length, 0)).toBe(8 * 1024 * 1024);
    for (const socket of sockets) socket.destroy();
  }, 60_000);

  test("are let go when a frame finds no taker for a minute; those that read stay", async () => {
    const sessionId = await daemon.session();
    const reader = await daemon.stream(sessionId);
    await reader.event("reset");
    const socket = await stalled(sessionId);
    await pour(sessionId, 12 * 1024 * 1024);
    await reader.event("turn_finished");
    let gone = false;
    socket.on("close", () => (gone = true));
    for (let passed = 0; passed <= WRITE_STALL_MS; passed += KEEPALIVE_MS) {
      await clock.advance(KEEPALIVE_MS);
    }
    socket.resume();
    await until("the connection to be cut", () => gone);
    expect(reader.failed).toBeNull();
    const batches = reader.batches.length;
    await clock.advance(KEEPALIVE_MS);
    await until("the next keepalive", () => reader.batches.length > batches);
  }, 60_000);
});

describe("readers that leave", () => {
  test("cancel nothing: what they watched goes on to its end, however they went", async () => {
    const sessionId = await daemon.session();
    const { hostname, port } = new URL(daemon.url);
    const body = JSON.stringify({ operationId: daemon.ids.uuidv7(), text: "hello" });
    // Whoever sends it does not wait for its answer either.
    const sender = connect({ host: hostname, port: Number(port) });
    sender.on("error", () => {});
    sender.write(
      `POST /sessions/${sessionId}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ` +
        `${daemon.token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    const exchange = await daemon.model.next();
    sender.destroy();
    const block = exchange.open("text");
    exchange.delta(block, "half of it");
    const readers = await Promise.all(["identity", "zstd"].map((coding) => attach(coding)));
    for (const reader of readers) await reader.cancel();
    // What the daemon hears of those that left it has heard by then.
    for (let round = 0; round < 10; round += 1) await daemon.request("/health");
    const [input] = (await daemon.resource(sessionId)).turn?.members ?? [];
    expect(exchange.aborted).toBe(false);
    exchange.delta(block, " and the rest").send({ type: "block_ended", block }).finish();
    expect((await daemon.ended(sessionId, input ?? "")).turn?.state).toBe("completed");
    const { history } = await daemon.resource(sessionId);
    expect(history?.at(-1)).toMatchObject({ role: "assistant", text: "half of it and the rest" });

    async function attach(coding: string): Promise<EventReader> {
      const reader = await daemon.stream(sessionId, { headers: { "accept-encoding": coding } });
      await reader.event("reset");
      return reader;
    }
  });
});
