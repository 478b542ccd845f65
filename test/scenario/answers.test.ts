import { afterAll, beforeAll, expect, test } from "bun:test";
import * as v from "valibot";
import { HistoryPageSchema, HistoryRowSchema } from "../../src/wire/history.ts";
import { CancellationSchema, InputSchema, InterruptionSchema } from "../../src/wire/input.ts";
import { ReceiptSchema } from "../../src/wire/operation.ts";
import {
  CommandResultSchema,
  HealthSchema,
  ModelListSchema,
  ServerSchema,
  SkillListSchema,
} from "../../src/wire/server.ts";
import { SessionPageSchema, SessionSchema } from "../../src/wire/session.ts";
import { TestDaemon } from "../support/daemon.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { PNG_BASE64 } from "../support/png.ts";

/**
 * Goal: what routes answer is what their schemas, and so the OpenAPI document, say.
 * Method: one session with a bit of everything in it; each answer is held against the schema of its route.
 */

let daemon: TestDaemon;
let sessionId: string;
let inputId: string;

beforeAll(async () => {
  daemon = await TestDaemon.start({ clock: new FakeClock() });
  sessionId = await daemon.session({ title: "One", settings: { thinking: "low" } });
  inputId = daemon.ids.uuidv7();
  await daemon.event(sessionId, {
    operationId: inputId,
    text: "look",
    images: [{ mimeType: "image/png", data: PNG_BASE64 }],
    clientId: "mine",
  });
  const exchange = await daemon.model.next();
  exchange.think("hm").say("a pixel").finish();
  await daemon.ended(sessionId, inputId);
});
afterAll(() => daemon[Symbol.asyncDispose]());

async function holds<S extends v.GenericSchema>(
  schema: S,
  method: string,
  path: string,
  body?: unknown,
): Promise<v.InferOutput<S>> {
  const answer = await daemon.send(method, path, body);
  expect([path, answer.status]).toEqual([path, 200]);
  expect(answer.headers.get("content-type")).toBe("application/json");
  expect(answer.headers.get("cache-control")).toBe("no-store");
  return v.parse(schema, JSON.parse(answer.text));
}

test("every reading route answers as its schema says", async () => {
  const path = `/sessions/${sessionId}`;
  await holds(HealthSchema, "GET", "/health");
  const server = await holds(ServerSchema, "GET", "/server");
  expect(server.capabilities.session_replay).toBe(2);
  expect(server.limits.keepalive_ms).toBe(15_000);
  expect(server.instance_id).toBe(daemon.daemon.instanceId);
  for (const name of Object.keys(server.limits)) expect(name).toMatch(/_(ms|bytes|seconds|max)/);
  const list = await holds(SessionPageSchema, "GET", "/sessions");
  expect(list.items.map(({ id }) => id)).toEqual([sessionId]);
  const session = await holds(SessionSchema, "GET", path);
  expect(session).toMatchObject({ title: "One", phase: "idle", settings: { thinking: "low" } });
  expect((await holds(SessionSchema, "GET", `${path}?tail=0`)).history ?? []).toEqual([]);
  const page = await holds(HistoryPageSchema, "GET", `${path}/history`);
  expect(page.items.map(({ role }) => role)).toEqual(["user", "thinking", "assistant"]);
  await holds(HistoryRowSchema, "GET", `${path}/history/${page.items[0]?.id}`);
  await holds(InputSchema, "GET", `${path}/inputs/${inputId}`);
  await holds(ReceiptSchema, "GET", `/operations/${inputId}`);
  const models = await holds(ModelListSchema, "GET", "/models");
  expect(models.items.map(({ id }) => id)).toContain("demo/demo");
  await holds(SkillListSchema, "GET", "/skills");
  await holds(SkillListSchema, "GET", `/skills?workspace=${encodeURIComponent(daemon.workspace)}`);
});

test("pages of history go both ways and meet", async () => {
  const path = `/sessions/${sessionId}/history`;
  const whole = await holds(HistoryPageSchema, "GET", path);
  const backward: number[] = [];
  let next: number | null = null;
  do {
    const query: string = next === null ? "" : `&before=${next}`;
    const page: v.InferOutput<typeof HistoryPageSchema> = await holds(
      HistoryPageSchema,
      "GET",
      `${path}?limit=1${query}`,
    );
    backward.unshift(...page.items.map(({ id }) => id));
    next = page.next;
  } while (next !== null);
  const forward: number[] = [];
  let after: number | null = 0;
  while (after !== null) {
    const page: v.InferOutput<typeof HistoryPageSchema> = await holds(
      HistoryPageSchema,
      "GET",
      `${path}?limit=1&after=${after}`,
    );
    forward.push(...page.items.map(({ id }) => id));
    after = page.next;
  }
  const ids = whole.items.map(({ id }) => id);
  expect(backward).toEqual(ids);
  expect(forward).toEqual(ids);
});

test("an upload is given back as it was sent, and cannot run in a browser", async () => {
  const { items } = await holds(HistoryPageSchema, "GET", `/sessions/${sessionId}/history`);
  const image = items[0]?.images?.[0];
  expect(image).toMatchObject({ mime_type: "image/png", width: 1, height: 1 });
  const response = await daemon.request(`/sessions/${sessionId}/images/${image?.image_id}`);
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("image/png");
  expect(response.headers.get("cache-control")).toBe("no-store");
  expect(response.headers.get("x-content-type-options")).toBe("nosniff");
  expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
  expect(Buffer.from(await response.arrayBuffer()).toString("base64")).toBe(PNG_BASE64);
  expect((await daemon.request(`/sessions/${sessionId}/images/nope`)).status).toBe(404);
});

test("an upload that is too large for the model is fitted; history keeps the size that was sent", async () => {
  const wide = await new Bun.Image(Buffer.from(PNG_BASE64, "base64")).resize(3136, 4).png().bytes();
  const own = await daemon.session();
  const id = await daemon.say(own, "Look", {
    images: [{ mimeType: "image/png", data: Buffer.from(wide).toString("base64") }],
  });
  const exchange = await daemon.model.next();
  exchange.say("wide").finish();
  await daemon.ended(own, id);
  const { items } = await holds(HistoryPageSchema, "GET", `/sessions/${own}/history`);
  const image = items[0]?.images?.[0];
  expect(image).toMatchObject({
    mime_type: "image/png",
    width: 3136,
    height: 4,
    bytes: wide.length,
  });
  const path = `/sessions/${own}/images/${image?.image_id}`;
  const read = async (query: string): Promise<Uint8Array> =>
    (await daemon.request(path + query)).bytes();
  expect(await read("")).toEqual(wide);
  expect(await read("?variant=original")).toEqual(wide);
  const fitted = await read("?variant=fitted");
  expect(await new Bun.Image(fitted).metadata()).toMatchObject({ width: 1568, height: 2 });
  const [part] = exchange.request.messages.at(-1)?.parts ?? [];
  expect(part).toEqual({ type: "image", mimeType: "image/png", data: fitted });
  expect((await daemon.request(`${path}?variant=small`)).status).toBe(400);
});

test("a change names what it changes by its ETag, and is refused where that has changed", async () => {
  const path = `/sessions/${sessionId}`;
  const before = await daemon.send("GET", path);
  const etag = before.headers.get("etag") ?? "";
  expect(etag).toMatch(/^"[^"]+"$/);
  const patched = await daemon.send("PATCH", path, { title: "Two" }, { "if-match": etag });
  expect(patched.status).toBe(200);
  expect(v.parse(SessionSchema, JSON.parse(patched.text)).title).toBe("Two");
  const changed = patched.headers.get("etag");
  expect(changed).not.toBe(etag);
  const late = await daemon.send("PATCH", path, { title: "Three" }, { "if-match": etag });
  expect([late.status, JSON.parse(late.text).code]).toEqual([412, "precondition_failed"]);
  expect((await daemon.send("GET", path)).headers.get("etag")).toBe(changed);
  expect((await daemon.send("PATCH", path, { title: "Four" }, { "if-match": "*" })).status).toBe(
    200,
  );
  expect((await daemon.send("PATCH", path, { title: null })).status).toBe(200);
  const unknown = await daemon.send("PATCH", path, { model: "no/such" });
  expect([unknown.status, JSON.parse(unknown.text).code]).toEqual([422, "model_unknown"]);
});

test("commands and interruptions answer as their schemas say", async () => {
  const path = `/sessions/${sessionId}`;
  const renamed = await holds(CommandResultSchema, "POST", `${path}/commands`, {
    name: "rename",
    arguments: "Named",
  });
  expect(renamed).toEqual({ name: "rename", status: "done" });
  const refused = await daemon.send("POST", `${path}/commands`, { name: "skill", arguments: "x" });
  expect([refused.status, JSON.parse(refused.text).code]).toEqual([422, "command_refused"]);
  const unknown = await daemon.send("POST", `${path}/commands`, { name: "dance" });
  expect([unknown.status, JSON.parse(unknown.text).code]).toEqual([422, "command_unknown"]);
  expect(await holds(InterruptionSchema, "POST", `${path}/interrupt`)).toEqual({
    turn_id: null,
    cancelled: [],
  });
});

test("ten equal cancellations get ten equal answers, while it waits, runs and is over", async () => {
  const path = `/sessions/${sessionId}`;
  const running = await daemon.say(sessionId, "first");
  const exchange = await daemon.model.next();
  const waiting = await daemon.say(sessionId, "second");
  const tenTimes = (id: string) =>
    Promise.all(
      Array.from({ length: 10 }, () =>
        holds(CancellationSchema, "POST", `${path}/inputs/${id}/cancel`),
      ),
    );
  const cancelled = (await tenTimes(waiting)).map(({ result }) => result);
  expect(cancelled.filter((result) => result === "cancelled")).toHaveLength(1);
  expect(cancelled.filter((result) => result === "not_pending")).toHaveLength(9);
  const told = (await tenTimes(running)).map(({ result }) => result);
  expect(told).toContain("interrupt_requested");
  await daemon.ended(sessionId, running);
  expect(exchange.aborted).toBe(true);
  const over = await tenTimes(running);
  expect(new Set(over.map(({ result }) => result))).toEqual(new Set(["not_pending"]));
  expect(over[0]?.input.turn?.state).toBe("interrupted");
  const unknown = await daemon.send("POST", `${path}/inputs/${daemon.ids.uuidv7()}/cancel`);
  expect([unknown.status, JSON.parse(unknown.text).code]).toEqual([404, "input_not_found"]);
});

test("a session with children goes with them or not at all", async () => {
  const parent = await daemon.session();
  const child = await daemon.session({ parent_id: parent });
  const refused = await daemon.send("DELETE", `/sessions/${parent}`);
  expect([refused.status, JSON.parse(refused.text).code]).toEqual([409, "session_has_children"]);
  expect((await daemon.send("DELETE", `/sessions/${parent}?recursive=true`)).status).toBe(204);
  for (const id of [parent, child]) {
    expect((await daemon.send("GET", `/sessions/${id}`)).status).toBe(404);
  }
});

test("the list comes in pages, newest activity first, and refuses a cursor it never gave", async () => {
  for (let count = 0; count < 5; count += 1) await daemon.session({ title: `Page ${count}` });
  const whole = await holds(SessionPageSchema, "GET", "/sessions?limit=200");
  const ids: string[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    const page: v.InferOutput<typeof SessionPageSchema> = await holds(
      SessionPageSchema,
      "GET",
      `/sessions?limit=2${query}`,
    );
    ids.push(...page.items.map(({ id }) => id));
    cursor = page.next;
  } while (cursor !== null);
  expect(ids).toEqual(whole.items.map(({ id }) => id));
  const answer = await daemon.send("GET", "/sessions?cursor=nonsense");
  expect([answer.status, JSON.parse(answer.text).code]).toEqual([400, "invalid_request"]);
});
