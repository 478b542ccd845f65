import { describe, expect, test } from "bun:test";
import { createClient, OperationHandle, Uncertain } from "../../src/client/client.ts";
import type { Accepted, Client } from "../../src/client/client.ts";
import { ApiError, ProtocolError, TransportError } from "../../src/client/errors.ts";
import type { Endpoint } from "../../src/client/transport.ts";
import { isUuidv7 } from "../../src/base/ids.ts";
import { problemBody } from "../../src/wire/problem.ts";
import type { ProblemCode } from "../../src/wire/problem.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { problem } from "./fake_daemon.ts";
import { ScriptedFetch } from "./scripted.ts";
import type { Reply } from "./scripted.ts";

/**
 * Goal: "after transport loss, an invalid acknowledgement, or a server error, it queries the receipt and permits one
 * automatic replay of the same request within the existing deadline" (operations.md, Client recovery boundaries).
 * Method: a scripted fetch and a clock that stands still, so that each request is accounted for.
 */

const SESSION = "0192f0c1-2345-7abc-8def-0123456789ab";
const OTHER = "0192f0c1-2345-7abc-8def-0123456789ac";
const TOKEN = "token-of-the-test";

function setUp(...replies: Reply[]): { client: Client; script: ScriptedFetch; clock: FakeClock } {
  const script = new ScriptedFetch(...replies);
  const clock = new FakeClock();
  const client = createClient({
    url: "http://localhost:1",
    token: TOKEN,
    clock,
    fetch: script.fetch,
  });
  return { client, script, clock };
}

/** A message whose id is known before the replies are made. */
function prepared(makeReplies: (operationId: string) => Reply[]): {
  handle: OperationHandle;
  client: Client;
  script: ScriptedFetch;
  clock: FakeClock;
} {
  const replies: Reply[] = [];
  const later = (index: number) => (): Response | "lost" | "hang" => {
    const reply = replies[index];
    if (reply === undefined || typeof reply === "function") throw new Error("A request too many");
    return reply;
  };
  const { client, script, clock } = setUp(...Array.from({ length: 8 }, (_, index) => later(index)));
  const handle = client.prepareMessage(SESSION, { text: "once" });
  replies.push(...makeReplies(handle.operationId));
  return { handle, client, script, clock };
}

function acknowledged(operationId: string, sessionId = SESSION): Response {
  const body = { operationId, sessionId, status: "accepted", acceptedAt: 7 };
  return Response.json(body, { status: 202 });
}

function receipt(operationId: string, more: object = {}): Response {
  return Response.json({
    operationId,
    fingerprint: "f".repeat(64),
    kind: "message",
    target: SESSION,
    createdAt: 7,
    admission: "accepted",
    httpStatus: 202,
    result: { operationId, sessionId: SESSION, status: "accepted", acceptedAt: 7 },
    deliveryStatus: "pending",
    ...more,
  });
}

function rejectedReceipt(operationId: string): Response {
  return receipt(operationId, {
    admission: "rejected",
    httpStatus: 429,
    result: undefined,
    deliveryStatus: undefined,
    error: problemBody("queue_full", "Full"),
  });
}

function put(handle: OperationHandle): string {
  return `PUT /sessions/${SESSION}/inputs/${handle.operationId}`;
}

function ask(handle: OperationHandle): string {
  return `GET /operations/${handle.operationId}`;
}

async function failure(sending: Promise<unknown>): Promise<unknown> {
  try {
    return { unexpected: await sending };
  } catch (error) {
    return error;
  }
}

async function uncertainty(sending: Promise<Accepted>): Promise<Uncertain> {
  const error = await failure(sending);
  if (!(error instanceof Uncertain))
    throw new Error("Expected an uncertain outcome", { cause: error });
  return error;
}

describe("OperationHandle.send", () => {
  test("an acknowledged operation takes one request", async () => {
    const { handle, script } = prepared((id) => [acknowledged(id)]);
    expect(handle.maybeSent).toBe(false);
    expect(await handle.send()).toEqual({
      operationId: handle.operationId,
      sessionId: SESSION,
      acceptedAt: 7,
      replayed: false,
    });
    expect(script.lines).toEqual([put(handle)]);
    expect(script.requests[0]?.headers.get("authorization")).toBe(`Bearer ${TOKEN}`);
    expect(script.requests[0]?.headers.get("content-type")).toBe("application/json");
    expect(handle.maybeSent).toBe(true);
  });

  test("says when the acknowledgement was the stored one", async () => {
    const { handle } = prepared((operationId) => [
      Response.json(
        { operationId, sessionId: SESSION, status: "accepted", acceptedAt: 7 },
        { status: 202, headers: { "Albedo-Replayed": "true" } },
      ),
    ]);
    expect((await handle.send()).replayed).toBe(true);
  });

  const lost: [string, (id: string) => Reply][] = [
    ["a lost connection", () => "lost"],
    ["500", () => problem("internal")],
    ["503 storage_unavailable", () => problem("storage_unavailable")],
    ["503 daemon_stopping", () => problem("daemon_stopping")],
    ["502 of a proxy", () => new Response("<h1>Bad gateway</h1>", { status: 502 })],
    ["403 of a proxy", () => new Response("<h1>Forbidden</h1>", { status: 403 })],
    ["an empty 202", () => new Response(null, { status: 202 })],
    ["a 202 that is cut", () => new Response('{"operationId":"', { status: 202 })],
    ["a 200 of something else", () => new Response("<h1>Hello</h1>")],
    [
      "an acknowledgement without its time",
      (operationId) => {
        return Response.json(
          { operationId, sessionId: SESSION, status: "accepted" },
          { status: 202 },
        );
      },
    ],
    ["another operation's acknowledgement", () => acknowledged(OTHER)],
    ["another session's acknowledgement", (id) => acknowledged(id, OTHER)],
    ["an answer that is not UTF-8", () => new Response(new Uint8Array([0x22, 0xff, 0x22]))],
  ];

  for (const [what, reply] of lost) {
    test(`after ${what} the receipt decides: accepted`, async () => {
      const { handle, script } = prepared((id) => [reply(id), receipt(id)]);
      const accepted = await handle.send();
      expect(accepted).toEqual({
        operationId: handle.operationId,
        sessionId: SESSION,
        acceptedAt: 7,
        replayed: true,
      });
      expect(script.lines).toEqual([put(handle), ask(handle)]);
    });

    test(`after ${what} the receipt decides: rejected`, async () => {
      const { handle, script } = prepared((id) => [reply(id), rejectedReceipt(id)]);
      const error = await failure(handle.send());
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({ status: 429, code: "queue_full", detail: "Full" });
      expect(script.lines).toEqual([put(handle), ask(handle)]);
    });

    test(`after ${what} and no receipt the same bytes go once more`, async () => {
      const replies = (id: string): Reply[] => [
        reply(id),
        problem("operation_unknown"),
        acknowledged(id),
      ];
      const { handle, script } = prepared(replies);
      await handle.send();
      expect(script.lines).toEqual([put(handle), ask(handle), put(handle)]);
      const [first, , second] = script.requests;
      expect(second?.body).toBe(first?.body ?? "");
    });

    test(`after ${what} twice and no receipt it is uncertain, and never posted a third time`, async () => {
      const unknown = (): Response => problem("operation_unknown");
      const { handle, script } = prepared((id) => [reply(id), unknown(), reply(id), unknown()]);
      const error = await uncertainty(handle.send());
      expect(error.reason).toBe("unknown");
      expect(error.handle).toBe(handle);
      expect(error.cause).toBeInstanceOf(Error);
      expect(script.lines).toEqual([put(handle), ask(handle), put(handle), ask(handle)]);
    });
  }

  test("a receipt found after the replay was lost decides", async () => {
    const { handle } = prepared((id) => [
      "lost",
      problem("operation_unknown"),
      "lost",
      receipt(id),
    ]);
    expect((await handle.send()).acceptedAt).toBe(7);
  });

  const definite: ProblemCode[] = [
    "invalid_request",
    "operation_future",
    "unauthorized",
    "forbidden_origin",
    "session_not_found",
    "operation_conflict",
    "payload_too_large",
    "unsupported_media_type",
    "skill_unknown",
    "queue_full",
  ];
  for (const code of definite) {
    test(`'${code}' is a definite refusal: nothing more is sent`, async () => {
      const { handle, script } = prepared(() => [problem(code, "Because")]);
      const error = await failure(handle.send());
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({ code, detail: "Because", fields: [] });
      expect(script.lines).toEqual([put(handle)]);
    });
  }

  test("the answer of another action under the id is a conflict", async () => {
    const { handle, script } = prepared((id) => ["lost", receipt(id, { target: OTHER })]);
    expect(await failure(handle.send())).toMatchObject({ status: 409, code: "operation_conflict" });
    expect(script.lines).toEqual([put(handle), ask(handle)]);
  });

  test("410 on the receipt ends it as uncertain, and nothing is sent from then on", async () => {
    const { handle, script } = prepared(() => ["lost", problem("operation_expired")]);
    expect((await uncertainty(handle.send())).reason).toBe("expired");
    expect(handle.expired).toBe(true);
    expect((await uncertainty(handle.send())).reason).toBe("expired");
    expect(script.lines).toEqual([put(handle), ask(handle)]);
  });

  test("410 on the submission ends it as uncertain without a look-up", async () => {
    const { handle, script } = prepared(() => [problem("operation_expired")]);
    const uncertain = await uncertainty(handle.send());
    expect(uncertain.reason).toBe("expired");
    // The daemon's own words are in it: there is more than one way to be too old.
    expect(uncertain.message).toEndWith(`(${(uncertain.cause as Error).message})`);
    expect(script.lines).toEqual([put(handle)]);
  });

  test("an expired handle stays expired over a restart of the program", async () => {
    const { handle, client, script } = prepared(() => [problem("operation_expired")]);
    await uncertainty(handle.send());
    const restored = client.restoreHandle(JSON.stringify(handle));
    expect((await uncertainty(restored.send())).reason).toBe("expired");
    expect(script.requests).toHaveLength(1);
  });

  test("a look-up that fails in passing is repeated after 500 ms doubling to 5 s", async () => {
    const { handle, script, clock } = prepared((id) => [
      "lost",
      "lost",
      problem("daemon_stopping"),
      new Response("not a receipt"),
      new Response("slow down", { status: 429 }),
      receipt(OTHER),
      receipt(id),
    ]);
    const sending = handle.send({ timeoutMs: 60_000 });
    for (const [delayMs, count] of [
      [500, 3],
      [1000, 4],
      [2000, 5],
      [4000, 6],
      [5000, 7],
    ] as const) {
      await settle();
      await clock.advance(delayMs - 1);
      expect(script.requests).toHaveLength(count - 1);
      await clock.advance(1);
      expect(script.requests).toHaveLength(count);
    }
    expect((await sending).replayed).toBe(true);
    expect(script.lines.slice(1)).toEqual(Array.from({ length: 6 }, () => ask(handle)));
    expect(clock.waiting).toBe(0);
  });

  for (const [what, more] of [
    ["no admission body", { result: undefined }],
    [
      "another operation's admission body",
      { result: { operationId: OTHER, sessionId: SESSION, status: "accepted", acceptedAt: 7 } },
    ],
  ] as const) {
    test(`a receipt with ${what} decides nothing`, async () => {
      const { handle, script, clock } = prepared((id) => ["lost", receipt(id, more), receipt(id)]);
      const sending = handle.send();
      await settle();
      await clock.advance(500);
      expect((await sending).acceptedAt).toBe(7);
      expect(script.lines).toEqual([put(handle), ask(handle), ask(handle)]);
    });
  }

  test("a look-up that is refused leaves it uncertain", async () => {
    const { handle, script } = prepared(() => ["lost", problem("unauthorized")]);
    const error = await uncertainty(handle.send());
    expect(error.reason).toBe("unconfirmed");
    expect(error.cause).toMatchObject({ code: "unauthorized" });
    expect(script.lines).toEqual([put(handle), ask(handle)]);
  });

  test("an answer that never comes leaves half of the time for the recovery", async () => {
    const { handle, script, clock } = prepared((id) => ["hang", receipt(id)]);
    const sending = handle.send({ timeoutMs: 10_000 });
    await clock.advance(4_999);
    expect(script.requests).toHaveLength(1);
    await clock.advance(1);
    expect((await sending).replayed).toBe(true);
    expect(script.lines).toEqual([put(handle), ask(handle)]);
  });

  test("the deadline ends it as uncertain and nothing is sent after it", async () => {
    const { handle, script, clock } = prepared(() => ["lost", "lost", "lost", "lost", "lost"]);
    const sending = failure(handle.send({ timeoutMs: 2_000 }));
    await settle();
    await clock.advance(2_000);
    expect(await sending).toMatchObject({ name: "Uncertain", reason: "timeout" });
    expect(script.lines).toEqual([put(handle), ask(handle), ask(handle), ask(handle)]);
    await clock.advance(60_000);
    expect(script.requests).toHaveLength(4);
    expect(clock.waiting).toBe(0);
  });

  test("without a deadline of the caller the default holds", async () => {
    const { handle, clock } = prepared(() => ["hang", "hang", "hang", "hang", "hang", "hang"]);
    const sending = failure(handle.send());
    await settle();
    await clock.advance(29_999);
    await clock.advance(1);
    expect(await sending).toMatchObject({ name: "Uncertain", reason: "timeout" });
  });

  for (const [where, replies, sent] of [
    ["the submission", ["hang"], 1],
    ["the look-up", ["lost", "hang"], 2],
    ["the replay", ["lost", problem("operation_unknown"), "hang"], 3],
  ] as const) {
    test(`abort during ${where} stops at once and keeps the handle`, async () => {
      const { handle, script, clock } = prepared(() => [...replies]);
      const abort = new AbortController();
      const sending = uncertainty(handle.send({ signal: abort.signal }));
      await settle();
      abort.abort();
      const error = await sending;
      expect(error.reason).toBe("aborted");
      expect(error.handle.toJSON()).toEqual(handle.toJSON());
      await clock.advance(60_000);
      expect(script.requests).toHaveLength(sent);
      expect(clock.waiting).toBe(0);
    });
  }

  test("abort between two look-ups stops at once", async () => {
    const { handle, script, clock } = prepared(() => ["lost", "lost"]);
    const abort = new AbortController();
    const sending = uncertainty(handle.send({ signal: abort.signal }));
    await settle();
    expect(script.requests).toHaveLength(2);
    abort.abort();
    expect((await sending).reason).toBe("aborted");
    expect(clock.waiting).toBe(0);
  });

  test("an aborted signal sends nothing, and nothing is uncertain", async () => {
    const { handle, script } = prepared(() => []);
    const reason = new Error("Not any more");
    expect(await failure(handle.send({ signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(script.requests).toHaveLength(0);
    expect(handle.maybeSent).toBe(false);
  });

  test("to send again after an abort is the same action", async () => {
    const { handle, script } = prepared((id) => ["hang", acknowledged(id)]);
    const abort = new AbortController();
    const sending = uncertainty(handle.send({ signal: abort.signal }));
    await settle();
    abort.abort();
    await sending;
    await handle.send();
    const [first, second] = script.requests;
    expect(second).toEqual(first as NonNullable<typeof first>);
  });

  test("a daemon that cannot be located is a definite failure of a fresh handle alone", async () => {
    const clock = new FakeClock();
    const script = new ScriptedFetch();
    const endpoint = (): Endpoint => {
      throw new Error("No daemon.json");
    };
    const client = createClient({ endpoint, clock, fetch: script.fetch });
    const handle = client.prepareMessage(SESSION, { text: "once" });
    const fresh = await failure(handle.send());
    expect(fresh).toBeInstanceOf(TransportError);
    expect(fresh).toMatchObject({ failure: "endpoint" });
    const restored = client.restoreHandle(handle.toJSON());
    const sending = failure(restored.send({ timeoutMs: 1_000 }));
    await settle();
    await clock.advance(1_000);
    expect(await sending).toMatchObject({ name: "Uncertain", reason: "timeout" });
    expect(script.requests).toHaveLength(0);
  });

  test("each attempt asks where the daemon is, so one that came back elsewhere is found", async () => {
    const ports = [1, 2, 3];
    const script = new ScriptedFetch("lost", problem("operation_unknown"), () => acknowledged(id));
    const endpoint = async (): Promise<Endpoint> => {
      return { url: `http://localhost:${ports.shift()}/`, token: TOKEN };
    };
    const client = createClient({ endpoint, clock: new FakeClock(), fetch: script.fetch });
    const handle = client.prepareMessage(SESSION, { text: "once" });
    const id = handle.operationId;
    await handle.send();
    expect(script.requests.map(({ url }) => new URL(url).port)).toEqual(["1", "2", "3"]);
  });

  test("401 from an address that the daemon has left is asked again where it is now", async () => {
    const endpoints = [
      { url: "http://localhost:1", token: "old" },
      { url: "http://localhost:2", token: "new" },
    ];
    const script = new ScriptedFetch(problem("unauthorized"), () => acknowledged(id));
    const endpoint = (): Endpoint => endpoints.shift() ?? { url: "", token: "" };
    const client = createClient({ endpoint, clock: new FakeClock(), fetch: script.fetch });
    const handle = client.prepareMessage(SESSION, { text: "once" });
    const id = handle.operationId;
    await handle.send();
    expect(script.requests.map(({ headers }) => headers.get("authorization"))).toEqual([
      "Bearer old",
      "Bearer new",
    ]);
  });
});

describe("OperationHandle.resolve", () => {
  test("reads the receipt and never submits", async () => {
    const { handle, script } = prepared((id) => [
      receipt(id),
      rejectedReceipt(id),
      problem("operation_unknown"),
      problem("operation_expired"),
    ]);
    expect(await handle.resolve()).toMatchObject({
      status: "accepted",
      accepted: { sessionId: SESSION, acceptedAt: 7 },
      receipt: { deliveryStatus: "pending" },
    });
    expect(await handle.resolve()).toMatchObject({
      status: "rejected",
      error: { code: "queue_full" },
    });
    expect(await handle.resolve()).toEqual({ status: "unknown" });
    expect(await handle.resolve()).toEqual({ status: "expired" });
    expect(handle.expired).toBe(true);
    expect(script.lines).toEqual(Array.from({ length: 4 }, () => ask(handle)));
  });

  test("fails as any read when the receipt cannot be read", async () => {
    const { handle, script } = prepared(() => ["lost", problem("internal"), new Response("{}")]);
    expect(await failure(handle.resolve())).toBeInstanceOf(TransportError);
    expect(await failure(handle.resolve())).toBeInstanceOf(ApiError);
    expect(await failure(handle.resolve())).toBeInstanceOf(ProtocolError);
    expect(script.requests).toHaveLength(3);
  });
});

describe("prepare", () => {
  test("each action has an id of its own, also with the same content", () => {
    const { client } = setUp();
    const first = client.prepareMessage(SESSION, { text: "same" });
    const second = client.prepareMessage(SESSION, { text: "same" });
    expect(first.operationId).not.toBe(second.operationId);
    expect(isUuidv7(first.operationId)).toBe(true);
  });

  test("a failure of the random source prevents the submission", async () => {
    const script = new ScriptedFetch();
    const random = (): void => {
      throw new Error("No entropy");
    };
    const client = createClient({
      url: "http://localhost:1",
      token: TOKEN,
      random,
      fetch: script.fetch,
    });
    expect(() => client.prepareSession()).toThrow("No entropy");
    expect(() => client.prepareMessage(SESSION, { text: "x" })).toThrow("No entropy");
    expect(() => client.prepareContinuation(SESSION)).toThrow("No entropy");
    expect(() => client.prepareSkill(SESSION, { name: "x" })).toThrow("No entropy");
    expect(() => client.prepareCommand(SESSION, { name: "x" })).toThrow("No entropy");
    expect(await failure(client.createSession())).toMatchObject({ message: "No entropy" });
    expect(await failure(client.sendMessage(SESSION, { text: "x" }))).toMatchObject({
      message: "No entropy",
    });
    expect(script.requests).toHaveLength(0);
  });

  const owner = OTHER;
  const image = { mimeType: "image/png", data: new Uint8Array([0, 255, 16]) };
  const cases: [string, (client: Client) => OperationHandle, (id: string) => [string, object]][] = [
    [
      "session",
      (client) => client.prepareSession(),
      (operationId) => ["POST /sessions", { operationId }],
    ],
    [
      "session with everything",
      (client) =>
        client.prepareSession({
          workspace: "/w",
          title: "T",
          model: "demo/demo",
          parentId: SESSION,
          settings: { thinking: "low" },
        }),
      (operationId) => [
        "POST /sessions",
        {
          operationId,
          workspace: "/w",
          title: "T",
          model: "demo/demo",
          parent_id: SESSION,
          settings: { thinking: "low" },
        },
      ],
    ],
    [
      "message through inputs",
      (client) =>
        client.prepareMessage(SESSION, {
          text: "héllo",
          images: [image, { mimeType: "image/gif", data: "AAAA" }],
          clientId: "c",
          submissionId: owner,
        }),
      (id) => [
        `PUT /sessions/${SESSION}/inputs/${id}`,
        {
          kind: "message",
          text: "héllo",
          images: [
            { mime_type: "image/png", data: "AP8Q" },
            { mime_type: "image/gif", data: "AAAA" },
          ],
          client_id: "c",
          submission_id: owner,
        },
      ],
    ],
    [
      "message through events",
      (client) =>
        client.prepareMessage(SESSION, {
          images: [image],
          clientId: "c",
          submissionId: owner,
          door: "events",
        }),
      (operationId) => [
        `POST /sessions/${SESSION}/events`,
        {
          operationId,
          type: "user",
          images: [{ mimeType: "image/png", data: "AP8Q" }],
          clientId: "c",
          submissionId: owner,
        },
      ],
    ],
    [
      "continuation through inputs",
      (client) => client.prepareContinuation(SESSION),
      (id) => [`PUT /sessions/${SESSION}/inputs/${id}`, { kind: "continuation" }],
    ],
    [
      "continuation through events",
      (client) => client.prepareContinuation(SESSION, { door: "events" }),
      (operationId) => [`POST /sessions/${SESSION}/events`, { operationId, type: "continue" }],
    ],
    [
      "skill through inputs",
      (client) => client.prepareSkill(SESSION, { name: "review", arguments: "a  b" }),
      (id) => [
        `PUT /sessions/${SESSION}/inputs/${id}`,
        { kind: "skill", name: "review", arguments: "a  b" },
      ],
    ],
    [
      "skill through events",
      (client) => client.prepareSkill(SESSION, { name: "review", door: "events" }),
      (operationId) => [
        `POST /sessions/${SESSION}/events`,
        { operationId, type: "skill", name: "review" },
      ],
    ],
    [
      "command",
      (client) => client.prepareCommand(SESSION, { name: "rename", arguments: "New" }),
      (id) => [
        `PUT /sessions/${SESSION}/inputs/${id}`,
        { kind: "command", name: "rename", arguments: "New" },
      ],
    ],
  ];
  for (const [what, prepare, wanted] of cases) {
    test(`${what}: the request is the contract's and its bytes survive a restart of the program`, async () => {
      const { client, script } = setUp(problem("invalid_request"));
      const handle = prepare(client);
      const [line, body] = wanted(handle.operationId);
      await failure(handle.send());
      expect(script.lines[0]).toBe(line);
      expect(JSON.parse(script.requests[0]?.body ?? "")).toEqual(body);

      const text = JSON.stringify(handle);
      expect(text).not.toContain(TOKEN);
      expect(text).not.toContain("localhost");
      const other = setUp(problem("invalid_request"));
      const restored = other.client.restoreHandle(text);
      expect(restored.operationId).toBe(handle.operationId);
      expect(restored.kind).toBe(handle.kind);
      expect(restored.sessionId).toBe(handle.sessionId);
      expect(restored.body).toEqual(handle.body);
      expect(restored.maybeSent).toBe(true);
      await failure(restored.send());
      expect(other.script.lines[0]).toBe(line);
      expect(other.script.requests[0]?.body).toBe(script.requests[0]?.body ?? "");
    });
  }

  test("an image of several slices is encoded whole", async () => {
    const data = new Uint8Array(300_001).map((_, index) => (index * 31) % 256);
    const { client, script } = setUp(problem("payload_too_large"));
    const handle = client.prepareMessage(SESSION, { images: [{ mimeType: "image/png", data }] });
    await failure(handle.send());
    const body = JSON.parse(script.requests[0]?.body ?? "") as { images: { data: string }[] };
    expect(Buffer.from(body.images[0]?.data ?? "", "base64").equals(Buffer.from(data))).toBe(true);
  });

  test("text with a lone surrogate keeps its bytes over a restart", () => {
    const { client } = setUp();
    const handle = client.prepareMessage(SESSION, { text: "a\ud800b\u0000\u2028" });
    expect(client.restoreHandle(JSON.stringify(handle)).body).toEqual(handle.body);
  });
});

describe("restoreHandle", () => {
  const record = (): Record<string, unknown> => {
    return { ...setUp().client.prepareMessage(SESSION, { text: "x" }).toJSON() };
  };
  const cases: [string, unknown][] = [
    ["no JSON", "{"],
    ["no object", 7],
    ["another version", { ...record(), version: 2 }],
    ["no body", { ...record(), body: undefined }],
    ["an id that is none", { ...record(), operationId: "x" }],
    ["another action's path", { ...record(), path: "/server/shutdown" }],
    ["another method", { ...record(), method: "DELETE" }],
    ["a creation at a session", { ...record(), kind: "session_create" }],
    [
      "a command through the events door",
      {
        ...record(),
        kind: "command",
        method: "POST",
        path: `/sessions/${SESSION}/events`,
      },
    ],
    ["a submission without its session", { ...record(), sessionId: null }],
  ];
  for (const [what, broken] of cases) {
    test(`refuses ${what}`, () => {
      expect(() => setUp().client.restoreHandle(broken)).toThrow(TypeError);
    });
  }
});
