import { describe, expect, test } from "bun:test";
import { KEEPALIVE_MS, RESPONSE_BYTES_MAX, SILENCE_MS_MAX } from "../../src/base/limits.ts";
import { ApiError, createClient, ProtocolError } from "../../src/client/client.ts";
import { subscribe } from "../../src/client/subscription.ts";
import type {
  SubscribeOptions,
  Subscription,
  SubscriptionState,
} from "../../src/client/subscription.ts";
import { Transport } from "../../src/client/transport.ts";
import type { ResetEvent } from "../../src/wire/event.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { problem } from "./fake_daemon.ts";
import { ScriptedFetch } from "./scripted.ts";
import type { Reply } from "./scripted.ts";
import { delta, finished, frame, HandStream, open, reset, SESSION } from "./stream_script.ts";

/**
 * Goal: each rule of sessions.md (Stream failures and recovery) for a client, one test or more a sentence.
 * Method: scripted answers and hand-fed streams on a clock that stands still. What real sockets do to real bytes is
 * in stream_cuts.test.ts.
 */

const FRESH = `GET /sessions/${SESSION}/events`;
const after = (seq: number, generation = "g1"): string => {
  return `${FRESH}?after_generation=${generation}&after_seq=${seq}`;
};
/** A stream's first frame: the transcript at 1. */
const FIRST = frame({ cursor: 1, events: [reset(1)] });

interface Attached {
  readonly subscription: Subscription;
  readonly script: ScriptedFetch;
  readonly clock: FakeClock;
  /** What the callbacks were told, in order. */
  readonly told: string[];
  readonly resets: ResetEvent[];
  readonly states: SubscriptionState[];
  /** Kinds of the states, in order. */
  readonly kinds: () => string[];
}

function attach(replies: readonly Reply[], options: Partial<SubscribeOptions> = {}): Attached {
  const script = new ScriptedFetch(...replies);
  const clock = new FakeClock();
  const endpoint = { url: "http://localhost:1", token: "t" };
  const transport = new Transport({ endpoint, clock, fetch: script.fetch });
  const told: string[] = [];
  const resets: ResetEvent[] = [];
  const states: SubscriptionState[] = [];
  const source = { transport, keepaliveMs: async () => KEEPALIVE_MS };
  const subscription = subscribe(source, SESSION, {
    onReset: (event) => {
      told.push(`reset ${event.seq}`);
      resets.push(event);
    },
    onEvent: (event) => void told.push(`${event.kind} ${event.seq}`),
    onBatch: (batch) => void told.push(`batch ${batch.cursor}`),
    onState: (state) => void states.push(state),
    ...options,
  });
  const kinds = (): string[] => states.map((state) => state.kind);
  return { subscription, script, clock, told, resets, states, kinds };
}

describe("attachment", () => {
  test("begins without a pair and saves it after the batch's callbacks", async () => {
    const stream = new HandStream();
    const seen: unknown[] = [];
    const attached = attach([stream.response], {
      onBatch: () => void seen.push(attached.subscription.position),
    });
    await settle();
    stream.send(frame({ cursor: 3, events: [reset(3)] }));
    await settle();
    expect(attached.script.lines).toEqual([FRESH]);
    expect(attached.script.requests[0]?.headers.get("accept")).toContain("text/event-stream");
    expect(attached.told).toEqual(["reset 3"]);
    expect(seen).toEqual([null]);
    expect(attached.subscription.position).toEqual({ generation: "g1", seq: 3 });
    expect(attached.kinds()).toEqual(["connecting", "live"]);
  });

  test("tells reset, events and batch in order, and keepalives as batches", async () => {
    const { told, subscription } = attach([
      open(
        frame({ cursor: 5, events: [reset(3), delta(4), delta(5)] }),
        frame({ cursor: 6, events: [delta(6)] }),
        frame({ cursor: 6 }),
      ),
    ]);
    await settle();
    expect(told).toEqual([
      "reset 3",
      "text_delta 4",
      "text_delta 5",
      "batch 5",
      "text_delta 6",
      "batch 6",
      "batch 6",
    ]);
    expect(subscription.position?.seq).toBe(6);
  });

  test("waits for a callback before it goes on", async () => {
    const gates = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
    const told: string[] = [];
    const { subscription } = attach(
      [open(frame({ cursor: 3, events: [reset(1), delta(2), delta(3)] }))],
      {
        onReset: () => gates[0]?.promise,
        onEvent: ({ seq }) => {
          told.push(`event ${seq}`);
          return gates[seq - 1]?.promise;
        },
      },
    );
    await settle();
    expect(told).toEqual([]);
    gates[0]?.resolve();
    await settle();
    expect(told).toEqual(["event 2"]);
    gates[1]?.resolve();
    await settle();
    expect(told).toEqual(["event 2", "event 3"]);
    expect(subscription.position).toBeNull();
    gates[2]?.resolve();
    await settle();
    expect(subscription.position?.seq).toBe(3);
  });

  test("goes on from a position of an earlier attachment", async () => {
    const { script, told } = attach([open(frame({ cursor: 8, events: [delta(8)] }))], {
      position: { generation: "g 1&", seq: 7 },
    });
    await settle();
    expect(script.lines[0]).toBe(`${FRESH}?after_generation=g+1%26&after_seq=7`);
    // The scripted daemon speaks of another generation without a reset.
    expect(told).toEqual([]);
    const again = attach([open(frame({ cursor: 8, events: [delta(8)] }))], {
      position: { generation: "g1", seq: 7 },
    });
    await settle();
    expect(again.told).toEqual(["text_delta 8", "batch 8"]);
  });

  test("takes the content type with parameters, and in any case", async () => {
    for (const type of ["text/event-stream;charset=utf-8", "Text/Event-Stream ; x=y"]) {
      const { told } = attach([new HandStream(type).send(FIRST).response]);
      await settle();
      expect(told).toEqual(["reset 1", "batch 1"]);
    }
  });

  test("ignores unknown kinds, unknown SSE events and comments", async () => {
    const { told, kinds } = attach([
      open(
        ": hello\n\n",
        "event: news\ndata: {}\n\n",
        "data: {}\n\n",
        "retry: 10\n\n",
        frame({
          cursor: 9,
          events: [
            reset(1),
            { kind: "hologram" },
            { kind: "hologram", seq: "x" },
            { kind: "toString", seq: 2 },
            { kind: "__proto__", seq: 2 },
            delta(9),
          ],
        }),
      ),
    ]);
    await settle();
    expect(told).toEqual(["reset 1", "text_delta 9", "batch 9"]);
    expect(kinds()).toEqual(["connecting", "live"]);
  });

  test("puts characters together that were split over chunks", async () => {
    const stream = new HandStream();
    const texts: string[] = [];
    attach([stream.response], {
      onEvent: (event) => void (event.kind === "text_delta" && texts.push(event.text)),
    });
    const bytes = new TextEncoder().encode(
      frame({ cursor: 2, events: [reset(1), delta(2, "né 漢字 🙂")] }),
    );
    for (const byte of bytes) {
      stream.sendBytes(new Uint8Array([byte]));
      await settle(1);
    }
    await settle();
    expect(texts).toEqual(["né 漢字 🙂"]);
  });
});

describe("reconnecting", () => {
  const transient: [string, () => Reply][] = [
    ["a lost connection", () => "lost"],
    ["408", () => new Response(null, { status: 408 })],
    ["429", () => new Response(null, { status: 429 })],
    ["500", () => problem("internal")],
    ["502", () => new Response("<h1>", { status: 502 })],
    ["503 daemon_stopping", () => problem("daemon_stopping")],
    ["EOF", () => finished()],
    ["a stream that breaks off", () => new HandStream().breakOff().response],
    [
      "a refusal that breaks off",
      () => {
        const broken = new HandStream().breakOff().response.body;
        return new Response(broken, { status: 500 });
      },
    ],
    ["daemon_unavailable", () => finished('event: error\ndata: {"code":"daemon_unavailable"}\n\n')],
    ["daemon_stopping", () => finished('event: error\ndata: {"code":"daemon_stopping"}\n\n')],
  ];
  for (const [what, reply] of transient) {
    test(`after ${what}: with the saved pair, 500 ms doubling to 5 s, anew after a batch`, async () => {
      const stream = new HandStream();
      const replies: Reply[] = [
        finished(frame({ cursor: 4, events: [reset(4)] })),
        reply(),
        reply(),
        reply(),
        reply(),
        reply(),
        stream.response,
        reply(),
        open(),
      ];
      const { script, clock, kinds, states, subscription } = attach(replies);
      await settle();
      for (const [index, delayMs] of [500, 1000, 2000, 4000, 5000, 5000].entries()) {
        expect(states.at(-1)).toMatchObject({ kind: "waiting", delayMs });
        await clock.advance(delayMs - 1);
        expect(script.requests).toHaveLength(index + 1);
        await clock.advance(1);
        expect(script.requests).toHaveLength(index + 2);
      }
      expect(script.lines.slice(1)).toEqual(Array.from({ length: 6 }, () => after(4)));
      stream.send(frame({ cursor: 5, events: [delta(5)] }));
      await settle();
      expect(kinds().at(-1)).toBe("live");
      stream.end();
      await settle();
      expect(states.at(-1)).toMatchObject({ kind: "waiting", delayMs: 500 });
      await clock.advance(500);
      await clock.advance(1000);
      expect(script.lines.slice(7)).toEqual([after(5), after(5)]);
      expect(subscription.position).toEqual({ generation: "g1", seq: 5 });
      expect(kinds()).not.toContain("ended");
    });
  }

  test("half of a frame is not consumed, and the next connection brings all of it", async () => {
    const whole = frame({ cursor: 2, events: [delta(2)] });
    const { clock, told, script } = attach([finished(FIRST, whole.slice(0, -1)), open(whole)]);
    await settle();
    expect(told).toEqual(["reset 1", "batch 1"]);
    await clock.advance(500);
    expect(told).toEqual(["reset 1", "batch 1", "text_delta 2", "batch 2"]);
    expect(script.lines).toEqual([FRESH, after(1)]);
  });

  test("a new generation with a reset is normal, also with a smaller cursor", async () => {
    const { clock, told, subscription, kinds } = attach([
      finished(frame({ cursor: 40, events: [reset(40)] })),
      open(frame({ generation: "g2", cursor: 2, events: [reset(1), delta(2)] })),
    ]);
    await settle();
    await clock.advance(500);
    expect(told.slice(2)).toEqual(["reset 1", "text_delta 2", "batch 2"]);
    expect(subscription.position).toEqual({ generation: "g2", seq: 2 });
    expect(kinds()).not.toContain("recovering");
  });

  test("within a generation a reset may go back", async () => {
    const { told, kinds } = attach([
      open(
        frame({ cursor: 40, events: [reset(40)] }),
        frame({ cursor: 7, events: [reset(7)] }),
        frame({ cursor: 8, events: [delta(8)] }),
      ),
    ]);
    await settle();
    expect(told.slice(2)).toEqual(["reset 7", "batch 7", "text_delta 8", "batch 8"]);
    expect(kinds()).toEqual(["connecting", "live"]);
  });

  test("asks where the daemon is before each connection", async () => {
    const ports = [1, 2];
    const script = new ScriptedFetch("lost", open(FIRST), "lost");
    const clock = new FakeClock();
    const endpoint = () => ({ url: `http://localhost:${ports.shift() ?? 9}`, token: "t" });
    const client = createClient({ endpoint, clock, fetch: script.fetch });
    const subscription = client.subscribe(SESSION, { onReset: () => {}, onEvent: () => {} });
    await settle();
    await clock.advance(500);
    expect(script.requests.slice(0, 2).map(({ url }) => new URL(url).port)).toEqual(["1", "2"]);
    subscription.close();
  });

  test("a daemon that cannot be located is waited for", async () => {
    let isThere = false;
    const script = new ScriptedFetch(open(FIRST), "lost");
    const clock = new FakeClock();
    const endpoint = () => {
      if (!isThere) throw new Error("No daemon.json");
      return { url: "http://localhost:1", token: "t" };
    };
    const client = createClient({ endpoint, clock, fetch: script.fetch });
    const told: string[] = [];
    const subscription = client.subscribe(SESSION, {
      onReset: ({ seq }) => void told.push(`reset ${seq}`),
      onEvent: () => {},
    });
    await settle();
    await clock.advance(500);
    isThere = true;
    await clock.advance(1000);
    expect(told).toEqual(["reset 1"]);
    subscription.close();
  });
});

describe("silence", () => {
  test("of two keepalive intervals gives the connection up and reconnects with the pair", async () => {
    const stream = new HandStream().send(FIRST);
    const { clock, script, states } = attach([stream.response, open()]);
    await settle();
    await clock.advance(SILENCE_MS_MAX - 1);
    expect(script.requests).toHaveLength(1);
    await clock.advance(1);
    expect(states.at(-1)).toMatchObject({ kind: "waiting", cause: { failure: "timeout" } });
    expect(stream.cancelled).toBe(true);
    await clock.advance(500);
    expect(script.lines).toEqual([FRESH, after(1)]);
  });

  test("is broken by any byte", async () => {
    const stream = new HandStream().send(FIRST);
    const { clock, script } = attach([stream.response]);
    await settle();
    for (const bytes of [frame({ cursor: 1 }), ": hello\n\n", "d", "a"]) {
      await clock.advance(SILENCE_MS_MAX - 1);
      stream.send(bytes);
      await settle();
    }
    await clock.advance(SILENCE_MS_MAX - 1);
    expect(script.requests).toHaveLength(1);
  });

  test("before the answer's head counts as well", async () => {
    const { clock, script, states } = attach(["hang", open(FIRST)]);
    await settle();
    await clock.advance(SILENCE_MS_MAX);
    expect(states.at(-1)).toMatchObject({ kind: "waiting", delayMs: 500 });
    await clock.advance(500);
    expect(script.lines).toEqual([FRESH, FRESH]);
  });

  test("of the consumer is not the daemon's", async () => {
    const gate = Promise.withResolvers<void>();
    const { clock, script, told } = attach(
      [open(FIRST, frame({ cursor: 2, events: [delta(2)] }))],
      {
        onReset: () => gate.promise,
      },
    );
    await settle();
    await clock.advance(10 * SILENCE_MS_MAX);
    gate.resolve();
    await settle();
    expect(told).toEqual(["batch 1", "text_delta 2", "batch 2"]);
    await clock.advance(SILENCE_MS_MAX - 1);
    expect(script.requests).toHaveLength(1);
  });

  test("is what the daemon states, once it has", async () => {
    const server = Response.json({
      name: "albedo",
      version: "1",
      protocol: 1,
      instance_id: "i",
      pid: 1,
      started_at: 1,
      capabilities: {},
      limits: { keepalive_ms: 60_000 },
    });
    const script = new ScriptedFetch(open(FIRST), server, "lost");
    const clock = new FakeClock();
    const client = createClient({
      url: "http://localhost:1",
      token: "t",
      clock,
      fetch: script.fetch,
    });
    const subscription = client.subscribe(SESSION, { onReset: () => {}, onEvent: () => {} });
    await settle();
    expect(script.lines).toEqual([FRESH, "GET /server"]);
    await clock.advance(119_999);
    expect(script.requests).toHaveLength(2);
    await clock.advance(501);
    expect(script.lines.at(-1)).toBe(after(1));
    subscription.close();
  });

  test("can be allowed for ever", async () => {
    const { clock, script } = attach([open(FIRST)], { silenceMs: Infinity });
    await settle();
    await clock.advance(100 * 24 * 60 * 60 * 1000);
    expect(script.requests).toHaveLength(1);
  });

  test("can be set", async () => {
    const { clock, script } = attach([open(FIRST), open()], { silenceMs: 40 });
    await settle();
    await clock.advance(540);
    expect(script.requests).toHaveLength(2);
  });
});

describe("protocol failures", () => {
  const bad: [string, string][] = [
    ["a frame that is not JSON", "event: batch\ndata: {\n\n"],
    ["a batch that is no object", "event: batch\ndata: 7\n\n"],
    ["no generation", frame({ generation: undefined, cursor: 2 })],
    ["an empty generation", frame({ generation: "", cursor: 2 })],
    ["no cursor", frame({ cursor: undefined })],
    ["a negative cursor", frame({ cursor: -1 })],
    ["a fractional cursor", frame({ cursor: 1.5 })],
    ["no events", frame({ cursor: 1, events: undefined })],
    ["events that are no list", frame({ cursor: 1, events: {} })],
    ["an event that is no object", frame({ cursor: 2, events: [null] })],
    ["an event without a kind", frame({ cursor: 2, events: [{ seq: 2 }] })],
    ["an event with an empty kind", frame({ cursor: 2, events: [{ seq: 2, kind: "" }] })],
    ["an event whose kind is no text", frame({ cursor: 2, events: [{ seq: 2, kind: 7 }] })],
    [
      "a known event without its fields",
      frame({ cursor: 2, events: [{ seq: 2, kind: "status" }] }),
    ],
    [
      "a known event without its number",
      frame({ cursor: 2, events: [{ ...delta(2), seq: undefined }] }),
    ],
    [
      "a malformed event after good ones",
      frame({ cursor: 3, events: [delta(2), { seq: 3, kind: "note" }] }),
    ],
    ["another generation without a reset", frame({ generation: "g2", cursor: 2 })],
    ["a cursor that goes back", frame({ cursor: 0 })],
    ["an event that was consumed already", frame({ cursor: 1, events: [delta(1)] })],
    ["an event past the cursor", frame({ cursor: 2, events: [delta(3)] })],
    ["events out of order", frame({ cursor: 3, events: [delta(3), delta(2)] })],
    ["an event twice", frame({ cursor: 3, events: [delta(2), delta(2)] })],
    ["a reset that does not lead", frame({ cursor: 3, events: [delta(2), reset(3)] })],
    ["a reset after an unknown kind", frame({ cursor: 3, events: [{ kind: "x" }, reset(3)] })],
    ["two resets", frame({ cursor: 3, events: [reset(3), reset(3)] })],
    ["a reset past its cursor", frame({ cursor: 3, events: [reset(4)] })],
    ["a malformed reset", frame({ cursor: 3, events: [{ ...reset(3), history: [{}] }] })],
    ["a segment without content", frame({ cursor: 3, events: [withSegment({})] })],
    [
      "a segment with two contents",
      frame({ cursor: 3, events: [withSegment({ text: "a", unavailable: true })] }),
    ],
    ["an endless line", `data: ${"x".repeat(2 * RESPONSE_BYTES_MAX + 1)}`],
    ["an endless frame", "data: xxxxxxxxxxxxxxxx\n".repeat(RESPONSE_BYTES_MAX / 8 + 1)],
  ];
  for (const [what, bytes] of bad) {
    test(`${what}: nothing of it is consumed, one reset is asked for, the second ends it`, async () => {
      const { clock, script, told, states, kinds, subscription } = attach([
        open(FIRST, bytes),
        open(
          frame({ generation: "g9", cursor: 5, events: [reset(5)] }),
          bytes.replace("g1", "g9").replaceAll("g2", "g8"),
        ),
      ]);
      await settle(8);
      expect(script.lines).toEqual([FRESH, FRESH]);
      expect(told).toEqual(["reset 1", "batch 1", "reset 5", "batch 5"]);
      expect(kinds()).toEqual(["connecting", "live", "recovering", "connecting", "live", "ended"]);
      const end = await subscription.ended;
      expect(end.reason).toBe("protocol");
      if (end.reason === "protocol") expect(end.error).toBeInstanceOf(ProtocolError);
      expect(states.at(-1)).toEqual({ kind: "ended", ...end } as SubscriptionState);
      await clock.advance(60_000);
      expect(script.requests).toHaveLength(2);
      expect(clock.waiting).toBe(0);
    });
  }

  test("bytes that are not UTF-8", async () => {
    const stream = new HandStream().send(FIRST).sendBytes(new Uint8Array([0xff]));
    const { kinds } = attach([stream.response, open()]);
    await settle();
    expect(kinds()).toEqual(["connecting", "live", "recovering", "connecting"]);
    expect(stream.cancelled).toBe(true);
  });

  test("a stream that does not begin with a reset", async () => {
    const { script, told, subscription } = attach([
      open(frame({ cursor: 2, events: [delta(2)] })),
      open(frame({ cursor: 2 })),
    ]);
    expect(await subscription.ended).toMatchObject({ reason: "protocol" });
    expect(script.lines).toEqual([FRESH, FRESH]);
    expect(told).toEqual([]);
  });

  for (const [what, answer] of [
    ["another content type", new HandStream("application/json").send(FIRST).response],
    [
      "a content type that only begins alike",
      new HandStream("text/event-streams").send(FIRST).response,
    ],
    ["no content type", new HandStream(null).send(FIRST).response],
    ["204", new Response(null, { status: 204 })],
    ["206", new Response("", { status: 206, headers: { "content-type": "text/event-stream" } })],
  ] as const) {
    test(`${what} instead of a stream`, async () => {
      const { script, told, kinds } = attach([answer, open(FIRST)]);
      await settle();
      expect(kinds()).toEqual(["connecting", "recovering", "connecting", "live"]);
      expect(script.lines).toEqual([FRESH, FRESH]);
      expect(told).toEqual(["reset 1", "batch 1"]);
    });
  }

  test("the pair of before is gone: also a lost connection during the recovery asks for a reset", async () => {
    const { clock, script, kinds } = attach([
      open(FIRST, frame({ cursor: 0 })),
      "lost",
      open(FIRST),
    ]);
    await settle();
    await clock.advance(500);
    expect(script.lines).toEqual([FRESH, FRESH, FRESH]);
    expect(kinds().at(-1)).toBe("live");
  });

  test("one reset an attachment: a failure long after the recovery ends it", async () => {
    const stream = new HandStream();
    const { clock, subscription, kinds } = attach([
      open(FIRST, frame({ cursor: 0 })),
      stream.response,
    ]);
    stream.send(FIRST);
    await settle();
    for (let cursor = 2; cursor < 50; cursor += 1) {
      stream.send(frame({ cursor, events: [delta(cursor)] }));
      await clock.advance(15_000);
    }
    expect(kinds().at(-1)).toBe("live");
    stream.send(frame({ cursor: 1 }));
    expect(await subscription.ended).toMatchObject({ reason: "protocol" });
  });
});

describe("terminal failures", () => {
  for (const code of [
    "invalid_request",
    "unauthorized",
    "forbidden_host",
    "session_not_found",
    "not_acceptable",
    "operation_expired",
  ] as const) {
    test(`the refusal '${code}' ends it with a notice`, async () => {
      const { clock, script, states, subscription } = attach([finished(FIRST), problem(code)]);
      await settle();
      await clock.advance(500);
      const end = await subscription.ended;
      expect(end).toMatchObject({ reason: "refused", error: { code } });
      expect(states.at(-1)).toEqual({ kind: "ended", ...end } as SubscriptionState);
      if (end.reason === "refused") expect(end.error).toBeInstanceOf(ApiError);
      await clock.advance(60_000);
      expect(script.requests).toHaveLength(2);
      expect(clock.waiting).toBe(0);
      expect(subscription.position).toEqual({ generation: "g1", seq: 1 });
    });
  }

  for (const [what, data, code] of [
    ["with a code", '{"code":"internal","message":"Broken"}', "internal"],
    ["without a code", "{}", "unknown"],
    ["that is not JSON", "oh no", "unknown"],
  ] as const) {
    test(`an explicit stream failure ${what} ends it with a notice`, async () => {
      const { clock, script, kinds, subscription } = attach([
        open(FIRST, `event: error\ndata: ${data}\n\n`),
      ]);
      expect(await subscription.ended).toMatchObject({ reason: "failed", error: { code } });
      expect(kinds()).toEqual(["connecting", "live", "ended"]);
      await clock.advance(60_000);
      expect(script.requests).toHaveLength(1);
    });
  }

  const boom = new Error("Boom");
  const throwing = (): never => {
    throw boom;
  };
  const rejecting = (): Promise<never> => Promise.reject(boom);
  for (const [what, options, saved] of [
    ["onReset throws", { onReset: throwing }, null],
    ["onReset rejects", { onReset: rejecting }, null],
    ["onEvent throws", { onEvent: throwing }, 1],
    ["onEvent rejects", { onEvent: rejecting }, 1],
    ["onBatch throws", { onBatch: throwing }, null],
    ["onBatch rejects", { onBatch: rejecting }, null],
  ] as [string, Partial<SubscribeOptions>, number | null][]) {
    test(`${what}: it ends with a notice, and the batch is not saved`, async () => {
      const stream = new HandStream().send(
        FIRST,
        frame({ cursor: 3, events: [delta(2), delta(3)] }),
      );
      const { clock, script, states, told, subscription } = attach([stream.response], options);
      expect(await subscription.ended).toEqual({ reason: "callback", error: boom });
      expect(states.at(-1)).toEqual({ kind: "ended", reason: "callback", error: boom });
      expect(subscription.position?.seq ?? null).toBe(saved);
      expect(told).not.toContain("batch 3");
      expect(stream.cancelled).toBe(true);
      await clock.advance(60_000);
      expect(script.requests).toHaveLength(1);
      expect(clock.waiting).toBe(0);
    });
  }

  for (const kind of ["connecting", "live", "waiting", "recovering"]) {
    test(`a notice of '${kind}' that fails ends it as a failed callback`, async () => {
      const bad = kind === "recovering" ? [frame({ cursor: 0 })] : [];
      const seen: string[] = [];
      const { subscription } = attach([finished(FIRST, ...bad)], {
        onState: (state) => {
          seen.push(state.kind);
          if (state.kind === kind) throwing();
        },
      });
      expect(await subscription.ended).toEqual({ reason: "callback", error: boom });
      expect(seen.slice(-2)).toEqual([kind, "ended"]);
    });
  }

  test("a terminal notice that fails is not lost, nor is what it was to tell", async () => {
    const { subscription } = attach([problem("not_found")], {
      onState: (state) => (state.kind === "ended" ? throwing() : undefined),
    });
    const end = await subscription.ended;
    if (end.reason !== "callback" || !(end.error instanceof AggregateError)) {
      throw new Error(`Expected both failures: '${end.reason}'`);
    }
    expect(end.error.errors).toEqual([expect.any(ApiError), boom]);
  });
});

describe("abort", () => {
  async function quietly(
    replies: Reply[],
    when: (clock: FakeClock) => Promise<void>,
    how: "signal" | "close",
  ): Promise<void> {
    const abort = new AbortController();
    const { clock, script, kinds, told, subscription } = attach(replies, { signal: abort.signal });
    await when(clock);
    const requests = script.requests.length;
    const before = [...kinds()];
    const toldBefore = [...told];
    if (how === "signal") abort.abort();
    else subscription.close();
    expect(await subscription.ended).toEqual({ reason: "aborted" });
    expect(subscription.position).toBeNull();
    await clock.advance(120_000);
    expect(kinds()).toEqual(before);
    expect(told).toEqual(toldBefore);
    expect(script.requests).toHaveLength(requests);
    expect(clock.waiting).toBe(0);
  }

  for (const how of ["signal", "close"] as const) {
    test(`by ${how} before anything: nothing is sent`, () => {
      return quietly([], () => Promise.resolve(), how);
    });
    test(`by ${how} while connecting`, () => quietly(["hang"], () => settle(), how));
    test(`by ${how} while live`, () => quietly([open(FIRST)], () => settle(), how));
    test(`by ${how} while waiting`, () => quietly(["lost"], () => settle(), how));
    test(`by ${how} while a refusal is read`, () => {
      const endless = new HandStream().response.body;
      return quietly([new Response(endless, { status: 503 })], () => settle(), how);
    });
    test(`by ${how} while output is hydrated`, () => {
      const spilled = withSegment({ content: reference });
      return quietly([open(frame({ cursor: 3, events: [spilled] })), "hang"], () => settle(), how);
    });
  }

  test("an aborted signal attaches nothing", async () => {
    const { subscription, script, kinds } = attach([], { signal: AbortSignal.abort() });
    expect(await subscription.ended).toEqual({ reason: "aborted" });
    expect(script.requests).toHaveLength(0);
    expect(kinds()).toEqual([]);
  });

  test("from a callback: no later callback is called, and the stream is let go", async () => {
    const stream = new HandStream().send(
      frame({ cursor: 3, events: [reset(1), delta(2), delta(3)] }),
    );
    const told: string[] = [];
    const { subscription, states } = attach([stream.response], {
      onEvent: ({ seq }) => {
        told.push(`event ${seq}`);
        subscription.close();
      },
      onBatch: () => void told.push("batch"),
    });
    expect(await subscription.ended).toEqual({ reason: "aborted" });
    expect(told).toEqual(["event 2"]);
    expect(states.map(({ kind }) => kind)).toEqual(["connecting"]);
    await settle();
    expect(stream.cancelled).toBe(true);
  });

  test("while a callback works: what it throws afterwards is not told", async () => {
    const gate = Promise.withResolvers<void>();
    const { subscription, kinds } = attach([open(FIRST)], { onReset: () => gate.promise });
    await settle();
    subscription.close();
    gate.reject(new Error("Late"));
    expect(await subscription.ended).toEqual({ reason: "aborted" });
    expect(kinds()).toEqual(["connecting"]);
  });

  test("leaves no listener on the caller's signal", async () => {
    const abort = new AbortController();
    const { signal } = abort;
    let listeners = 0;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = ((...args: Parameters<typeof add>) => {
      listeners += 1;
      add(...args);
    }) as typeof add;
    signal.removeEventListener = ((...args: Parameters<typeof remove>) => {
      listeners -= 1;
      remove(...args);
    }) as typeof remove;
    const { subscription } = attach([problem("not_found")], { signal });
    await subscription.ended;
    expect(listeners).toBe(0);
  });
});

const reference = { content_id: "c1", snapshot: "s1", bytes: 6, expires_at: 1 };

function withSegment(...contents: object[]): ResetEvent {
  const segments = contents.map((content, index) => ({
    live_id: `l${index}`,
    message_id: "m",
    kind: "text",
    ...content,
  }));
  const active = { segments, incomplete: false } as unknown as ResetEvent["active_output"];
  return reset(3, { active_output: active });
}

function contentPage(text: string, next: string | null = null, more: object = {}): Response {
  return Response.json({ content_id: "c1", snapshot: "s1", text, next, ...more });
}

const PAGE = `GET /sessions/${SESSION}/active-output/c1?snapshot=s1`;
const SPILLED = frame({ cursor: 4, events: [withSegment({ content: reference }), delta(4)] });

describe("hydration", () => {
  test("reads every page under the original snapshot before the reset is delivered", async () => {
    const gates = [new HandStream("application/json"), new HandStream("application/json")];
    const { script, told, resets, subscription } = attach([
      open(SPILLED, frame({ cursor: 5, events: [delta(5)] })),
      ...gates.map(({ response }) => response),
    ]);
    await settle();
    expect(script.lines).toEqual([FRESH, PAGE]);
    expect(told).toEqual([]);
    gates[0]?.send(await contentPage("aé", "n&2").text()).end();
    await settle();
    expect(script.lines).toEqual([FRESH, PAGE, `${PAGE}&next=n%262`]);
    expect(told).toEqual([]);
    expect(subscription.position).toBeNull();
    gates[1]?.send(await contentPage("bcd").text()).end();
    await settle();
    expect(told).toEqual(["reset 3", "text_delta 4", "batch 4", "text_delta 5", "batch 5"]);
    expect(resets[0]?.active_output).toEqual({
      segments: [{ live_id: "l0", message_id: "m", kind: "text", text: "aébcd" }],
      incomplete: false,
    });
  });

  test("keeps the segments' order and leaves inline and unavailable ones alone", async () => {
    const { resets } = attach([
      open(
        frame({
          cursor: 3,
          events: [
            withSegment(
              { text: "inline" },
              { content: reference },
              { unavailable: true },
              { text: "" },
            ),
          ],
        }),
      ),
      contentPage("spilt!"),
    ]);
    await settle();
    expect(
      resets[0]?.active_output.segments.map(({ text, unavailable }) => text ?? unavailable),
    ).toEqual(["inline", "spilt!", true, ""]);
  });

  test("an empty reference is a page without text", async () => {
    const { resets } = attach([
      open(frame({ cursor: 3, events: [withSegment({ content: { ...reference, bytes: 0 } })] })),
      contentPage(""),
    ]);
    await settle();
    expect(resets[0]?.active_output.segments[0]?.text).toBe("");
  });

  for (const code of ["active_output_expired", "active_output_not_found"] as const) {
    test(`'${code}' captures a new snapshot`, async () => {
      const { clock, script, told, kinds } = attach(
        [open(SPILLED), problem(code), open(SPILLED), contentPage("whole!")],
        { position: { generation: "g1", seq: 2 } },
      );
      await settle();
      expect(told).toEqual([]);
      expect(kinds()).toEqual(["connecting", "waiting"]);
      await clock.advance(500);
      expect(script.lines).toEqual([after(2), PAGE, FRESH, PAGE]);
      expect(told).toEqual(["reset 3", "text_delta 4", "batch 4"]);
    });
  }

  test("snapshots that expire again and again are captured at growing delays", async () => {
    const { clock, states } = attach([
      open(SPILLED),
      problem("active_output_expired"),
      open(SPILLED),
      problem("active_output_expired"),
      "lost",
    ]);
    await settle();
    await clock.advance(500);
    expect(states.at(-1)).toMatchObject({ kind: "waiting", delayMs: 1000 });
  });

  test("output that the daemon could not keep is passed through as unavailable", async () => {
    const { resets, kinds } = attach([
      open(frame({ cursor: 3, events: [withSegment({ content: reference }, { text: "b" })] })),
      problem("active_output_unavailable"),
    ]);
    await settle();
    expect(resets[0]?.active_output).toEqual({
      segments: [
        { live_id: "l0", message_id: "m", kind: "text", unavailable: true },
        { live_id: "l1", message_id: "m", kind: "text", text: "b" },
      ],
      incomplete: true,
    });
    expect(kinds()).toEqual(["connecting", "live"]);
  });

  for (const [what, reply] of [
    ["a lost page", "lost"],
    ["a server error", problem("internal")],
  ] as const) {
    test(`${what} reconnects with the saved pair`, async () => {
      const { clock, script, told } = attach([
        open(FIRST, SPILLED),
        reply,
        open(SPILLED),
        contentPage("whole!"),
      ]);
      await settle();
      await clock.advance(500);
      expect(script.lines).toEqual([FRESH, PAGE, after(1), PAGE]);
      expect(told.slice(2)).toEqual(["reset 3", "text_delta 4", "batch 4"]);
    });
  }

  test("a page that never comes is given up", async () => {
    const { clock, script, kinds } = attach([open(SPILLED), "hang", open()]);
    await settle();
    await clock.advance(30_000);
    expect(kinds().at(-1)).toBe("waiting");
    await clock.advance(500);
    expect(script.lines).toEqual([FRESH, PAGE, FRESH]);
  });

  for (const [what, pages] of [
    ["another snapshot's page", [contentPage("whole!", null, { snapshot: "s2" })]],
    ["another content's page", [contentPage("whole!", null, { content_id: "c2" })]],
    ["less than the cutoff", [contentPage("who")]],
    ["more than the cutoff", [contentPage("whole", "n"), contentPage("!!")]],
    ["pages that make no progress", [contentPage("who", "n"), contentPage("", "n")]],
    ["no page", [new Response("{}")]],
  ] as const) {
    test(`${what} is a protocol failure`, async () => {
      const { kinds, told } = attach([open(SPILLED), ...pages, open(FIRST)]);
      await settle();
      expect(kinds()).toEqual(["connecting", "recovering", "connecting", "live"]);
      expect(told).toEqual(["reset 1", "batch 1"]);
    });
  }

  test("a refusal of the page ends it", async () => {
    const { subscription } = attach([open(SPILLED), problem("session_not_found")]);
    expect(await subscription.ended).toMatchObject({
      reason: "refused",
      error: { code: "session_not_found" },
    });
  });
});
