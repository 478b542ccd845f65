import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  BODY_BYTES_MAX,
  CLIENT_ID_CHARS_MAX,
  HISTORY_ROWS_MAX,
  IMAGES_MAX,
  NAME_CHARS_MAX,
  TEXT_BYTES_MAX,
  TITLE_CHARS_MAX,
  WORKSPACE_CHARS_MAX,
} from "../../src/base/limits.ts";
import type { Answer } from "../support/api.ts";
import { TestDaemon } from "../support/daemon.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { ScriptedModel } from "../support/scripted_model.ts";
import { PNG_BASE64 } from "../support/png.ts";

/**
 * Goal: each bound on what a client may send holds at its last value and not at the next one, and a refusal of that
 * kind decides nothing (contract.md, One admission, two doors; Admission and receipts).
 * Method: a whole daemon over real HTTP; bodies, ages and queues have tests of their own.
 */
const INSTRUCTIONS_CHARS_MAX = 32_768;
const MODEL_CHARS_MAX = 300;

let daemon: TestDaemon;
let sessionId: string;

beforeAll(async () => {
  const model = new ScriptedModel();
  model.answer = (exchange) => exchange.say("ok").finish();
  daemon = await TestDaemon.start({ clock: new FakeClock(), models: [model] });
  sessionId = await daemon.session();
});
afterAll(() => daemon[Symbol.asyncDispose]());

type Send = (operationId: string, size: number) => Promise<Answer>;

function chars(count: number): string {
  return "x".repeat(count);
}

const create =
  (fields: (size: number) => Readonly<Record<string, unknown>>): Send =>
  (operationId, size) =>
    daemon.create({ operationId, workspace: daemon.workspace, ...fields(size) });
const event =
  (fields: (size: number) => Readonly<Record<string, unknown>>): Send =>
  (operationId, size) =>
    daemon.event(sessionId, { operationId, ...fields(size) });
const put =
  (fields: (size: number) => Readonly<Record<string, unknown>>): Send =>
  (operationId, size) =>
    daemon.put(sessionId, operationId, fields(size));

const images = (count: number) => Array.from({ length: count });

/** What is bounded, its last good size, how that is answered, and how to send one of a size. */
const BOUNDS: readonly (readonly [string, number, number, Send])[] = [
  ["title", TITLE_CHARS_MAX, 201, create((size) => ({ title: chars(size) }))],
  [
    "instructions",
    INSTRUCTIONS_CHARS_MAX,
    201,
    create((size) => ({ settings: { instructions: chars(size) } })),
  ],
  // Of these the shape is good, and what they name is not there.
  ["workspace", WORKSPACE_CHARS_MAX, 422, create((size) => ({ workspace: `/${chars(size - 1)}` }))],
  ["model", MODEL_CHARS_MAX, 422, create((size) => ({ model: chars(size) }))],
  [
    "skill name, events",
    NAME_CHARS_MAX,
    422,
    event((size) => ({ type: "skill", name: chars(size) })),
  ],
  [
    "skill name, inputs",
    NAME_CHARS_MAX,
    422,
    put((size) => ({ kind: "skill", name: chars(size) })),
  ],
  ["command name", NAME_CHARS_MAX, 422, put((size) => ({ kind: "command", name: chars(size) }))],
  ["clientId", CLIENT_ID_CHARS_MAX, 202, event((size) => ({ text: "a", clientId: chars(size) }))],
  [
    "client_id",
    CLIENT_ID_CHARS_MAX,
    202,
    put((size) => ({ kind: "message", text: "a", client_id: chars(size) })),
  ],
  [
    "images, events",
    IMAGES_MAX,
    202,
    event((size) => ({
      images: images(size).map(() => ({ mimeType: "image/png", data: PNG_BASE64 })),
    })),
  ],
  [
    "images, inputs",
    IMAGES_MAX,
    202,
    put((size) => ({
      kind: "message",
      images: images(size).map(() => ({ mime_type: "image/png", data: PNG_BASE64 })),
    })),
  ],
];

async function expectUndecided(operationId: string): Promise<void> {
  const receipt = await daemon.send("GET", `/operations/${operationId}`);
  expect([receipt.status, JSON.parse(receipt.text).code]).toEqual([404, "operation_unknown"]);
}

describe("what a client sends", () => {
  test.each(BOUNDS)("%s: at most %d", async (_name, max, status, send) => {
    const over = daemon.ids.uuidv7();
    const refused = await send(over, max + 1);
    expect([refused.status, JSON.parse(refused.text).code]).toEqual([400, "invalid_request"]);
    await expectUndecided(over);
    expect((await send(daemon.ids.uuidv7(), max)).status).toBe(status);
  });

  test.each(["events", "inputs"])("a text of 1 MiB and not a byte more, %s", async (door) => {
    const send: Send =
      door === "events"
        ? event((size) => ({ text: chars(size) }))
        : put((size) => ({ kind: "message", text: chars(size) }));
    const over = daemon.ids.uuidv7();
    const refused = await send(over, TEXT_BYTES_MAX + 1);
    expect([refused.status, JSON.parse(refused.text).code]).toEqual([413, "payload_too_large"]);
    await expectUndecided(over);
    expect((await send(daemon.ids.uuidv7(), TEXT_BYTES_MAX)).status).toBe(202);
  });

  test.each([
    ["PATCH", "", { title: "a" }, 200],
    ["POST", "/commands", { name: "rename", arguments: "a" }, 200],
    ["POST", "/interrupt", {}, 200],
    ["POST", "/inputs/01970000-0000-7000-8000-000000000001/cancel", {}, 404],
  ] as const)("a body of 64 KiB and not a byte more, %s %s", async (method, path, body, status) => {
    const text = JSON.stringify(body);
    const send = (size: number): Promise<Answer> =>
      daemon.send(method, `/sessions/${sessionId}${path}`, text + " ".repeat(size - text.length));
    const refused = await send(BODY_BYTES_MAX + 1);
    expect([refused.status, JSON.parse(refused.text).code]).toEqual([413, "payload_too_large"]);
    expect((await send(BODY_BYTES_MAX)).status).toBe(status);
  });

  test("a number of tokens from one on", async () => {
    const send = create((size) => ({ settings: { max_output_tokens: size } }));
    expect((await send(daemon.ids.uuidv7(), 0)).status).toBe(400);
    expect((await send(daemon.ids.uuidv7(), 1.5)).status).toBe(400);
    expect((await send(daemon.ids.uuidv7(), 1)).status).toBe(201);
  });

  test("a tail from none to 200 rows", async () => {
    const path = `/sessions/${sessionId}`;
    const none = await daemon.send("GET", `${path}?tail=0`);
    expect(JSON.parse(none.text)).not.toHaveProperty("history");
    expect((await daemon.send("GET", `${path}?tail=${HISTORY_ROWS_MAX}`)).status).toBe(200);
    for (const tail of [HISTORY_ROWS_MAX + 1, -1, "", "all"]) {
      expect((await daemon.send("GET", `${path}?tail=${tail}`)).status).toBe(400);
    }
  });

  test("a title that is changed keeps the bound of one that is made", async () => {
    const patch = (size: number): Promise<Answer> =>
      daemon.send("PATCH", `/sessions/${sessionId}`, { title: chars(size) });
    expect((await patch(TITLE_CHARS_MAX + 1)).status).toBe(400);
    expect((await patch(TITLE_CHARS_MAX)).status).toBe(200);
  });
});
