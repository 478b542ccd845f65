import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, existsSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { ProviderError } from "../../src/agent/provider.ts";
import {
  ACTIVE_INLINE_BYTES_MAX,
  ACTIVE_SEGMENTS_MAX,
  FRAME_MS,
  MIB,
  RESPONSE_BYTES_MAX,
  RING_EVENTS_MAX,
  SPILL_PAGE_BYTES_MAX,
  SPILL_REFERENCE_MS,
  SPILL_RUN_BYTES_MAX,
} from "../../src/base/limits.ts";
import type { Frame } from "../../src/session/sessions.ts";
import type { ActiveSegment, ContentReference, StreamEvent } from "../../src/wire/event.ts";
import type { HistoryRow } from "../../src/wire/history.ts";
import { settle } from "../support/fake_clock.ts";
import { codeOf, SessionBench, seededRandom } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: sessions.md, "Stream failures and recovery", and contract.md, "The stream" and "Active output", from a reader's
 * side. Method: the session floor on a real store; readers pull when the test says so.
 */
interface Batch {
  readonly generation: string;
  readonly cursor: number;
  readonly events: StreamEvent[];
}

function batchOf(frame: Frame | null): Batch {
  if (frame === null) throw new Error("Expected a frame");
  expect(Buffer.byteLength(frame.data)).toBeLessThan(RESPONSE_BYTES_MAX);
  expect(frame.data).not.toContain("\n");
  const batch = JSON.parse(frame.data) as Batch;
  expect([batch.generation, batch.cursor]).toEqual([frame.generation, frame.cursor]);
  return batch;
}

async function readContent(
  bench: SessionBench,
  session: string,
  reference: ContentReference | undefined,
): Promise<string> {
  if (reference === undefined) throw new Error("Expected a reference");
  let text = "";
  for (let next: string | null = null; ;) {
    const page = await bench.sessions.activeOutput(session, reference.content_id, {
      snapshot: reference.snapshot,
      next,
    });
    expect(Buffer.byteLength(page.text)).toBeLessThanOrEqual(SPILL_PAGE_BYTES_MAX);
    text += page.text;
    next = page.next;
    if (next === null) return text;
  }
}

/** Lets the model's parts reach the session, and the frame end. */
async function streamed(bench: SessionBench): Promise<void> {
  await settle(20);
  await bench.clock.advance(FRAME_MS);
}

test("A first attachment begins with a reset; one at the head with an empty batch; one in the window with a replay", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  const first = batchOf(bench.sessions.subscribe(session, null).next());
  expect(first.events.map(({ kind }) => kind)).toEqual(["reset"]);
  expect(first.events[0]).toMatchObject({
    seq: first.cursor,
    history_watermark: 2,
    history_more: false,
    phase: "idle",
    turn: { state: "completed" },
    pending_inputs: [],
    current_progress: null,
    active_output: { segments: [], incomplete: false },
  });
  const { generation, cursor } = first;
  const at = (seq: number, of = generation) =>
    batchOf(bench.sessions.subscribe(session, { generation: of, seq }).next());
  expect(at(cursor).events).toEqual([]);
  expect(at(3).events.map(({ seq }) => seq)).toEqual(
    Array.from({ length: cursor - 3 }, (_, index) => index + 4),
  );
  expect(at(0).events.length).toBe(cursor);
  for (const outside of [at(cursor + 1), at(3, "another"), at(Number.NaN)]) {
    expect(outside.events.map(({ kind }) => kind)).toEqual(["reset"]);
  }
});

test("A reader that falls out of the window gets one reset, and one that keeps up gets none", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const [slow, quick] = [bench.watch(session).drain(), bench.watch(session).drain()];
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const block = exchange.open("text");
  for (let count = 0; count < RING_EVENTS_MAX + 10; count += 1) {
    exchange.delta(block, `${count} `);
    await settle(1);
    await bench.clock.advance(FRAME_MS);
    quick.drain();
  }
  const frame = slow.subscription.next();
  expect(batchOf(frame).events.map(({ kind }) => kind)).toEqual(["reset"]);
  expect(slow.subscription.next()).toBeNull();
  expect(quick.events.filter(({ kind }) => kind === "reset").length).toBe(1);
  exchange.send({ type: "block_ended", block }).finish();
  await bench.settled(session, input);
  const text = quick
    .drain()
    .events.map((event) => (event.kind === "text_delta" ? event.text : ""))
    .join("");
  expect(bench.history(session)[1]).toBe(`assistant: ${text}`);
});

test("Readers at one position are given the same frame, so that many cost as much as one", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const readers = Array.from({ length: 5 }, () => bench.sessions.subscribe(session, null));
  expect(new Set(readers.map((reader) => reader.next())).size).toBe(1);
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  expect(new Set(readers.map((reader) => reader.next())).size).toBe(1);
});

test("Wakes are flags: any number of events are one wake, and a closed reader's wait ends", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const reader = bench.sessions.subscribe(session, null);
  reader.next();
  let wakes = 0;
  const waiting = reader.wait().then(() => (wakes += 1));
  await settle();
  expect(wakes).toBe(0);
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  await waiting;
  await reader.wait();
  expect(batchOf(reader.next()).events.length).toBeGreaterThan(5);
  expect(reader.next()).toBeNull();
  const last = reader.wait();
  reader.close();
  await last;
  expect([reader.ended, reader.next()]).toEqual([true, null]);
});

test("A keepalive carries the reader's own pair and no event", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const reader = bench.sessions.subscribe(session, null);
  const { generation, cursor } = batchOf(reader.next());
  const input = await bench.send(session, "One");
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, input);
  expect(batchOf(reader.keepalive())).toEqual({ generation, cursor, events: [] });
  const ahead = batchOf(reader.next()).cursor;
  expect(batchOf(reader.keepalive()).cursor).toBe(ahead);
});

test("A reset shows unfinished output at its own cursor: what follows continues it without gap or repeat", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  exchange.think("Let me see");
  const block = exchange.open("text");
  exchange.delta(block, "Once ").delta(block, "upon ");
  await streamed(bench);
  exchange.delta(block, "a ");
  await settle();
  // Held in the frame: neither numbered nor in the snapshot.
  exchange.delta(block, "time");
  await settle();
  const watch = bench.watch(session).drain();
  const reset = await watch.until("reset");
  expect(reset).toMatchObject({ phase: "running", turn: { state: "running", members: [input] } });
  const [thinking, text] = reset.active_output.segments;
  expect([thinking?.kind, thinking?.text]).toEqual(["thinking", "Let me see"]);
  await bench.clock.advance(FRAME_MS);
  exchange.send({ type: "block_ended", block }).finish();
  await bench.settled(session, input);
  const rest = watch
    .drain()
    .events.map((event) => (event.kind === "text_delta" ? event.text : ""))
    .join("");
  expect(text?.text + rest).toBe("Once upon a time");
  const committed = await watch.until("committed");
  expect(committed.replaces_live_ids).toContain(text?.live_id ?? "none");
});

test("Long output spills: a reset refers to it, later deltas do not extend the reference, 64 KiB stay inline at most", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const block = exchange.open("text");
  const start = "漢字 ".repeat(20_000);
  exchange.delta(block, start);
  await streamed(bench);
  const reset = await bench.watch(session).until("reset");
  const [segment] = reset.active_output.segments;
  expect(segment?.text).toBeUndefined();
  expect(segment?.content?.bytes).toBe(Buffer.byteLength(start));
  exchange.delta(block, "and more".repeat(5000));
  await streamed(bench);
  expect(await readContent(bench, session, segment?.content)).toBe(start);
  const later = await bench.watch(session).until("reset");
  expect(await readContent(bench, session, later.active_output.segments[0]?.content)).toBe(
    start + "and more".repeat(5000),
  );
  exchange.send({ type: "block_ended", block }).finish();
  await bench.settled(session, input);
  // Across the commit, until it expires.
  expect(await readContent(bench, session, segment?.content)).toBe(start);
  await bench.clock.advance(SPILL_REFERENCE_MS);
  expect(await codeOf(readContent(bench, session, segment?.content))).toBe("active_output_expired");
  await bench.sessions.sweep();
  expect(readdirSync(join(bench.home, "spill", "instance-1"))).toEqual([]);
});

test("Whoever attaches in a long silence is given references of its own, which live 15 minutes from then", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  await bench.send(session, "One");
  const exchange = await bench.model.next();
  const text = "x".repeat(ACTIVE_INLINE_BYTES_MAX + 1);
  exchange.delta(exchange.open("text"), text);
  await streamed(bench);
  // The model says nothing more: all resets have the same cursor.
  for (const waited of [0, SPILL_REFERENCE_MS - 1000, SPILL_REFERENCE_MS]) {
    await bench.clock.advance(waited);
    const reset = await bench.watch(session).until("reset");
    const content = reset.active_output.segments[0]?.content;
    expect(content?.expires_at).toBe(bench.clock.now() + SPILL_REFERENCE_MS);
    expect(await readContent(bench, session, content)).toBe(text);
  }
});

test("References survive a retry, and a deletion revokes them", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  await bench.send(session, "One");
  const exchange = await bench.model.next();
  exchange.delta(exchange.open("text"), "x".repeat(ACTIVE_INLINE_BYTES_MAX + 1));
  await streamed(bench);
  const reset = await bench.watch(session).until("reset");
  const content = reset.active_output.segments[0]?.content;
  exchange.fail(new ProviderError("overloaded", "Busy", { retryable: true }));
  await watch.until("retry");
  expect((await readContent(bench, session, content)).length).toBe(ACTIVE_INLINE_BYTES_MAX + 1);
  await bench.sessions.remove(session, { recursive: false });
  expect(await codeOf(readContent(bench, session, content))).toBe("session_not_found");
  expect(readdirSync(join(bench.home, "spill", "instance-1"))).toEqual([]);
});

/** What may happen to the directory while output is streamed. */
const DAMAGES: Record<string, (spill: string) => void> = {
  "directory removed": (spill) => rmSync(spill, { recursive: true }),
  "directory made a file": (spill) => {
    rmSync(spill, { recursive: true });
    writeFileSync(spill, "in the way");
  },
  "directory not writable, files gone": (spill) => {
    rmSync(join(spill, "instance-1"), { recursive: true });
    chmodSync(spill, 0o500);
  },
};

for (const [name, damage] of Object.entries(DAMAGES)) {
  test(`Storage failure (${name}): the segment is unavailable, the turn and its commit go on`, async () => {
    await using bench = new SessionBench();
    const session = await bench.create();
    const input = await bench.send(session, "One");
    const exchange = await bench.model.next();
    const block = exchange.open("text");
    const half = "x".repeat(ACTIVE_INLINE_BYTES_MAX);
    exchange.delta(block, half).delta(block, "y".repeat(20_000));
    await streamed(bench);
    const content = (await bench.watch(session).until("reset")).active_output.segments[0]?.content;
    expect(content).toBeDefined();
    const spill = join(bench.home, "spill");
    damage(spill);
    exchange.delta(block, "z".repeat(20_000));
    const small = exchange.open("thinking");
    exchange.delta(small, "still here");
    await streamed(bench);
    const reset = await bench.watch(session).until("reset");
    expect(reset.active_output.incomplete).toBe(true);
    expect(reset.active_output.segments).toMatchObject([
      { kind: "text", unavailable: true },
      { kind: "thinking", text: "still here" },
    ]);
    expect(reset.active_output.segments[0]?.content).toBeUndefined();
    expect(await codeOf(readContent(bench, session, content))).toBe("active_output_unavailable");
    const watch = bench.watch(session).drain();
    exchange.send({ type: "block_ended", block }, { type: "block_ended", block: small }).finish();
    expect((await bench.settled(session, input)).turn?.state).toBe("completed");
    expect((await watch.until("committed")).replaces_all_live).toBe(true);
    expect(bench.history(session)[1]?.length).toBe(
      "assistant: ".length + ACTIVE_INLINE_BYTES_MAX + 40_000,
    );
    if (existsSync(spill)) chmodSync(spill, 0o700);
    expect(bench.errors).toEqual([]);
  });
}

test("Output beyond what a run may spill: the segment is unavailable, the turn and its commit go on", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  const block = exchange.open("text");
  const part = "x".repeat(MIB);
  for (let sent = 0; sent < SPILL_RUN_BYTES_MAX; sent += MIB) exchange.delta(block, part);
  exchange.delta(block, "and more");
  await until("the segment to be given up", async () => {
    await streamed(bench);
    const reset = await bench.watch(session).until("reset");
    return reset.active_output.segments[0]?.unavailable === true;
  });
  exchange.send({ type: "block_ended", block }).finish();
  expect((await bench.settled(session, input)).turn?.state).toBe("completed");
  const { text } = bench.sessions.historyRow(session, 2);
  expect(text?.length).toBe(SPILL_RUN_BYTES_MAX + "and more".length);
});

test("More than 256 blocks: the projection says that it is incomplete, and the commit retires all", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const input = await bench.send(session, "One");
  const exchange = await bench.model.next();
  for (let count = 0; count <= ACTIVE_SEGMENTS_MAX; count += 1) exchange.say(`${count}`);
  await streamed(bench);
  const watch = bench.watch(session);
  const reset = await watch.until("reset");
  expect(reset.active_output.segments.length).toBe(ACTIVE_SEGMENTS_MAX);
  expect(reset.active_output.incomplete).toBe(true);
  exchange.finish();
  await bench.settled(session, input);
  expect((await bench.watch(session).until("reset")).active_output.segments).toEqual([]);
});

test("Rows too large for an event are cut and say so; the whole row is in the history", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const text = "漢".repeat(300_000);
  const input = await bench.send(session, text);
  await watch.until("input_committed");
  (await bench.model.next()).say('"'.repeat(900_000)).call("c1", "t", "x".repeat(900_000)).finish();
  const next = await bench.model.next();
  const events = watch.drain().events;
  for (const event of events) expect(JSON.stringify(event).length).toBeLessThan(RESPONSE_BYTES_MAX);
  expect(events.find(({ kind }) => kind === "input_committed")).toMatchObject({
    row: { truncated: true },
  });
  const reset = await bench.watch(session).until("reset");
  expect(reset.history.some(({ truncated }) => truncated === true)).toBe(true);
  expect(bench.sessions.historyRow(session, 1).display_text).toBe(text);
  next.say("ok").finish();
  await bench.settled(session, input);
});

/** A client as plain as can be: rows by id, provisional text by live id. */
class Mirror {
  readonly rows = new Map<number, HistoryRow>();
  readonly live = new Map<string, string>();
  position: { generation: string; seq: number } | null = null;

  async take(frame: Frame, read: (segment: ActiveSegment) => Promise<string>): Promise<void> {
    const batch = batchOf(frame);
    let expected = this.position?.generation === batch.generation ? this.position.seq : null;
    for (const event of batch.events) {
      if (event.kind === "reset") {
        this.rows.clear();
        this.live.clear();
        for (const row of event.history) this.rows.set(row.id, row);
        for (const segment of event.active_output.segments) {
          this.live.set(segment.live_id, await read(segment));
        }
        continue;
      }
      if (expected !== null) expect(event.seq).toBe((expected += 1));
      this.#apply(event);
    }
    this.position = { generation: batch.generation, seq: batch.cursor };
  }

  #apply(event: StreamEvent): void {
    if ("row" in event) this.rows.set(event.row.id, event.row);
    if (event.kind === "text_delta" || event.kind === "thinking_delta") {
      this.live.set(event.live_id, (this.live.get(event.live_id) ?? "") + event.text);
    }
    if (event.kind === "committed") for (const row of event.rows) this.rows.set(row.id, row);
    if ("replaces_live_ids" in event) {
      for (const id of event.replaces_live_ids) this.live.delete(id);
    }
    if ("replaces_all_live" in event && event.replaces_all_live) this.live.clear();
  }
}

/** The whole history, page by page. */
function allRows(bench: SessionBench, session: string): HistoryRow[] {
  const rows: HistoryRow[] = [];
  for (let after: number | null = 0; after !== null;) {
    const { items, next } = bench.sessions.historyPage(session, {
      before: null,
      after,
      limit: 200,
      direction: "forward",
    });
    rows.push(...items);
    after = next;
  }
  return rows;
}

type Step =
  | { readonly kind: "say"; readonly text: string }
  | { readonly kind: "commit" | "retry" | "interrupt" | "frame" | "pull" | "cut" | "lose" };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc
        .tuple(fc.constantFrom("a", "é", "😀"), fc.integer({ min: 1, max: 30_000 }))
        .map(([unit, times]) => ({ kind: "say", text: unit.repeat(times) }) as const),
    },
    {
      weight: 9,
      arbitrary: fc
        .constantFrom("commit", "retry", "interrupt", "frame", "pull", "pull", "cut", "lose")
        .map((kind) => ({ kind }) as const),
    },
  ),
  { minLength: 5, maxLength: 40 },
);

test("property: whatever the cuts, history plus resumed events end as the transcript, and live text as what was streamed", async () => {
  await fc.assert(
    fc.asyncProperty(steps, fc.integer({ min: 1 }), async (script, seed) => {
      await using bench = new SessionBench({ random: seededRandom(seed) });
      const session = await bench.create();
      const mirror = new Mirror();
      const read = async (segment: ActiveSegment): Promise<string> =>
        segment.text ?? (await readContent(bench, session, segment.content));
      let reader = bench.sessions.subscribe(session, null);
      const pull = async (): Promise<void> => {
        const frame = reader.next();
        if (frame !== null) await mirror.take(frame, read);
      };
      let exchange: Awaited<ReturnType<typeof bench.model.next>> | null = null;
      let said = "";
      for (const step of script) {
        if (step.kind === "say") {
          if (exchange === null) {
            await bench.send(session, "Go");
            exchange = await bench.model.next();
          }
          exchange.say(step.text);
          said += step.text;
          await settle(2);
        } else if (step.kind === "commit" && exchange !== null) {
          exchange.finish();
          await bench.phase(session, "idle");
          [exchange, said] = [null, ""];
        } else if (step.kind === "retry" && exchange !== null) {
          exchange.fail(new ProviderError("overloaded", "Busy", { retryable: true }));
          said = "";
          const asked = bench.model.exchanges.length;
          // Another attempt after its delay, or the end of the turn after the last one.
          await until("what follows the failure", async () => {
            await bench.clock.advance(1000);
            return bench.model.exchanges.length > asked || bench.resource(session).phase === "idle";
          });
          exchange = bench.model.unseen > 0 ? await bench.model.next() : null;
        } else if (step.kind === "interrupt" && exchange !== null) {
          await bench.sessions.interrupt(session);
          await bench.phase(session, "interrupted");
          [exchange, said] = [null, ""];
        } else if (step.kind === "frame") {
          await bench.clock.advance(FRAME_MS);
        } else if (step.kind === "pull") {
          await pull();
        } else if (step.kind === "cut") {
          // The frame was sent but never arrived: the position stays what it was.
          reader.next();
          reader.close();
          reader = bench.sessions.subscribe(session, mirror.position);
        } else if (step.kind === "lose") {
          reader.close();
          mirror.position = null;
          reader = bench.sessions.subscribe(session, null);
        }
      }
      await streamed(bench);
      for (let frame = reader.next(); frame !== null; frame = reader.next()) {
        await mirror.take(frame, read);
      }
      // A reset holds the newest rows; from there on nothing is missing and nothing is twice.
      const rows = [...mirror.rows.values()].toSorted((a, b) => a.id - b.id);
      const history = allRows(bench, session);
      expect(rows).toEqual(history.slice(history.length - rows.length));
      if (history.length > 0) expect(rows.length).toBeGreaterThan(0);
      expect([...mirror.live.values()].join("")).toBe(said);
    }),
    { numRuns: 25, interruptAfterTimeLimit: 20_000 },
  );
}, 60_000);
