import { describe, expect, test } from "bun:test";
import {
  ApiError,
  createClient,
  ProtocolError,
  TransportError,
  Uncertain,
} from "../../src/client/client.ts";
import type { Client } from "../../src/client/client.ts";
import { KEEPALIVE_MS } from "../../src/base/limits.ts";
import { problemBody } from "../../src/wire/problem.ts";
import { freePort } from "../support/free_port.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { problem } from "./fake_daemon.ts";
import { ScriptedFetch } from "./scripted.ts";
import type { Reply } from "./scripted.ts";

/**
 * Goal: a typed call for each route of contract.md (One admission, two doors), every answer checked against the
 * wire's schemas, every failure told apart by class. Method: a scripted fetch.
 */

const SESSION = "0192f0c1-2345-7abc-8def-0123456789ab";
const INPUT = "0192f0c1-2345-7abc-8def-0123456789ac";
const TURN = "0192f0c1-2345-7abc-8def-0123456789ad";

function setUp(...replies: Reply[]): { client: Client; script: ScriptedFetch; clock: FakeClock } {
  const script = new ScriptedFetch(...replies);
  const clock = new FakeClock();
  const client = createClient({
    url: "http://localhost:1/",
    token: "t",
    clock,
    fetch: script.fetch,
  });
  return { client, script, clock };
}

async function failure(calling: Promise<unknown>): Promise<unknown> {
  try {
    return { unexpected: await calling };
  } catch (error) {
    return error;
  }
}

const summary = {
  id: SESSION,
  title: null,
  workspace: "/w",
  model: "demo/demo",
  parent_id: null,
  phase: "idle",
  running: false,
  loaded: true,
  active: false,
  created_at: 1,
  activity_at: 2,
};
const session = { ...summary, settings: {}, pending_inputs: [], history_watermark: 0 };
const row = { id: 3, role: "assistant", text: "hi", turn_id: TURN, created_at: 4 };
const input = { id: INPUT, session_id: SESSION, kind: "message", state: "pending", accepted_at: 5 };
const receipt = {
  operationId: INPUT,
  fingerprint: "f",
  kind: "message",
  target: SESSION,
  createdAt: 1,
  admission: "accepted",
  httpStatus: 202,
  result: { operationId: INPUT, sessionId: SESSION, status: "accepted", acceptedAt: 1 },
};
const server = {
  name: "albedo",
  version: "1.0.0",
  protocol: 1,
  instance_id: "i",
  pid: 1,
  started_at: 1,
  capabilities: { session_replay: 2 },
  limits: { keepalive_ms: 20_000 },
};
const model = { id: "demo/demo", provider: "demo", name: "demo", default: true, available: true };
const skill = { name: "review", description: "Reviews", origin: "home" };
const page = { content_id: "c/1", snapshot: "s 1", text: "abc", next: null };

interface Case {
  readonly call: (client: Client) => Promise<unknown>;
  readonly line: string;
  readonly body?: unknown;
  readonly answer: Response;
  readonly result?: unknown;
}

const cases: Record<string, Case> = {
  health: {
    call: (client) => client.health(),
    line: "GET /health",
    answer: Response.json({ status: "ok" }),
  },
  server: {
    call: (client) => client.server(),
    line: "GET /server",
    answer: Response.json(server),
    result: server,
  },
  shutdown: {
    call: (client) => client.shutdown("i"),
    line: "POST /server/shutdown",
    body: { instance_id: "i" },
    answer: new Response(null, { status: 202 }),
  },
  openapi: {
    call: (client) => client.openapi(),
    line: "GET /openapi.json",
    answer: Response.json({ openapi: "3.1.2" }),
    result: { openapi: "3.1.2" },
  },
  models: {
    call: (client) => client.models(),
    line: "GET /models",
    answer: Response.json({ items: [model] }),
    result: [model],
  },
  skills: {
    call: (client) => client.skills(),
    line: "GET /skills",
    answer: Response.json({ items: [skill] }),
    result: [skill],
  },
  "skills of a workspace": {
    call: (client) => client.skills({ workspace: "/a b&c" }),
    line: "GET /skills?workspace=%2Fa+b%26c",
    answer: Response.json({ items: [] }),
    result: [],
  },
  listSessions: {
    call: (client) => client.listSessions({ cursor: "c=", limit: 2 }),
    line: "GET /sessions?cursor=c%3D&limit=2",
    answer: Response.json({ items: [{ ...summary, pending_count: 1 }], next: null }),
    result: { items: [{ ...summary, pending_count: 1 }], next: null },
  },
  getSession: {
    call: (client) => client.getSession(SESSION, { tail: 0 }),
    line: `GET /sessions/${SESSION}?tail=0`,
    answer: Response.json(session, { headers: { etag: '"e"' } }),
    result: { session, etag: '"e"' },
  },
  patchSession: {
    call: (client) => client.patchSession(SESSION, { title: null }, { ifMatch: '"e"' }),
    line: `PATCH /sessions/${SESSION}`,
    body: { title: null },
    answer: Response.json(session, { headers: { etag: '"f"' } }),
    result: { session, etag: '"f"' },
  },
  deleteSession: {
    call: (client) => client.deleteSession(SESSION),
    line: `DELETE /sessions/${SESSION}`,
    answer: new Response(null, { status: 204 }),
  },
  "deleteSession with its children": {
    call: (client) => client.deleteSession(SESSION, { recursive: true }),
    line: `DELETE /sessions/${SESSION}?recursive=true`,
    answer: new Response(null, { status: 204 }),
  },
  interrupt: {
    call: (client) => client.interrupt(SESSION),
    line: `POST /sessions/${SESSION}/interrupt`,
    answer: Response.json({ turn_id: TURN, cancelled: [INPUT] }),
    result: { turn_id: TURN, cancelled: [INPUT] },
  },
  runCommand: {
    call: (client) => client.runCommand(SESSION, { name: "rename", arguments: "New" }),
    line: `POST /sessions/${SESSION}/commands`,
    body: { name: "rename", arguments: "New" },
    answer: Response.json({ name: "rename", status: "done" }),
    result: { name: "rename", status: "done" },
  },
  getInput: {
    call: (client) => client.getInput(SESSION, INPUT),
    line: `GET /sessions/${SESSION}/inputs/${INPUT}`,
    answer: Response.json(input),
    result: input,
  },
  cancelInput: {
    call: (client) => client.cancelInput(SESSION, INPUT),
    line: `POST /sessions/${SESSION}/inputs/${INPUT}/cancel`,
    answer: Response.json({ result: "cancelled", input }),
    result: { result: "cancelled", input },
  },
  history: {
    call: (client) => client.history(SESSION, { after: 0, limit: 10, direction: "forward" }),
    line: `GET /sessions/${SESSION}/history?after=0&limit=10&direction=forward`,
    answer: Response.json({ items: [row], next: 3, watermark: 9 }),
    result: { items: [row], next: 3, watermark: 9 },
  },
  historyRow: {
    call: (client) => client.historyRow(SESSION, 3),
    line: `GET /sessions/${SESSION}/history/3`,
    answer: Response.json(row),
    result: row,
  },
  activeOutput: {
    call: (client) => client.activeOutput(SESSION, "c/1", { snapshot: "s 1", next: "n" }),
    line: `GET /sessions/${SESSION}/active-output/c%2F1?snapshot=s+1&next=n`,
    answer: Response.json(page),
    result: page,
  },
  "activeOutput from the start": {
    call: (client) => client.activeOutput(SESSION, "c/1", { snapshot: "s 1", next: null }),
    line: `GET /sessions/${SESSION}/active-output/c%2F1?snapshot=s+1`,
    answer: Response.json(page),
    result: page,
  },
  image: {
    call: (client) => client.image(SESSION, "i/1"),
    line: `GET /sessions/${SESSION}/images/i%2F1`,
    answer: new Response(new Uint8Array([1, 2]), { headers: { "content-type": "image/png" } }),
    result: { mimeType: "image/png", bytes: new Uint8Array([1, 2]) },
  },
  "image fitted": {
    call: (client) => client.image(SESSION, "i/1", { variant: "fitted" }),
    line: `GET /sessions/${SESSION}/images/i%2F1?variant=fitted`,
    answer: new Response(new Uint8Array([1]), { headers: { "content-type": "image/png" } }),
    result: { mimeType: "image/png", bytes: new Uint8Array([1]) },
  },
  receipt: {
    call: (client) => client.receipt(INPUT),
    line: `GET /operations/${INPUT}`,
    answer: Response.json(receipt),
    result: receipt,
  },
};

describe("each route", () => {
  for (const [name, { call, line, body, answer, result }] of Object.entries(cases)) {
    test(`${name} is one authenticated request`, async () => {
      const { client, script, clock } = setUp(answer);
      expect(await call(client)).toEqual(result as undefined);
      expect(script.lines).toEqual([line]);
      const [request] = script.requests;
      expect(request?.headers.get("authorization")).toBe("Bearer t");
      expect(request?.url).toBe(`http://localhost:1${line.split(" ")[1]}`);
      expect(request?.headers.get("content-type")).toBe(
        body === undefined ? null : "application/json",
      );
      expect(request?.body ?? null).toBe(body === undefined ? null : JSON.stringify(body));
      if (name === "patchSession") expect(request?.headers.get("if-match")).toBe('"e"');
      expect(clock.waiting).toBe(0);
    });
  }

  test("no call but an operation is ever sent again", async () => {
    for (const [name, { call }] of Object.entries(cases)) {
      for (const reply of ["lost", problem("internal")] as const) {
        const { client, script } = setUp(reply);
        const error = await failure(call(client));
        expect([name, error]).toEqual([name, expect.any(Error)]);
        expect(error).not.toBeInstanceOf(Uncertain);
        expect(script.requests).toHaveLength(1);
      }
    }
  });
});

describe("answers", () => {
  test("a problem becomes an ApiError with its code, detail and fields", async () => {
    const fields = [{ pointer: "/title", detail: "Too long" }];
    const body = problemBody("invalid_request", "The title is too long", fields);
    const { client } = setUp(Response.json(body, { status: 400 }));
    const error = await failure(client.patchSession(SESSION, { title: "x" }));
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({
      status: 400,
      code: "invalid_request",
      detail: "The title is too long",
      message: "The title is too long",
      fields,
      problem: body,
    });
  });

  const foreign: [string, Response][] = [
    ["a page", new Response("<h1>Not found</h1>", { status: 404 })],
    ["nothing", new Response(null, { status: 404 })],
    ["another JSON", Response.json({ error: "secret" }, { status: 404 })],
    ["bytes", new Response(new Uint8Array([0xff, 0xfe]), { status: 404 })],
  ];
  for (const [what, answer] of foreign) {
    test(`a refusal with ${what} for a body says its status and nothing of the body`, async () => {
      const { client } = setUp(answer);
      const error = await failure(client.models());
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({
        status: 404,
        code: "http_404",
        message: "The server answered with status 404",
        fields: [],
        problem: null,
      });
    });
  }

  const invalid: [string, Response][] = [
    ["no JSON", new Response("hello")],
    ["nothing", new Response(null, { status: 204 })],
    ["another shape", Response.json({ items: [{ id: "secret" }] })],
    ["bytes that are no text", new Response(new Uint8Array([0x5b, 0xff, 0x5d]))],
  ];
  for (const [what, answer] of invalid) {
    test(`an answer of ${what} is a ProtocolError that does not quote it`, async () => {
      const { client } = setUp(answer);
      const error = await failure(client.models());
      expect(error).toBeInstanceOf(ProtocolError);
      expect(String(error)).not.toContain("secret");
    });
  }

  test("fields that are not known yet are no failure", async () => {
    const { client } = setUp(Response.json({ items: [{ ...model, price: 1 }], more: true }));
    expect(await client.models()).toEqual([model as never]);
  });
});

describe("calls", () => {
  test("an abort gives the signal's own reason", async () => {
    const { client, clock } = setUp("hang");
    const abort = new AbortController();
    const calling = failure(client.models({ signal: abort.signal }));
    await settle();
    const reason = new Error("Enough");
    abort.abort(reason);
    expect(await calling).toBe(reason);
    expect(clock.waiting).toBe(0);
  });

  test("a call that takes too long is a TransportError", async () => {
    const { client, clock } = setUp("hang", "hang");
    const calling = failure(client.models({ timeoutMs: 100 }));
    await settle();
    await clock.advance(100);
    expect(await calling).toMatchObject({ name: "TransportError", failure: "timeout" });
    const another = failure(client.models());
    await settle();
    await clock.advance(30_000);
    expect(await another).toBeInstanceOf(TransportError);
  });

  for (const timeoutMs of [Infinity, 2 ** 31, 1e15]) {
    test(`a deadline of ${timeoutMs} ms is none, also for the machine's timers`, async () => {
      const { promise, resolve } = Promise.withResolvers<Response>();
      const client = createClient({ url: "http://localhost:1", token: "t", fetch: () => promise });
      const calling = client.models({ timeoutMs });
      // A timer that overflowed would fire after a millisecond.
      await new Promise((done) => setTimeout(done, 5));
      resolve(Response.json({ items: [] }));
      expect(await calling).toEqual([]);
    });
  }

  test("an answer whose body never ends is a TransportError too", async () => {
    const endless = new ReadableStream({
      start: (stream) => stream.enqueue(new Uint8Array([0x7b])),
    });
    const { client, clock } = setUp(new Response(endless));
    const calling = failure(client.models({ timeoutMs: 100 }));
    await settle();
    await clock.advance(100);
    expect(await calling).toMatchObject({ name: "TransportError", failure: "timeout" });
  });

  test("a lost answer is a TransportError with its cause and no token", async () => {
    const { client } = setUp("lost");
    const error = await failure(client.models());
    expect(error).toMatchObject({ name: "TransportError", failure: "connection" });
    expect((error as Error).cause).toBeInstanceOf(TypeError);
    expect(String(error)).not.toContain("Bearer");
  });

  for (const [url, coding] of [
    ["http://localhost:1", "identity"],
    ["http://127.0.0.1:1/", "identity"],
    ["http://127.1.2.3", "identity"],
    ["http://[::1]:1", "identity"],
    ["http://127.0.0.1.example.com:1", null],
    ["http://localhost.example.com", null],
    ["https://example.com", null],
  ] as const) {
    test(`answers of '${url}' come ${coding === null ? "in any coding" : "uncoded"}`, async () => {
      const script = new ScriptedFetch(Response.json({ items: [] }));
      await createClient({ url, token: "t", fetch: script.fetch }).models();
      expect(script.requests[0]?.headers.get("accept-encoding") ?? null).toBe(coding);
    });
  }

  test("redirects are refused, so that the token goes nowhere else", async () => {
    let visited = 0;
    using elsewhere = Bun.serve({
      port: 0,
      fetch: () => {
        visited += 1;
        return Response.json({ items: [] });
      },
    });
    using front = Bun.serve({ port: 0, fetch: () => Response.redirect(elsewhere.url.href, 307) });
    const client = createClient({ url: front.url.href, token: "t" });
    expect(await failure(client.models())).toBeInstanceOf(TransportError);
    expect(visited).toBe(0);
  });
});

describe("keepaliveMs", () => {
  test("is what the daemon states, asked for once", async () => {
    const { client, script } = setUp(Response.json(server));
    expect(await client.keepaliveMs()).toBe(20_000);
    expect(await client.keepaliveMs()).toBe(20_000);
    expect(script.requests).toHaveLength(1);
  });

  test("is the contract's while the daemon does not say, and asked for again", async () => {
    const { client } = setUp(
      "lost",
      Response.json({ ...server, limits: {} }),
      Response.json({ ...server, limits: { keepalive_ms: 0 } }),
      Response.json(server),
    );
    expect(await client.keepaliveMs()).toBe(KEEPALIVE_MS);
    expect(await client.keepaliveMs()).toBe(KEEPALIVE_MS);
    expect(await client.keepaliveMs()).toBe(KEEPALIVE_MS);
    expect(await client.keepaliveMs()).toBe(20_000);
  });
});

test("createClient needs to know where the daemon is", () => {
  expect(() => createClient({})).toThrow(TypeError);
  expect(() => createClient({ url: "http://localhost:1" })).toThrow("Cannot create a client");
});

test("a daemon that is not there is told with the runtime's code, and without the token", async () => {
  const client = createClient({ url: `http://127.0.0.1:${freePort()}`, token: "s3cret" });
  const error = await client.models().catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(TransportError);
  expect((error as TransportError).message).toMatch(/^No answer: 'GET \/models' \(\w+\)$/);
  expect(Bun.inspect(error)).not.toContain("s3cret");
});
