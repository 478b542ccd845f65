import { describe, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { ApiError, createClient, Transcript, Uncertain } from "../../src/client/client.ts";
import type { Client, HistoryRow, OperationHandle } from "../../src/client/client.ts";
import { ACTIVE_INLINE_BYTES_MAX } from "../../src/base/limits.ts";
import { systemClock } from "../../src/base/clock.ts";
import { TestDaemon } from "../support/daemon.ts";
import { HostileProxy } from "../support/hostile_proxy.ts";
import type { Fault } from "../support/hostile_proxy.ts";
import { lastUserText, ScriptedModel } from "../support/scripted_model.ts";
import type { Exchange } from "../support/scripted_model.ts";
import { until } from "../support/until.ts";
import { hurriedClock, impatientClock } from "./hurried_clock.ts";
import { PNG } from "../support/png.ts";

/**
 * Goal: the client and the daemon mean the same contract. Method: a whole daemon in this process, over real sockets:
 * every call once, then operations and streams through the hostile proxy.
 */

// Real sockets on a machine that may be busy.
setDefaultTimeout(60_000);

function clientOf(daemon: TestDaemon): Client {
  return createClient({ endpoint: () => ({ url: daemon.url, token: daemon.token }) });
}

async function refusal(calling: Promise<unknown>): Promise<ApiError> {
  try {
    await calling;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("Expected a refusal");
}

/** The whole history, by pages. */
async function historyOf(client: Client, sessionId: string): Promise<HistoryRow[]> {
  const rows: HistoryRow[] = [];
  let after: number | null = 0;
  while (after !== null) {
    const page: Awaited<ReturnType<Client["history"]>> = await client.history(sessionId, {
      after,
      direction: "forward",
      limit: 7,
    });
    rows.push(...page.items);
    after = page.next;
  }
  return rows;
}

/** A model that says what it was asked, and is done. */
function echoing(): ScriptedModel {
  const model = new ScriptedModel();
  model.answer = (exchange) => exchange.say(`You said: ${lastUserText(exchange.request)}`).finish();
  return model;
}

describe("each call is answered as its type says", () => {
  test("the daemon, models and skills", async () => {
    await using daemon = await TestDaemon.start();
    const client = clientOf(daemon);
    await client.health();
    const server = await client.server();
    expect(server.capabilities["session_replay"]).toBe(2);
    expect(await client.keepaliveMs()).toBe(server.limits["keepalive_ms"] ?? 0);
    expect((await client.models()).map(({ id }) => id)).toContain("demo/demo");
    expect(await client.skills()).toEqual([]);
    expect(await client.skills({ workspace: daemon.workspace })).toEqual([]);
    expect(await client.openapi()).toHaveProperty("openapi");
    expect(await refusal(client.shutdown("another"))).toMatchObject({ code: "instance_mismatch" });
    await client.shutdown(server.instance_id);
    await daemon.daemon.stopped;
  });

  test("sessions", async () => {
    await using daemon = await TestDaemon.start();
    const client = clientOf(daemon);
    const { workspace, model } = daemon;
    const fields = {
      workspace,
      model: model.id,
      title: "One",
      settings: { thinking: "low" },
    } as const;
    const created = await client.createSession(fields);
    const child = await client.createSession({ ...fields, parentId: created.sessionId });
    const { session, etag } = await client.getSession(created.sessionId, { tail: 0 });
    expect(session).toMatchObject({
      id: created.sessionId,
      title: "One",
      model: model.id,
      workspace,
    });
    expect(etag).not.toBeNull();

    const patch = { title: "Two" };
    const stale = await client.patchSession(created.sessionId, patch, { ifMatch: etag ?? "" });
    expect(stale.session.title).toBe("Two");
    const late = client.patchSession(
      created.sessionId,
      { title: "Three" },
      { ifMatch: etag ?? "" },
    );
    expect(await refusal(late)).toMatchObject({ status: 412, code: "precondition_failed" });

    const first = await client.listSessions({ limit: 1 });
    const second = await client.listSessions({ limit: 1, cursor: first.next ?? "" });
    const listed = [...first.items, ...second.items].map(({ id }) => id);
    expect(listed.toSorted()).toEqual([created.sessionId, child.sessionId].toSorted());

    const ran = await client.runCommand(child.sessionId, { name: "rename", arguments: "Child" });
    expect(ran).toEqual({ name: "rename", status: "done" });
    expect(await client.interrupt(child.sessionId)).toEqual({ turn_id: null, cancelled: [] });
    expect(await refusal(client.deleteSession(created.sessionId))).toMatchObject({
      code: "session_has_children",
    });
    await client.deleteSession(created.sessionId, { recursive: true });
    expect(await refusal(client.getSession(child.sessionId))).toMatchObject({
      code: "session_not_found",
    });
    const receipt = await client.receipt(created.operationId);
    expect(receipt).toMatchObject({ kind: "session_create", target: created.sessionId });
  });

  test("inputs, through both doors", async () => {
    await using daemon = await TestDaemon.start({ models: [echoing()] });
    const client = clientOf(daemon);
    const sessionId = await daemon.session();
    for (const door of ["inputs", "events"] as const) {
      const text = `through ${door}`;
      const images = [{ mimeType: "image/png", data: PNG }];
      const handle = client.prepareMessage(sessionId, { text, images, clientId: "me", door });
      const accepted = await handle.send();
      expect(accepted).toMatchObject({ sessionId, replayed: false });
      expect((await handle.send()).replayed).toBe(true);
      const input = await daemon.ended(sessionId, accepted.operationId);
      expect(await client.getInput(sessionId, accepted.operationId)).toEqual(input);
      expect(await client.cancelInput(sessionId, accepted.operationId)).toEqual({
        result: "not_pending",
        input,
      });
      expect(await handle.resolve()).toMatchObject({
        status: "accepted",
        receipt: { deliveryStatus: "committed" },
      });
      const continued = await client.prepareContinuation(sessionId, { door }).send();
      await daemon.ended(sessionId, continued.operationId);
      expect(
        await refusal(client.prepareSkill(sessionId, { name: "none", door }).send()),
      ).toMatchObject({
        code: "skill_unknown",
      });
    }
    await client.prepareCommand(sessionId, { name: "rename", arguments: "New" }).send();
    await until("the command", async () => (await daemon.resource(sessionId)).title === "New");

    const rows = await historyOf(client, sessionId);
    const user = rows.find(({ display_text }) => display_text === "through inputs");
    expect(user).toMatchObject({ role: "user", client_id: "me" });
    expect(await client.historyRow(sessionId, user?.id ?? 0)).toEqual(user as HistoryRow);
    const image = await client.image(sessionId, user?.images?.[0]?.image_id ?? "");
    expect(image).toEqual({ mimeType: "image/png", bytes: PNG });
    expect(rows.filter(({ display_text }) => display_text === "through events")).toHaveLength(1);
  });

  test("what the daemon refuses is definite", async () => {
    await using daemon = await TestDaemon.start();
    const client = clientOf(daemon);
    const sessionId = await daemon.session();
    const nowhere = daemon.ids.uuidv7();
    const cases: [OperationHandle, number, string][] = [
      [client.prepareSession({ workspace: "/nowhere/at/all" }), 422, "workspace_invalid"],
      [client.prepareSession({ model: "no/model" }), 422, "model_unknown"],
      [client.prepareMessage(nowhere, { text: "x" }), 404, "session_not_found"],
      [client.prepareMessage(sessionId, {}), 400, "invalid_request"],
      [client.prepareCommand(sessionId, { name: "none" }), 422, "command_unknown"],
    ];
    for (const [handle, status, code] of cases) {
      expect(await refusal(handle.send())).toMatchObject({ status, code });
      const restored = client.restoreHandle(JSON.stringify(handle));
      const resolution = await restored.resolve();
      expect(resolution.status).toBe(status === 400 ? "unknown" : "rejected");
      if (resolution.status === "rejected") {
        expect(resolution.error).toMatchObject({ status, code });
      }
    }
    const stranger = createClient({ url: daemon.url, token: "wrong" });
    expect(await refusal(stranger.sendMessage(sessionId, { text: "x" }))).toMatchObject({
      status: 401,
      code: "unauthorized",
    });
  });
});

/** A fetch that takes a connection for each request, so that each meets a fault of its own. */
function lonelyFetch(url: string, init: RequestInit): Promise<Response> {
  return fetch(url, { ...init, keepalive: false });
}

const replay = process.env["SEED"] === undefined ? {} : { seed: Number(process.env["SEED"]) };

const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({ kind: fc.constant("pass" as const), pieceBytes: fc.integer({ min: 1, max: 64 }) }),
  fc.constant<Fault>({ kind: "refuse" }),
  fc.record({ kind: fc.constant("cut_request" as const), bytes: fc.integer({ min: 0, max: 600 }) }),
  fc.constant<Fault>({ kind: "lose_response" }),
  fc.record({
    kind: fc.constant("cut_response" as const),
    bytes: fc.integer({ min: 0, max: 700 }),
    clean: fc.boolean(),
  }),
);

/** Each step is a fault of one connection; before it the daemon may be restarted under another port and token. */
const step = fc.record({ fault, restart: fc.boolean() });

test("an action is done once by a real daemon, whatever lies between, restarts included", async () => {
  await using daemon = await TestDaemon.start({ models: [echoing()] });
  const sessionId = await daemon.session();
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 4 }), fc.boolean(), async (steps, isCreation) => {
      const text = `action ${(runs += 1)}`;
      await using proxy = await HostileProxy.start({
        target: () => Number(new URL(daemon.url).port),
      });
      proxy.plan.push(...steps.map((each) => each.fault));
      const restarts = steps.map((each) => each.restart);
      const clock = hurriedClock(20);
      const endpoint = async () => {
        if (restarts.shift() === true) await daemon.restart();
        return { url: proxy.url, token: daemon.token };
      };
      const client = createClient({ endpoint, clock, fetch: lonelyFetch });
      const { workspace, model } = daemon;
      const handle = isCreation
        ? client.prepareSession({ title: text, workspace, model: model.id })
        : client.prepareMessage(sessionId, { text });
      const kept = JSON.stringify(handle);
      const outcome = await handle.send().then(
        () => "accepted",
        (error: unknown) => {
          if (error instanceof Uncertain) return error.reason;
          throw error;
        },
      );
      proxy.plan.length = 0;
      restarts.length = 0;
      const direct = clientOf(daemon);
      const { status } = await direct.restoreHandle(kept).resolve();
      expect(outcome === "accepted" ? status : "uncertain").toBe(
        outcome === "accepted" ? "accepted" : "uncertain",
      );
      await direct.restoreHandle(kept).send();
      if (isCreation) {
        const { items } = await direct.listSessions({ limit: 200 });
        expect(items.filter(({ title }) => title === text)).toHaveLength(1);
        return;
      }
      await daemon.ended(sessionId, handle.operationId);
      const rows = await historyOf(direct, sessionId);
      expect(rows.filter(({ display_text }) => display_text === text)).toHaveLength(1);
      // A restart may have come before the model was asked; it is never told twice.
      for (const { request } of model.exchanges.splice(0)) {
        const told = request.messages.filter(({ role, parts }) => {
          return (
            role === "user" && parts.some((part) => part.type === "text" && part.text === text)
          );
        });
        expect(told.length).toBeLessThanOrEqual(1);
      }
    }),
    { numRuns: 30, ...replay },
  );
}, 120_000);

/** What a model says in one turn. */
interface Saying {
  readonly thinking: string[];
  readonly text: string[];
  readonly call: boolean;
  readonly fails: boolean;
}

const saying: fc.Arbitrary<Saying> = fc.record({
  thinking: fc.array(fc.string({ unit: "grapheme", maxLength: 30 }), { maxLength: 4 }),
  text: fc.array(fc.string({ unit: "grapheme", minLength: 1, maxLength: 30 }), {
    minLength: 1,
    maxLength: 6,
  }),
  call: fc.boolean(),
  fails: fc.boolean(),
});

const cut: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({
    kind: fc.constant("cut_response" as const),
    bytes: fc.integer({ min: 0, max: 6000 }),
    clean: fc.boolean(),
  }),
  fc.constant<Fault>({ kind: "refuse" }),
  fc.record({ kind: fc.constant("pass" as const), pieceBytes: fc.integer({ min: 1, max: 200 }) }),
);

async function speak(
  exchange: Exchange,
  { thinking, text, call }: Saying,
  last: boolean,
): Promise<void> {
  for (const [kind, deltas] of [
    ["thinking", thinking],
    ["text", text],
  ] as const) {
    const block = exchange.open(kind);
    for (const delta of deltas) {
      exchange.delta(block, delta);
      // Lets deltas reach their readers one by one, as far as the frame allows.
      await new Promise((resolve) => setImmediate(resolve));
    }
    exchange.send({ type: "block_ended", block });
  }
  if (call && !last) exchange.call("c1", "no_such_tool");
  exchange.finish(call && !last ? "tool_calls" : "stop");
}

describe("a real daemon's stream", () => {
  for (const accept of ["identity", "zstd"]) {
    test(`in ${accept}: whatever the cuts, history and resumed events are the transcript`, async () => {
      const model = new ScriptedModel();
      await using daemon = await TestDaemon.start({ models: [model] });
      const scenario = fc.record({
        sayings: fc.array(saying, { minLength: 1, maxLength: 4 }),
        cuts: fc.array(cut, { maxLength: 6 }),
      });
      await fc.assert(
        fc.asyncProperty(scenario, async ({ sayings, cuts }) => {
          const sessionId = await daemon.session();
          await using proxy = await HostileProxy.start({
            target: () => Number(new URL(daemon.url).port),
          });
          proxy.plan.push(...cuts);
          const client = createClient({
            url: proxy.url,
            token: daemon.token,
            clock: impatientClock,
            fetch: (url, init) => {
              const headers = { ...(init.headers as object), "accept-encoding": accept };
              return lonelyFetch(url, { ...init, headers });
            },
          });
          const transcript = new Transcript();
          const subscription = client.subscribe(sessionId, {
            onReset: (reset) => transcript.apply(reset),
            onEvent: (event) => {
              // What was shown live is what becomes the row: no gap, no repeat.
              const liveId = "row" in event ? event.row.live_id : undefined;
              const chunk = transcript.live.find((each) => each.liveId === liveId);
              if (chunk !== undefined && "row" in event)
                expect(chunk.text).toBe(event.row.text ?? "");
              transcript.apply(event);
            },
          });
          const direct = clientOf(daemon);
          for (const each of sayings) {
            const { operationId } = await direct.sendMessage(sessionId, { text: "go" });
            const exchange = await model.next();
            if (each.fails) {
              exchange.delta(exchange.open("text"), "half of").fail(new Error("Broken"));
            } else {
              await speak(exchange, each, false);
              if (each.call) await speak(await model.next(), each, true);
            }
            await daemon.ended(sessionId, operationId);
          }
          const rows = await historyOf(direct, sessionId);
          const { cursor } = await daemon.resource(sessionId);
          await until("the last event", () => subscription.position?.seq === cursor);
          while (transcript.hasOlder) {
            const before = transcript.rows[0]?.id;
            const page = await direct.history(sessionId, before === undefined ? {} : { before });
            transcript.prepend(page.items, page.next);
          }
          expect([...transcript.rows]).toEqual(rows);
          expect(transcript.live).toEqual([]);
          expect(transcript.inputs).toEqual([]);
          expect(transcript.progress).toEqual([]);
          subscription.close();
          expect(await subscription.ended).toEqual({ reason: "aborted" });
        }),
        { numRuns: 15, ...replay },
      );
    }, 120_000);
  }

  test("brings spilled output whole to whoever attaches in the middle of it", async () => {
    const model = new ScriptedModel();
    await using daemon = await TestDaemon.start({ models: [model] });
    const sessionId = await daemon.session();
    const client = clientOf(daemon);
    await client.sendMessage(sessionId, { text: "go" });
    const exchange = await model.next();
    const block = exchange.open("text");
    const piece = "漢字 and 🙂 ".repeat(500);
    const count = Math.ceil((3 * ACTIVE_INLINE_BYTES_MAX) / piece.length);
    const early = new Transcript();
    const watching = client.subscribe(sessionId, {
      onReset: (reset) => early.apply(reset),
      onEvent: (event) => early.apply(event),
    });
    for (let index = 0; index < count; index += 1) exchange.delta(block, `${index} ${piece}`);
    const whole = Array.from({ length: count }, (_, index) => `${index} ${piece}`).join("");
    await until("all deltas", () => early.live[0]?.text === whole);

    const late = new Transcript();
    const lately = client.subscribe(sessionId, {
      onReset: (reset) => late.apply(reset),
      onEvent: (event) => late.apply(event),
    });
    await until("the reset", () => late.live.length > 0);
    expect(late.incomplete).toBe(false);
    expect(late.live.map(({ text }) => text).join("")).toBe(whole);
    exchange.delta(block, "end").send({ type: "block_ended", block }).finish();
    await until("the turn's end", () => late.turn?.state === "completed");
    expect(late.live).toEqual([]);
    // Its row is too long for an event, and says so.
    const cutRow = late.rows.find(({ role }) => role === "assistant");
    expect(cutRow?.truncated).toBe(true);
    late.replace(await client.historyRow(sessionId, cutRow?.id ?? 0));
    expect(late.rows.find(({ role }) => role === "assistant")?.text).toBe(`${whole}end`);
    watching.close();
    lately.close();
  });

  test("goes on over a restart on another port, with the work that waited", async () => {
    const model = echoing();
    await using daemon = await TestDaemon.start({ models: [model] });
    const sessionId = await daemon.session();
    const client = createClient({
      endpoint: () => ({ url: daemon.url, token: daemon.token }),
      clock: impatientClock,
    });
    const transcript = new Transcript();
    const states: string[] = [];
    const subscription = client.subscribe(sessionId, {
      onReset: (reset) => transcript.apply(reset),
      onEvent: (event) => transcript.apply(event),
      onState: ({ kind }) => void states.push(kind),
    });
    await until("the first reset", () => transcript.phase !== null);
    const before = subscription.position?.generation;
    await daemon.restart();
    await client.sendMessage(sessionId, { text: "after the restart" });
    await until("the answer", () => {
      return transcript.rows.some(({ text }) => text === "You said: after the restart");
    });
    expect(subscription.position?.generation).not.toBe(before ?? "");
    expect(states).not.toContain("ended");
    expect(states).not.toContain("recovering");
    await client.deleteSession(sessionId);
    expect(await subscription.ended).toMatchObject({
      reason: "refused",
      error: { code: "session_not_found" },
    });
  });

  test("a socket that died without a word is noticed and replaced", async () => {
    await using daemon = await TestDaemon.start({ models: [echoing()] });
    const sessionId = await daemon.session();
    await using proxy = await HostileProxy.start({
      target: () => Number(new URL(daemon.url).port),
    });
    proxy.plan.push({ kind: "stall" });
    const client = createClient({ url: proxy.url, token: daemon.token, clock: hurriedClock(20) });
    const states: string[] = [];
    const started = systemClock.monotonic();
    const subscription = client.subscribe(sessionId, {
      onReset: () => {},
      onEvent: () => {},
      onState: ({ kind }) => void states.push(kind),
      silenceMs: 2_000,
    });
    await until("a live stream", () => states.includes("live"));
    expect(states).toEqual(["connecting", "waiting", "connecting", "live"]);
    expect(systemClock.monotonic() - started).toBeGreaterThanOrEqual(100);
    subscription.close();
  });
});
