import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  IMAGE_BYTES_MAX,
  OPERATION_AGE_MS_MAX,
  OPERATION_FUTURE_MS_MAX,
  TEXT_BYTES_MAX,
  WAITING_INPUTS_MAX,
} from "../../src/base/limits.ts";
import type { SubmissionAction } from "../../src/wire/submission.ts";
import { settle } from "../support/fake_clock.ts";
import { codeOf, SessionBench } from "../support/session_bench.ts";
import { PNG_BASE64 } from "../support/png.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: what is checked of a request before it is decided, and in which order (operations.md, Requests and duplicate
 * detection; contract.md, Identity and time). Method: the session floor on a real store.
 */

function message(text: string, images: readonly string[] = []): SubmissionAction {
  return {
    kind: "message",
    text,
    images: images.map((data) => ({ mimeType: "text/html", data })),
  };
}

/** An id whose timestamp is this far from the bench's clock. */
function idAt(bench: SessionBench, offsetMs: number): string {
  const stamp = (bench.clock.now() + offsetMs).toString(16).padStart(12, "0");
  return `${stamp.slice(0, 8)}-${stamp.slice(8)}-7000-8000-${bench.ids.uuidv7().slice(-12)}`;
}

test("A retry replays status and body to the byte, and costs no write", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const operationId = bench.ids.uuidv7();
  const first = await bench.submit(session, message("One"), { operationId });
  expect(first).toMatchObject({ status: 202, replayed: false, contentType: "application/json" });
  expect(JSON.parse(first.body)).toEqual({
    operationId,
    sessionId: session,
    status: "accepted",
    acceptedAt: bench.clock.now(),
  });
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, operationId);
  await bench.clock.advance(60_000);
  const before = bench.store.database.writes;
  const again = await bench.submit(session, message("One"), { operationId, clientId: "other" });
  expect(again).toEqual({ ...first, replayed: true });
  expect(bench.store.database.writes).toBe(before);
  expect(bench.history(session)).toEqual(["user: One", "assistant: 1"]);
});

test("48 sends of one id at once are one acceptance, one row and one run", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const operationId = bench.ids.uuidv7();
  const replies = await Promise.all(
    Array.from({ length: 48 }, () => bench.submit(session, message("One"), { operationId })),
  );
  expect(new Set(replies.map(({ body }) => body)).size).toBe(1);
  expect(replies.filter(({ replayed }) => !replayed).length).toBe(1);
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, operationId);
  await settle(10);
  expect(bench.model.exchanges.length).toBe(1);
  expect(bench.history(session)).toEqual(["user: One", "assistant: 1"]);
});

test("A changed request under a known id is a conflict, whatever changed, and leaves the decision alone", async () => {
  await using bench = new SessionBench();
  const [session, other] = [await bench.create(), await bench.create()];
  const operationId = bench.ids.uuidv7();
  const owner = bench.ids.uuidv7();
  const first = await bench.submit(session, message("One", [PNG_BASE64]), { operationId });
  const changes = [
    bench.submit(session, message("Two", [PNG_BASE64]), { operationId }),
    bench.submit(session, message("One"), { operationId }),
    bench.submit(session, message("One", [PNG_BASE64, PNG_BASE64]), { operationId }),
    bench.submit(session, { kind: "continue" }, { operationId }),
    bench.submit(other, message("One", [PNG_BASE64]), { operationId }),
    bench.submit(session, message("One", [PNG_BASE64]), { operationId, submissionId: owner }),
  ];
  for (const change of changes) expect(await codeOf(change)).toBe("operation_conflict");
  const again = await bench.submit(session, message("One", [PNG_BASE64]), { operationId });
  expect(again.body).toBe(first.body);
});

test("The receipt is looked up before session, skill, queue and age", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const accepted = bench.ids.uuidv7();
  await bench.submit(session, message("One"), { operationId: accepted });
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, accepted);
  const unknown = bench.ids.uuidv7();
  const skill = { kind: "skill", name: "later", arguments: "" } as const;
  const refused = await bench.submit(session, skill, { operationId: unknown });
  expect([refused.status, refused.contentType]).toEqual([422, "application/problem+json"]);
  mkdirSync(join(bench.home, "skills", "later"), { recursive: true });
  writeFileSync(join(bench.home, "skills", "later", "SKILL.md"), "Do it");
  expect((await bench.submit(session, skill, { operationId: unknown })).body).toBe(refused.body);
  await bench.sessions.remove(session, { recursive: false });
  await bench.clock.advance(OPERATION_AGE_MS_MAX - 1000);
  const replay = await bench.submit(session, message("One"), { operationId: accepted });
  expect([replay.status, replay.replayed]).toEqual([202, true]);
});

test("An id past its age replays as long as its receipt lives", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const dayMs = 24 * 3_600_000;
  const operationId = idAt(bench, -6 * dayMs);
  await bench.submit(session, message("One"), { operationId });
  (await bench.model.next()).say("1").finish();
  await bench.settled(session, operationId);
  await bench.clock.advance(2 * dayMs);
  const replay = await bench.submit(session, message("One"), { operationId });
  expect([replay.status, replay.replayed]).toEqual([202, true]);
  const creation = {
    operationId: bench.ids.uuidv7(),
    workspace: bench.workspace,
    title: null,
    model: null,
    parentId: null,
    settings: {},
  };
  const created = await bench.sessions.create(creation);
  await bench.clock.advance(7 * dayMs);
  expect((await bench.sessions.create(creation)).body).toBe(created.body);
});

test("Ids without a receipt are refused by their age, on both sides of each limit", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const send = (offsetMs: number): Promise<string> =>
    codeOf(bench.submit(session, message("One"), { operationId: idAt(bench, offsetMs) }));
  expect(await send(-OPERATION_AGE_MS_MAX - 1)).toBe("operation_expired");
  expect(await send(-OPERATION_AGE_MS_MAX)).toBe("none");
  expect(await send(OPERATION_FUTURE_MS_MAX)).toBe("none");
  expect(await send(OPERATION_FUTURE_MS_MAX + 1)).toBe("operation_future");
});

test("An unknown session is a recorded 404, and so is a deleted one", async () => {
  await using bench = new SessionBench();
  const operationId = bench.ids.uuidv7();
  const nowhere = bench.ids.uuidv7();
  const first = await bench.submit(nowhere, message("One"), { operationId });
  expect(first.status).toBe(404);
  const again = await bench.submit(nowhere, message("One"), { operationId });
  expect(again).toEqual({ ...first, replayed: true });
  expect(bench.sessions.receipt(operationId)).toMatchObject({
    admission: "rejected",
    httpStatus: 404,
  });
});

test("The 33rd waiting input is a recorded 429 that replays after the queue has drained", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  await bench.send(session, "Runs");
  const exchange = await bench.model.next();
  for (let count = 0; count < WAITING_INPUTS_MAX; count += 1) await bench.send(session, `${count}`);
  const operationId = bench.ids.uuidv7();
  const full = await bench.submit(session, message("One too many"), { operationId });
  expect([full.status, (JSON.parse(full.body) as { code: string }).code]).toEqual([
    429,
    "queue_full",
  ]);
  exchange.say("1").finish();
  (await bench.model.next()).say("2").finish();
  await bench.phase(session, "idle");
  const again = await bench.submit(session, message("One too many"), { operationId });
  expect(again).toEqual({ ...full, replayed: true });
  expect((await bench.submit(session, message("Another"))).status).toBe(202);
  (await bench.model.next()).say("3").finish();
  await bench.phase(session, "idle");
});

test("Text is bounded in bytes at both sides of the limit; a message says something; nothing of it is recorded", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const refusals: [SubmissionAction, string][] = [
    [message("é".repeat(TEXT_BYTES_MAX / 2) + "x"), "payload_too_large"],
    [message(""), "invalid_request"],
    [message(" \n"), "invalid_request"],
    [message("x", ["not base64!"]), "invalid_request"],
    [message("x", [`${PNG_BASE64} `]), "invalid_request"],
    [message("x", [btoa("just text")]), "invalid_request"],
    [message("x", [btoa("x".repeat(IMAGE_BYTES_MAX + 1))]), "payload_too_large"],
    [{ kind: "skill", name: "s", arguments: "x".repeat(TEXT_BYTES_MAX + 1) }, "payload_too_large"],
  ];
  for (const [action, code] of refusals) {
    const operationId = bench.ids.uuidv7();
    expect(await codeOf(bench.submit(session, action, { operationId }))).toBe(code);
    expect(bench.store.operations.find(operationId)).toBeNull();
  }
  expect((await bench.submit(session, message("é".repeat(TEXT_BYTES_MAX / 2)))).status).toBe(202);
  expect((await bench.submit(session, message("", [PNG_BASE64]))).status).toBe(202);
  await bench.sessions.interrupt(session);
});

test("Images are known by their content, shown with their original size, and read by the model", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  await bench.submit(session, message("Look", [PNG_BASE64]));
  expect((await watch.until("input_accepted")).input.image_count).toBe(1);
  const exchange = await bench.model.next();
  expect(exchange.request.messages.at(-1)?.parts).toMatchObject([
    { type: "image", mimeType: "image/png" },
    { type: "text", text: "Look" },
  ]);
  const { row } = await watch.until("input_committed");
  expect(row.images).toMatchObject([{ mime_type: "image/png", width: 1, height: 1 }]);
  const image = bench.sessions.image(session, row.images?.[0]?.image_id ?? "");
  expect(Buffer.from(image.bytes).toString("base64")).toBe(PNG_BASE64);
  expect(() => bench.sessions.image(session, bench.ids.uuidv7())).toThrow("no such image");
  exchange.say("Seen").finish();
  await bench.phase(session, "idle");
});

test("A skill resolves when it is admitted: its text then is what the model reads, whatever becomes of the file", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const file = join(bench.home, "skills", "greet", "SKILL.md");
  mkdirSync(join(bench.home, "skills", "greet"), { recursive: true });
  writeFileSync(file, "Greet $ARGUMENTS warmly");
  bench.models.unavailable.add(bench.model.id);
  const reply = await bench.submit(session, { kind: "skill", name: "greet", arguments: "Ann" });
  expect(reply.status).toBe(202);
  writeFileSync(file, "Something else");
  await bench.phase(session, "blocked");
  bench.models.unavailable.clear();
  bench.models.changed();
  const exchange = await bench.model.next();
  expect(exchange.request.messages.at(-1)?.parts).toMatchObject([{ text: "Greet Ann warmly" }]);
  exchange.say("Hi").finish();
  await bench.phase(session, "idle");
  expect(bench.history(session)).toEqual(["user: /greet Ann", "assistant: Hi"]);
});

test("Unknown commands are recorded; the commands door refuses skills, and knows its own", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const refused = await bench.submit(session, { kind: "command", name: "nope", arguments: "" });
  expect([refused.status, (JSON.parse(refused.body) as { code: string }).code]).toEqual([
    422,
    "command_unknown",
  ]);
  mkdirSync(join(bench.home, "skills", "greet"), { recursive: true });
  writeFileSync(join(bench.home, "skills", "greet", "SKILL.md"), "Greet");
  const command = (name: string, args = ""): Promise<unknown> =>
    bench.sessions.command(session, { name, arguments: args });
  expect(await codeOf(command("skill", "greet"))).toBe("command_refused");
  expect(await codeOf(command("greet"))).toBe("command_refused");
  expect(await codeOf(command("nope"))).toBe("command_unknown");
  expect(await codeOf(command("model", "test/none"))).toBe("model_unknown");
  expect(await codeOf(command("rename", "x".repeat(201)))).toBe("invalid_request");
  expect(await command("rename", "  A title ")).toEqual({ name: "rename", status: "done" });
  expect(await command("model", "test/other")).toEqual({ name: "model", status: "done" });
  expect(bench.resource(session)).toMatchObject({ title: "A title", model: "test/other" });
});

test("A creation is checked in its own order, recorded, and replays after the session is gone", async () => {
  await using bench = new SessionBench();
  const base = {
    workspace: bench.workspace,
    title: null,
    model: null,
    parentId: null,
    settings: {},
  };
  const refusals: [Partial<typeof base> & object, string][] = [
    [{ workspace: join(bench.workspace, "missing") }, "workspace_invalid"],
    [{ workspace: "relative" }, "workspace_invalid"],
    [{ workspace: `${bench.workspace}\0` }, "workspace_invalid"],
  ];
  for (const [fields, code] of refusals) {
    const operationId = bench.ids.uuidv7();
    const first = await bench.sessions.create({ ...base, ...fields, operationId });
    expect([first.status, (JSON.parse(first.body) as { code: string }).code]).toEqual([422, code]);
    expect(await bench.sessions.create({ ...base, ...fields, operationId })).toEqual({
      ...first,
      replayed: true,
    });
  }
  const model = await bench.sessions.create({
    ...base,
    model: "test/none",
    operationId: bench.ids.uuidv7(),
  });
  expect(JSON.parse(model.body)).toMatchObject({ code: "model_unknown" });
  const parent = await bench.sessions.create({
    ...base,
    parentId: bench.ids.uuidv7(),
    operationId: bench.ids.uuidv7(),
  });
  expect(JSON.parse(parent.body)).toMatchObject({ code: "parent_invalid" });
  const operationId = bench.ids.uuidv7();
  const created = await bench.sessions.create({ ...base, operationId });
  const { sessionId } = JSON.parse(created.body) as { sessionId: string };
  expect([created.status, created.location]).toEqual([201, `/sessions/${sessionId}`]);
  await bench.sessions.remove(sessionId, { recursive: false });
  expect(await bench.sessions.create({ ...base, operationId })).toEqual({
    ...created,
    replayed: true,
  });
  expect(bench.sessions.receipt(operationId).target).toBe(sessionId);
});

test("A child works where its parent works and with its model, unless it says otherwise", async () => {
  await using bench = new SessionBench();
  const elsewhere = join(bench.workspace, "deep");
  mkdirSync(elsewhere);
  const parent = await bench.create({ workspace: elsewhere, model: "test/other" });
  const child = await bench.create({ workspace: null, parentId: parent });
  expect(bench.resource(child)).toMatchObject({
    workspace: elsewhere,
    model: "test/other",
    parent_id: parent,
  });
  const own = await bench.create({ parentId: parent, model: "test/scripted" });
  expect(bench.resource(own)).toMatchObject({
    workspace: bench.workspace,
    model: "test/scripted",
  });
});

test("PATCH holds to If-Match and tells readers", async () => {
  await using bench = new SessionBench();
  const session = await bench.create();
  const watch = bench.watch(session).drain();
  const { etag } = bench.sessions.resource(session, 0);
  const patched = await bench.sessions.patch(session, { title: "New" }, etag);
  expect(patched.resource.title).toBe("New");
  expect(patched.etag).not.toBe(etag);
  expect(await watch.until("session")).toMatchObject({ title: "New", model: "test/scripted" });
  expect(await codeOf(bench.sessions.patch(session, { title: "Late" }, etag))).toBe(
    "precondition_failed",
  );
  expect(await codeOf(bench.sessions.patch(session, { model: "test/none" }, null))).toBe(
    "model_unknown",
  );
  expect(await codeOf(bench.sessions.patch(bench.ids.uuidv7(), {}, null))).toBe(
    "session_not_found",
  );
  await bench.sessions.patch(session, { settings: { thinking: "high" } }, "*");
  await bench.send(session, "Go");
  const exchange = await bench.model.next();
  expect(exchange.request.thinking).toBe("high");
  exchange.say("ok").finish();
  await bench.phase(session, "idle");
});
