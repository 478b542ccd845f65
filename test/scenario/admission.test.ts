import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import * as v from "valibot";
import {
  OPERATION_AGE_MS_MAX,
  OPERATION_FUTURE_MS_MAX,
  SWEEP_INTERVAL_MS,
  WAITING_INPUTS_MAX,
} from "../../src/base/limits.ts";
import { createIds } from "../../src/base/ids.ts";
import { AdmissionSchema, ReceiptSchema } from "../../src/wire/operation.ts";
import type { Answer } from "../support/api.ts";
import { TestDaemon } from "../support/daemon.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { PNG_BASE64 } from "../support/png.ts";

/**
 * Goal: operations.md and contract.md sections 1-3 as a client that nobody here wrote would find them.
 * Method: a whole daemon over real HTTP, a clock that a test moves, a model that answers when a test says so.
 */
const OTHER_PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

let clock: FakeClock;
let daemon: TestDaemon;

beforeEach(async () => {
  clock = new FakeClock();
  daemon = await TestDaemon.start({ clock });
});
afterEach(() => daemon[Symbol.asyncDispose]());

function code(answer: Answer): string {
  return (JSON.parse(answer.text) as { code: string }).code;
}

function isReplay(answer: Answer): boolean {
  return answer.headers.get("albedo-replayed") === "true";
}

/** The same status, the same bytes, the same type, and marked as a replay. */
function expectReplay(answer: Answer, original: Answer): void {
  expect(answer.status).toBe(original.status);
  expect(answer.text).toBe(original.text);
  expect(answer.headers.get("content-type")).toBe(original.headers.get("content-type"));
  expect(answer.headers.get("location")).toBe(original.headers.get("location"));
  expect(isReplay(answer)).toBe(true);
}

/** Holds the model's answer back, so that what comes next has to wait. */
async function occupy(sessionId: string): Promise<() => void> {
  await daemon.say(sessionId, "hold");
  const exchange = await daemon.model.next();
  return () => exchange.say("done").finish();
}

/** Lets days pass without each of their minutes, and the sweep after them. */
async function later(ms: number): Promise<void> {
  clock.setWall(clock.now() + ms);
  await clock.advance(SWEEP_INTERVAL_MS);
  // The daemon's own sweep has begun; it reads directories and may take longer than the next request.
  await daemon.daemon.sessions.sweep();
}

describe("creation", () => {
  test("is answered with 201, a location and the admission; a retry with the same to the byte", async () => {
    const fields = { operationId: daemon.ids.uuidv7(), workspace: daemon.workspace, title: "One" };
    const first = await daemon.create(fields);
    expect(first.status).toBe(201);
    expect(isReplay(first)).toBe(false);
    const admission = v.parse(AdmissionSchema, JSON.parse(first.text));
    expect(admission.operationId).toBe(fields.operationId);
    expect(first.headers.get("location")).toBe(`/sessions/${admission.sessionId}`);
    expectReplay(await daemon.create(fields), first);
    const { items } = await daemon.json<{ items: unknown[] }>("GET", "/sessions");
    expect(items).toHaveLength(1);
  });

  test("is answered again after the session was deleted, and makes no new one", async () => {
    const fields = { operationId: daemon.ids.uuidv7(), workspace: daemon.workspace };
    const first = await daemon.create(fields);
    const path = first.headers.get("location") ?? "";
    expect((await daemon.send("DELETE", path)).status).toBe(204);
    expectReplay(await daemon.create(fields), first);
    expect((await daemon.send("GET", path)).status).toBe(404);
    const receipt = await daemon.receipt(fields.operationId);
    expect(`/sessions/${receipt.target}`).toBe(path);
  });

  test("of a bad workspace, an unknown model or an unknown parent is refused for good", async () => {
    const cases: readonly [Record<string, unknown>, string][] = [
      [{ workspace: "/nowhere/at/all" }, "workspace_invalid"],
      [{ workspace: "relative" }, "workspace_invalid"],
      [{ workspace: daemon.workspace, model: "no/such" }, "model_unknown"],
      [{ workspace: daemon.workspace, parent_id: daemon.ids.uuidv7() }, "parent_invalid"],
    ];
    for (const [fields, expected] of cases) {
      const request = { operationId: daemon.ids.uuidv7(), ...fields };
      const refused = await daemon.create(request);
      expect([refused.status, code(refused)]).toEqual([422, expected]);
      expect(refused.headers.get("content-type")).toBe("application/problem+json");
      expectReplay(await daemon.create(request), refused);
      const receipt = v.parse(ReceiptSchema, await daemon.receipt(request.operationId));
      expect(receipt).toMatchObject({ admission: "rejected", httpStatus: 422, target: null });
      expect(receipt.error?.code).toBe(expected);
      expect(receipt.deliveryStatus).toBeUndefined();
    }
  });
});

describe("one submission through two doors", () => {
  const FORMS: readonly [string, Record<string, unknown>, Record<string, unknown>][] = [
    ["a text", { text: "hello" }, { kind: "message", text: "hello" }],
    [
      "a text with its type",
      { type: "user", text: "hello" },
      { kind: "message", text: "hello", images: [] },
    ],
    [
      "an image",
      { images: [{ mimeType: "image/png", data: PNG_BASE64 }] },
      { kind: "message", images: [{ mime_type: "image/png", data: PNG_BASE64 }] },
    ],
    ["a continuation", { type: "continue" }, { kind: "continuation" }],
    [
      "an unknown skill",
      { type: "skill", name: "nope", arguments: "a" },
      { kind: "skill", name: "nope", arguments: "a" },
    ],
  ];

  test.each(FORMS)(
    "%s is the same action, whichever door comes first",
    async (_name, event, put) => {
      for (const order of ["events", "inputs"]) {
        const sessionId = await daemon.session();
        const id = daemon.ids.uuidv7();
        const throughEvents = (): Promise<Answer> =>
          daemon.event(sessionId, { operationId: id, ...event });
        const throughInputs = (): Promise<Answer> => daemon.put(sessionId, id, put);
        const [first, second] =
          order === "events" ? [throughEvents, throughInputs] : [throughInputs, throughEvents];
        const original = await first();
        expect(isReplay(original)).toBe(false);
        expect([202, 422]).toContain(original.status);
        expectReplay(await second(), original);
        expectReplay(await first(), original);
      }
    },
  );

  test("what does not count: key order, defaults, clientId; what does: all else", async () => {
    const sessionId = await daemon.session();
    const id = daemon.ids.uuidv7();
    const image = { mimeType: "image/png", data: PNG_BASE64 };
    const original = await daemon.event(sessionId, { operationId: id, text: "a", images: [image] });
    expect(original.status).toBe(202);
    const same = [
      `{"images":[{"data":"${PNG_BASE64}","mimeType":"image/png"}],"text":"a","operationId":"${id}"}`,
      JSON.stringify({ operationId: id, type: "user", text: "a", images: [image], clientId: "x" }),
      // The label is only a label; the bytes decide.
      JSON.stringify({ operationId: id, text: "a", images: [{ ...image, mimeType: "image/gif" }] }),
    ];
    for (const body of same) {
      expectReplay(await daemon.send("POST", `/sessions/${sessionId}/events`, body), original);
    }
    const other = [
      { text: "b", images: [image] },
      { text: "a" },
      { text: "a", images: [image, image] },
      { text: "a", images: [{ ...image, data: OTHER_PNG }] },
      { text: "a", images: [image], submissionId: daemon.ids.uuidv7() },
      { type: "continue" },
      { type: "skill", name: "a" },
    ];
    for (const fields of other) {
      const answer = await daemon.event(sessionId, { operationId: id, ...fields });
      expect([answer.status, code(answer)]).toEqual([409, "operation_conflict"]);
    }
    const elsewhere = await daemon.event(await daemon.session(), {
      operationId: id,
      text: "a",
      images: [image],
    });
    expect(code(elsewhere)).toBe("operation_conflict");
    expect(code(await daemon.create({ operationId: id }))).toBe("operation_conflict");
    expectReplay(await daemon.send("POST", `/sessions/${sessionId}/events`, same[0]), original);
  });
});

describe("the same id at once", () => {
  test("48 sends of one id make one decision, one transcript row and one question to the model", async () => {
    const sessionId = await daemon.session();
    const operationId = daemon.ids.uuidv7();
    const answers = await Promise.all(
      Array.from({ length: 48 }, (_value, index) =>
        index % 2 === 0
          ? daemon.event(sessionId, { operationId, text: "once" })
          : daemon.put(sessionId, operationId, { kind: "message", text: "once" }),
      ),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(answers.filter((answer) => !isReplay(answer))).toHaveLength(1);
    const exchange = await daemon.model.next();
    exchange.say("yes").finish();
    await daemon.ended(sessionId, operationId);
    expect(daemon.model.exchanges).toHaveLength(1);
    const { history } = await daemon.resource(sessionId);
    expect(history?.filter(({ role }) => role === "user")).toHaveLength(1);
  });

  test("48 different actions under one id make one decision and 47 conflicts", async () => {
    const sessionId = await daemon.session();
    const operationId = daemon.ids.uuidv7();
    const answers = await Promise.all(
      Array.from({ length: 48 }, (_value, index) =>
        daemon.event(sessionId, { operationId, text: `action ${index}` }),
      ),
    );
    expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(47);
  });

  test("48 creations under one id make one session", async () => {
    const fields = { operationId: daemon.ids.uuidv7(), workspace: daemon.workspace };
    const answers = await Promise.all(Array.from({ length: 48 }, () => daemon.create(fields)));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(answers.filter((answer) => !isReplay(answer))).toHaveLength(1);
    const { items } = await daemon.json<{ items: unknown[] }>("GET", "/sessions");
    expect(items).toHaveLength(1);
  });

  test("a replay costs no write", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const operationId = daemon.ids.uuidv7();
    await daemon.event(sessionId, { operationId, text: "x" });
    const { database } = daemon.daemon.store;
    const before = database.writes;
    for (let round = 0; round < 20; round += 1) {
      expect(isReplay(await daemon.event(sessionId, { operationId, text: "x" }))).toBe(true);
    }
    expect(database.writes).toBe(before);
    release();
  });
});

describe("the queue", () => {
  test("takes 32 waiting inputs; the 33rd is refused for good, also once there is room", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const waiting: string[] = [];
    for (let count = 0; count < WAITING_INPUTS_MAX; count += 1) {
      waiting.push(await daemon.say(sessionId, `waiting ${count}`));
    }
    const operationId = daemon.ids.uuidv7();
    const refused = await daemon.event(sessionId, { operationId, text: "one too many" });
    expect([refused.status, code(refused)]).toEqual([429, "queue_full"]);
    // A retry of one that waits takes no room.
    const [first = ""] = waiting;
    expect((await daemon.event(sessionId, { operationId: first, text: "waiting 0" })).status).toBe(
      202,
    );
    const { pending_inputs } = await daemon.resource(sessionId);
    expect(pending_inputs.map(({ id }) => id)).toEqual(waiting);
    release();
    const next = await daemon.model.next();
    next.say("all of it").finish();
    await daemon.ended(sessionId, first);
    expectReplay(await daemon.event(sessionId, { operationId, text: "one too many" }), refused);
    expect(await daemon.receipt(operationId)).toMatchObject({
      admission: "rejected",
      httpStatus: 429,
    });
    expect(await daemon.say(sessionId, "there is room")).toBeString();
  });

  test("keeps the order of acceptance, whatever the ids say", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const early = createIds({ now: () => clock.now() - 60_000 });
    const texts: string[] = [];
    for (let count = 0; count < 10; count += 1) {
      const operationId = (count % 2 === 0 ? daemon.ids : early).uuidv7();
      await daemon.event(sessionId, { operationId, text: `number ${count}` });
      texts.push(`number ${count}`);
    }
    release();
    const next = await daemon.model.next();
    next.finish();
    const { history } = await daemon.resource(sessionId);
    const users = history?.filter(({ role }) => role === "user").map((row) => row.display_text);
    expect(users).toEqual(["hold", ...texts]);
  });

  test("of a session that is not there refuses for good", async () => {
    const sessionId = daemon.ids.uuidv7();
    const operationId = daemon.ids.uuidv7();
    const refused = await daemon.event(sessionId, { operationId, text: "x" });
    expect([refused.status, code(refused)]).toEqual([404, "session_not_found"]);
    expectReplay(await daemon.put(sessionId, operationId, { kind: "message", text: "x" }), refused);
    expect(await daemon.receipt(operationId)).toMatchObject({
      admission: "rejected",
      target: sessionId,
    });
  });

  test("of a deleted session answers its old decisions and takes no new ones", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const operationId = daemon.ids.uuidv7();
    const accepted = await daemon.event(sessionId, { operationId, text: "waits" });
    await daemon.json("DELETE", `/sessions/${sessionId}`).catch(() => {});
    release();
    expectReplay(await daemon.event(sessionId, { operationId, text: "waits" }), accepted);
    expect((await daemon.receipt(operationId)).deliveryStatus).toBe("cancelled");
    const late = await daemon.event(sessionId, { operationId: daemon.ids.uuidv7(), text: "late" });
    expect(late.status).toBe(404);
  });
});

describe("the age of an id", () => {
  const idAt = (instant: number): string => createIds({ now: () => instant }).uuidv7();

  test("may be seven days and not a millisecond more", async () => {
    const sessionId = await daemon.session();
    const oldest = idAt(clock.now() - OPERATION_AGE_MS_MAX);
    expect((await daemon.event(sessionId, { operationId: oldest, text: "x" })).status).toBe(202);
    const tooOld = idAt(clock.now() - OPERATION_AGE_MS_MAX - 1);
    for (const answer of [
      await daemon.event(sessionId, { operationId: tooOld, text: "x" }),
      await daemon.send("GET", `/operations/${tooOld}`),
      await daemon.create({ operationId: tooOld, workspace: daemon.workspace }),
    ]) {
      expect([answer.status, code(answer)]).toEqual([410, "operation_expired"]);
    }
  });

  test("may lie five minutes ahead and not a millisecond more; nothing is recorded", async () => {
    const sessionId = await daemon.session();
    const ahead = idAt(clock.now() + OPERATION_FUTURE_MS_MAX);
    expect((await daemon.event(sessionId, { operationId: ahead, text: "x" })).status).toBe(202);
    const tooFar = idAt(clock.now() + OPERATION_FUTURE_MS_MAX + 1);
    const refused = await daemon.event(sessionId, { operationId: tooFar, text: "x" });
    expect([refused.status, code(refused)]).toEqual([400, "operation_future"]);
    await clock.advance(1);
    expect((await daemon.event(sessionId, { operationId: tooFar, text: "x" })).status).toBe(202);
  });

  test("does not matter to a receipt that is there", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const operationId = daemon.ids.uuidv7();
    const accepted = await daemon.event(sessionId, { operationId, text: "waits long" });
    await later(2 * OPERATION_AGE_MS_MAX);
    // It still waits, so it never expires.
    expectReplay(await daemon.event(sessionId, { operationId, text: "waits long" }), accepted);
    expect((await daemon.receipt(operationId)).deliveryStatus).toBe("pending");
    release();
  });

  test("that has expired stays expired when the machine's clock is set back", async () => {
    const sessionId = await daemon.session();
    const operationId = daemon.ids.uuidv7();
    await daemon.event(sessionId, { operationId, text: "once" });
    (await daemon.model.next()).say("done").finish();
    await daemon.ended(sessionId, operationId);
    const { expiresAt = 0 } = await daemon.receipt(operationId);
    await later(expiresAt - clock.now() + 1);
    const gone = await daemon.event(sessionId, { operationId, text: "once" });
    expect([gone.status, code(gone)]).toEqual([410, "operation_expired"]);
    clock.setWall(clock.now() - OPERATION_AGE_MS_MAX);
    const again = await daemon.event(sessionId, { operationId, text: "once" });
    expect([again.status, code(again)]).toEqual([410, "operation_expired"]);
    expect(daemon.model.exchanges).toHaveLength(1);
    await daemon.restart();
    const afterRestart = await daemon.event(sessionId, { operationId, text: "once" });
    expect(code(afterRestart)).toBe("operation_expired");
  });

  test("of an unknown young id is unknown, which is not expired", async () => {
    const answer = await daemon.send("GET", `/operations/${daemon.ids.uuidv7()}`);
    expect([answer.status, code(answer)]).toEqual([404, "operation_unknown"]);
  });
});

describe("a receipt", () => {
  test("tells the whole way of an input", async () => {
    const sessionId = await daemon.session();
    const release = await occupy(sessionId);
    const operationId = daemon.ids.uuidv7();
    const accepted = await daemon.event(sessionId, { operationId, text: "x" });
    const waiting = v.parse(ReceiptSchema, await daemon.receipt(operationId));
    expect(waiting).toMatchObject({
      operationId,
      kind: "message",
      target: sessionId,
      admission: "accepted",
      httpStatus: 202,
      result: JSON.parse(accepted.text),
      deliveryStatus: "pending",
    });
    expect(waiting.fingerprint).toMatch(/^[0-9a-f]{64}$/);
    expect(waiting.expiresAt).toBeUndefined();
    release();
    const next = await daemon.model.next();
    expect(await daemon.receipt(operationId)).toMatchObject({ deliveryStatus: "committed" });
    await clock.advance(1000);
    next.say("done").finish();
    await daemon.ended(sessionId, operationId);
    const settled = v.parse(ReceiptSchema, await daemon.receipt(operationId));
    expect(settled.settledAt).toBe(clock.now());
    expect(settled.expiresAt).toBe(clock.now() + OPERATION_AGE_MS_MAX);
  });

  test("that has expired takes neither a continuation's marker nor anything else of the session along", async () => {
    const sessionId = await daemon.session();
    daemon.model.answer = (exchange) => exchange.say("done").finish();
    const message = await daemon.say(sessionId, "x");
    await daemon.ended(sessionId, message);
    const operationId = daemon.ids.uuidv7();
    await daemon.event(sessionId, { operationId, type: "continue", clientId: "go on" });
    await daemon.ended(sessionId, operationId);
    const path = `/sessions/${sessionId}/history`;
    const before = await daemon.send("GET", path);
    const rows = (JSON.parse(before.text) as { items: Record<string, unknown>[] }).items;
    expect(rows.map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "continuation",
      "assistant",
    ]);
    expect(rows[2]).toMatchObject({ operation_id: operationId, client_id: "go on" });
    expect(rows[2]).not.toHaveProperty("text");
    await later(OPERATION_AGE_MS_MAX + 1);
    expect(code(await daemon.send("GET", `/operations/${operationId}`))).toBe("operation_expired");
    expect(daemon.daemon.store.operations.find(operationId)).toBeNull();
    expect((await daemon.send("GET", path)).text).toBe(before.text);
    expect((await daemon.send("DELETE", `/sessions/${sessionId}`)).status).toBe(204);
    expect(code(await daemon.send("GET", path))).toBe("session_not_found");
  });

  test("is kept over a restart, and so is what it answered", async () => {
    const sessionId = await daemon.session();
    const operationId = daemon.ids.uuidv7();
    const accepted = await daemon.event(sessionId, { operationId, text: "x" });
    (await daemon.model.next()).say("done").finish();
    await daemon.ended(sessionId, operationId);
    const before = await daemon.receipt(operationId);
    await daemon.restart();
    expect(await daemon.receipt(operationId)).toEqual(before);
    expectReplay(await daemon.event(sessionId, { operationId, text: "x" }), accepted);
    expect(daemon.model.exchanges).toHaveLength(1);
  });
});
