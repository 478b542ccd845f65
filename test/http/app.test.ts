import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { ADMISSION_BODY_BYTES_MAX, BODY_BYTES_MAX } from "../../src/base/limits.ts";
import { BODY_SILENCE_MS_MAX } from "../../src/http/body_patience.ts";
import { ProblemSchema } from "../../src/wire/problem.ts";
import { fakeSessions } from "../support/fake_sessions.ts";
import { TEST_INSTANCE, TEST_TOKEN, type TestApp, startTestApp } from "../support/http_app.ts";
import { until } from "../support/until.ts";
import { type RawAnswer, breakOff, rawRequest, sendRaw } from "../support/raw_http.ts";

/**
 * Goal: what contract.md section 1 and section 9 say of every request and every error, whatever the route.
 * Method: the whole HTTP floor on a real socket; the session floor below it is a fake that counts its calls.
 */
const ID = "01970000-0000-7000-8000-000000000001";
const OTHER = "01970000-0000-7000-8000-000000000002";

let calls: string[] = [];
let app: TestApp;

beforeAll(() => {
  app = startTestApp({
    sessions: fakeSessions({
      create: async ({ operationId }) => {
        calls.push("create");
        return {
          status: 201,
          body: `{"operationId":"${operationId}" }`,
          contentType: "application/json",
          location: `/sessions/${OTHER}`,
          replayed: false,
        };
      },
      submit: async ({ operationId, sessionId }) => {
        calls.push(`submit ${sessionId} ${operationId}`);
        return {
          status: 429,
          body: '{"code":"queue_full"}',
          contentType: "application/problem+json",
          location: null,
          replayed: true,
        };
      },
      list: ({ cursor, limit }) => {
        calls.push(`list ${cursor} ${limit}`);
        return { items: [], next: null };
      },
      historyPage: (_id, query) => {
        calls.push(`history ${JSON.stringify(query)}`);
        return { items: [], next: null, watermark: 0 };
      },
      receipt: () => {
        throw new Error("the secret of a bug");
      },
      interrupt: async () => {
        calls.push("interrupt");
        return { turn_id: null, cancelled: [] };
      },
      remove: async (_id, { recursive }) => void calls.push(`remove ${recursive}`),
      patch: async (_id, patch, ifMatch) => {
        calls.push(`patch ${JSON.stringify(patch)} ${ifMatch}`);
        throw new TypeError("not needed here");
      },
    }),
  });
});
afterAll(() => app[Symbol.asyncDispose]());

const HOST = { host: "127.0.0.1", authorization: `Bearer ${TEST_TOKEN}` };

async function raw(bytes: string | Uint8Array): Promise<RawAnswer> {
  const [answer] = await sendRaw(app.listener.port, bytes);
  if (answer === undefined) throw new Error("There was no answer");
  return answer;
}

/** A refusal as every one has to be; gives back its document. */
async function refused(response: Response, status: number, code: string) {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  expect(response.headers.get("cache-control")).toBe("no-store");
  const problem = v.parse(ProblemSchema, await response.json());
  expect({ status: response.status, code: problem.code }).toEqual({ status, code });
  expect(problem.status).toBe(status);
  expect(problem.type).toBe(`urn:albedo:problem:${code}`);
  return problem;
}

function post(path: string, body: BodyInit, headers: Record<string, string> = {}) {
  return app.request(path, {
    method: "POST",
    body,
    headers: { "content-type": "application/json", ...headers },
  });
}

describe("who may speak", () => {
  test.each(["127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:9999", "[::1]", "[::1]:5"])(
    "Host '%s' is served",
    async (host) => {
      expect((await raw(rawRequest("GET", "/health", { host }))).status).toBe(200);
    },
  );

  test.each([
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.",
    "a",
    "127.0.0.1:80:80",
    "::1",
  ])("Host '%s' is refused before the token is looked at", async (host) => {
    for (const target of ["/health", "/sessions", "/nowhere"]) {
      const answer = await raw(rawRequest("GET", target, { ...HOST, host }));
      expect([answer.status, JSON.parse(answer.body).code]).toEqual([403, "forbidden_host"]);
    }
  });

  test("a name that the daemon is bound to is served, however short", async () => {
    const { originRules } = await import("../../src/http/origins.ts");
    await using bound = startTestApp({ rules: originRules("a", []) });
    for (const host of ["a", "a:1", "A"]) {
      const [answer] = await sendRaw(bound.listener.port, rawRequest("GET", "/health", { host }));
      expect(answer?.status).toBe(200);
    }
    const [other] = await sendRaw(bound.listener.port, rawRequest("GET", "/health", { host: "b" }));
    expect(other?.status).toBe(403);
  });

  test("two Host headers are refused, and so is a request that has none", async () => {
    const twice = "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n";
    expect((await raw(twice)).status).toBe(403);
    expect((await raw("GET /health HTTP/1.0\r\n\r\n")).status).toBe(403);
  });

  test.each(["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])(
    "Origin '%s' is refused, also for /health and with a token",
    async (origin) => {
      for (const path of ["/health", "/sessions"]) {
        await refused(await app.request(path, { headers: { origin } }), 403, "forbidden_origin");
      }
    },
  );

  test("a preflight of a foreign page is refused", async () => {
    const headers = { origin: "https://evil.example", "access-control-request-method": "POST" };
    await refused(
      await app.request("/sessions", { method: "OPTIONS", headers }),
      403,
      "forbidden_origin",
    );
  });

  test("a browser's request that comes from another site without an origin is refused", async () => {
    for (const site of ["cross-site", "same-site"]) {
      const response = await app.request("/health", { headers: { "sec-fetch-site": site } });
      await refused(response, 403, "forbidden_origin");
    }
    for (const site of ["none", "same-origin"]) {
      const response = await app.request("/health", { headers: { "sec-fetch-site": site } });
      expect(response.status).toBe(200);
    }
  });

  test("the origin of the daemon itself is let in and may read the answer", async () => {
    const origin = app.listener.url;
    const response = await app.request("/sessions", { headers: { origin } });
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe(origin);
  });
});

describe("an origin that a person named", () => {
  const origin = "https://board.example";

  async function withOrigin<T>(run: (named: TestApp) => Promise<T>): Promise<T> {
    const { originRules } = await import("../../src/http/origins.ts");
    await using named = startTestApp({
      rules: originRules("127.0.0.1", [origin]),
      sessions: fakeSessions({ list: () => ({ items: [], next: null }) }),
    });
    return await run(named);
  }

  test("has its preflight answered without a token, with the methods of the path", async () => {
    await withOrigin(async (named) => {
      const response = await fetch(`${named.listener.url}/sessions`, {
        method: "OPTIONS",
        headers: { origin, "access-control-request-method": "POST" },
      });
      expect(response.status).toBe(204);
      expect(response.headers.get("access-control-allow-origin")).toBe(origin);
      expect(response.headers.get("access-control-allow-methods")).toBe("GET, HEAD, OPTIONS, POST");
      expect(response.headers.get("access-control-allow-headers")).toContain("authorization");
      expect(response.headers.get("access-control-allow-credentials")).toBeNull();
    });
  });

  test("may read answers and refusals alike, but needs the token", async () => {
    await withOrigin(async (named) => {
      const allowed = await named.request("/sessions", { headers: { origin } });
      expect(allowed.headers.get("access-control-allow-origin")).toBe(origin);
      expect(allowed.headers.get("vary")).toContain("Origin");
      expect(allowed.headers.get("access-control-expose-headers")).toContain("location");
      const headers = { origin, authorization: "Bearer wrong" };
      const denied = await named.request("/sessions", { headers });
      expect(denied.headers.get("access-control-allow-origin")).toBe(origin);
      await refused(denied, 401, "unauthorized");
    });
  });
});

describe("the token", () => {
  test.each([
    "",
    "Bearer",
    "Bearer ",
    `Bearer ${TEST_TOKEN}x`,
    `Bearer ${"x".repeat(TEST_TOKEN.length)}`,
    `Basic ${TEST_TOKEN}`,
    TEST_TOKEN,
    `Bearer ${TEST_TOKEN}, Bearer ${TEST_TOKEN}`,
  ])("'%s' is refused", async (authorization) => {
    const response = await app.request("/sessions", { headers: { authorization } });
    expect(response.headers.get("www-authenticate")).toBe("Bearer");
    await refused(response, 401, "unauthorized");
  });

  test("is needed everywhere but at /health: for unknown paths, wrong methods and broken bodies too", async () => {
    const headers = { authorization: "none" };
    expect((await app.request("/health", { headers })).status).toBe(200);
    for (const [method, path] of [
      ["GET", "/nowhere"],
      ["PUT", "/sessions"],
      ["GET", "/openapi.json"],
      ["GET", "/health/"],
      ["GET", "/%zz"],
      ["OPTIONS", "/sessions"],
    ] as const) {
      await refused(await app.request(path, { method, headers }), 401, "unauthorized");
    }
    const body = await app.request("/sessions", { method: "POST", headers, body: "{" });
    await refused(body, 401, "unauthorized");
  });

  test("in the query is an unknown parameter", async () => {
    const response = await app.request(`/sessions?token=${TEST_TOKEN}`);
    const problem = await refused(response, 400, "invalid_request");
    expect(JSON.stringify(problem)).not.toContain(TEST_TOKEN);
  });

  test("may follow a scheme in any case", async () => {
    const headers = { authorization: `bEARER  ${TEST_TOKEN}` };
    expect((await app.request("/sessions", { headers })).status).toBe(200);
  });
});

describe("paths and methods", () => {
  test.each([
    "/",
    "/nowhere",
    "/sessions/",
    "/%73essions",
    "//sessions",
    "/SESSIONS",
    `/sessions/${ID}/`,
    `/sessions/${ID}/events/`,
    `/sessions/${ID}/inputs`,
    "/sessions//events",
    "/health/",
  ])("%s is not found", async (path) => {
    const answer = await raw(rawRequest("GET", path, HOST));
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([404, "not_found"]);
  });

  test.each([
    ["PUT", "/sessions", "GET, HEAD, OPTIONS, POST"],
    ["DELETE", "/sessions", "GET, HEAD, OPTIONS, POST"],
    ["POST", `/sessions/${ID}`, "DELETE, GET, HEAD, OPTIONS, PATCH"],
    ["DELETE", `/sessions/${ID}/events`, "GET, HEAD, OPTIONS, POST"],
    ["POST", `/sessions/${ID}/inputs/${OTHER}`, "GET, HEAD, OPTIONS, PUT"],
    ["GET", `/sessions/${ID}/interrupt`, "OPTIONS, POST"],
    ["POST", `/operations/${ID}`, "GET, HEAD, OPTIONS"],
    ["TRACE", "/sessions", "GET, HEAD, OPTIONS, POST"],
  ])("%s %s is not allowed, and Allow says what is", async (method, path, allow) => {
    const answer = await raw(rawRequest(method, path, HOST));
    expect(answer.status).toBe(405);
    expect(answer.headers.get("allow")).toBe(allow);
    expect(JSON.parse(answer.body).code).toBe("method_not_allowed");
  });

  test("OPTIONS tells the methods of a path, and 404 where there is none", async () => {
    const response = await app.request("/sessions", { method: "OPTIONS" });
    expect(response.status).toBe(204);
    expect(response.headers.get("allow")).toBe("GET, HEAD, OPTIONS, POST");
    await refused(await app.request("/nowhere", { method: "OPTIONS" }), 404, "not_found");
  });

  test("HEAD is GET without its body", async () => {
    const get = await app.request("/sessions");
    const head = await app.request("/sessions", { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(head.headers.get("content-length")).toBe(String((await get.text()).length));
    expect(head.headers.get("content-type")).toBe(get.headers.get("content-type"));
    expect(await head.text()).toBe("");
    expect((await app.request("/nowhere", { method: "HEAD" })).status).toBe(404);
  });

  test.each([
    "/sessions/%zz",
    "/sessions/%ff",
    "/sessions/%",
    "/sessions?cursor=%zz",
    "/sessions?%ff=1",
  ])("%s has a bad percent-encoding", async (target) => {
    const answer = await raw(rawRequest("GET", target, HOST));
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([400, "invalid_request"]);
  });

  test.each([
    "/sessions/x",
    `/sessions/${ID.toUpperCase()}x`,
    "/sessions/01970000-0000-4000-8000-000000000001",
    "/sessions/01970000-0000-7000-8000-00000000000A",
    "/operations/1",
    `/sessions/${ID}/inputs/%20`,
    `/sessions/${ID}/history/-1`,
    `/sessions/${ID}/history/1.5`,
    `/sessions/${ID}/history/0x1`,
    `/sessions/${ID}/history/99999999999999999999`,
  ])("%s holds an id that is not valid", async (path) => {
    const problem = await refused(await app.request(path), 400, "invalid_request");
    expect(problem.fields?.[0]?.pointer).toMatch(/^\{(id|operationId|input_id|row_id)\}$/);
  });
});

describe("queries", () => {
  test("unknown parameters are refused at every kind of route", async () => {
    for (const [method, path] of [
      ["GET", "/health?x=1"],
      ["GET", "/server?x"],
      ["GET", "/sessions?limt=5"],
      ["GET", `/sessions/${ID}/history?limit=5&x=1`],
      ["DELETE", `/sessions/${ID}?recursive=true&x=1`],
      ["POST", `/sessions/${ID}/interrupt?x=1`],
    ] as const) {
      const problem = await refused(await app.request(path, { method }), 400, "invalid_request");
      expect(problem.fields?.[0]?.pointer).toMatch(/^\?(x|limt)$/);
    }
  });

  test.each(["0", "201", "-1", "1.5", "1e1", "0x10", "", "+5", "٣", " 5"])(
    "limit=%s is refused",
    async (limit) => {
      const path = `/sessions?limit=${encodeURIComponent(limit)}`;
      const problem = await refused(await app.request(path), 400, "invalid_request");
      expect(problem.fields?.map(({ pointer }) => pointer)).toEqual(["?limit"]);
    },
  );

  test("a limit at both of its ends, and none, reach the floor below", async () => {
    calls = [];
    await app.request("/sessions?limit=1");
    await app.request("/sessions?limit=200&cursor=abc");
    await app.request("/sessions");
    expect(calls).toEqual(["list null 1", "list abc 200", "list null 50"]);
  });

  test("history goes backward unless it pages on from 'after' or says so", async () => {
    calls = [];
    for (const query of ["", "?after=3", "?before=9", "?after=3&direction=backward"]) {
      await app.request(`/sessions/${ID}/history${query}`);
    }
    expect(calls.map((call) => JSON.parse(call.slice("history ".length)))).toEqual([
      { before: null, after: null, limit: 50, direction: "backward" },
      { before: null, after: 3, limit: 50, direction: "forward" },
      { before: 9, after: null, limit: 50, direction: "backward" },
      { before: null, after: 3, limit: 50, direction: "backward" },
    ]);
  });

  test("recursive is true, false, or refused", async () => {
    calls = [];
    for (const query of ["?recursive=true", "?recursive=false", ""]) {
      const response = await app.request(`/sessions/${ID}${query}`, { method: "DELETE" });
      expect([response.status, await response.text()]).toEqual([204, ""]);
    }
    expect(calls).toEqual(["remove true", "remove false", "remove false"]);
    for (const value of ["1", "yes", "TRUE", ""]) {
      const response = await app.request(`/sessions/${ID}?recursive=${value}`, {
        method: "DELETE",
      });
      await refused(response, 400, "invalid_request");
    }
  });
});

describe("bodies", () => {
  const good = JSON.stringify({ operationId: ID });

  test.each([
    ["text/plain", good],
    ["application/x-www-form-urlencoded", "operationId=1"],
    ["multipart/form-data; boundary=x", "--x--"],
    ["application/json; charset=latin1", good],
    ["application/json5", good],
    ["application/problem+json", good],
  ])("of type %s are refused", async (type, body) => {
    calls = [];
    await refused(
      await post("/sessions", body, { "content-type": type }),
      415,
      "unsupported_media_type",
    );
    expect(calls).toEqual([]);
  });

  test.each([
    "application/json",
    "Application/JSON",
    'application/json; charset="UTF-8"',
    "application/json;charset=utf-8",
  ])("of type %s are read", async (type) => {
    expect((await post("/sessions", good, { "content-type": type })).status).toBe(201);
  });

  test("of no type, and compressed ones, are refused", async () => {
    const answer = await raw(
      rawRequest("POST", "/sessions", { ...HOST, "content-length": String(good.length) }, good),
    );
    expect(answer.status).toBe(415);
    const gzip = await post("/sessions", Bun.gzipSync(good), { "content-encoding": "gzip" });
    await refused(gzip, 415, "unsupported_media_type");
  });

  test("of a refused type are not waited for", async () => {
    const answer = await raw(
      rawRequest("POST", "/sessions", {
        ...HOST,
        "content-type": "text/plain",
        "content-length": "1000",
      }),
    );
    expect(answer.status).toBe(415);
  });

  test("that are empty, no JSON, no UTF-8 or no object are refused", async () => {
    const bodies: (string | Uint8Array<ArrayBuffer>)[] = [
      "",
      " ",
      "{",
      "{}}",
      "{'a':1}",
      "null",
      "[]",
      "[{}]",
      "1",
      '"text"',
      "NaN",
      "﻿{}",
      new Uint8Array([0x7b, 0xff, 0x7d]),
      new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22]),
      "[".repeat(60_000),
      '{"a":'.repeat(12_000),
    ];
    for (const path of ["/sessions", `/sessions/${ID}/events`, `/sessions/${ID}/commands`]) {
      for (const body of bodies) {
        const problem = await refused(await post(path, body), 400, "invalid_request");
        expect(JSON.stringify(problem).length).toBeLessThan(1000);
      }
    }
  });

  test("with an array where an object belongs are refused, at any depth", async () => {
    calls = [];
    const creation = JSON.stringify({ operationId: ID, settings: [] });
    const problem = await refused(await post("/sessions", creation), 400, "invalid_request");
    expect(problem.fields).toEqual([{ pointer: "/settings", detail: "Must be Object" }]);
    const patch = await app.request(`/sessions/${ID}`, {
      method: "PATCH",
      body: '{"settings":[]}',
      headers: { "content-type": "application/json" },
    });
    await refused(patch, 400, "invalid_request");
    expect(calls).toEqual([]);
  });

  test("that would be right but for a byte that is no UTF-8, or a mark before them, are refused", async () => {
    calls = [];
    const [before, after] = JSON.stringify({ operationId: ID, title: "|" }).split("|");
    for (const byte of ["\xff", "\xc3", "\xed\xa0\x80"]) {
      const body = Buffer.from(`${before}${byte}${after}`, "latin1");
      await refused(await post("/sessions", body), 400, "invalid_request");
    }
    await refused(await post("/sessions", `\ufeff${good}`), 400, "invalid_request");
    expect(calls).toEqual([]);
    expect((await post("/sessions", `${before}é${after}`)).status).toBe(201);
  });

  test("that are missing altogether are refused", async () => {
    const answer = await raw(rawRequest("POST", "/sessions", HOST));
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([400, "invalid_request"]);
  });

  test("name each field at fault by its pointer and never say what was sent", async () => {
    const secret = "s3cr3t-words";
    const problem = await refused(
      await post(
        `/sessions/${ID}/events`,
        JSON.stringify({
          operationId: secret,
          clientId: 5,
          text: { secret },
          images: [{ mimeType: secret, data: 1 }, secret],
        }),
      ),
      400,
      "invalid_request",
    );
    expect(problem.fields?.map(({ pointer }) => pointer).toSorted()).toEqual([
      "/clientId",
      "/images/0/data",
      "/images/1",
      "/operationId",
      "/text",
    ]);
    expect(JSON.stringify(problem)).not.toContain(secret);
  });

  test("with unknown fields are refused, their names escaped as RFC 6901 says", async () => {
    const body = JSON.stringify({ operationId: ID, "a/b~c": 1 });
    const problem = await refused(await post("/sessions", body), 400, "invalid_request");
    expect(problem.fields).toEqual([{ pointer: "/a~1b~0c", detail: "Is not known here" }]);
    const proto = `{"operationId":"${ID}","__proto__":{"model":"x"}}`;
    await refused(await post("/sessions", proto), 400, "invalid_request");
  });

  test("with fields of another variant are refused", async () => {
    for (const body of [
      { operationId: ID, type: "continue", text: "x" },
      { operationId: ID, type: "skill", name: "x", images: [] },
      { operationId: ID, type: "user", name: "x" },
      { operationId: ID, kind: "message", text: "x" },
      { operationId: ID, type: "command", name: "x" },
    ]) {
      await refused(
        await post(`/sessions/${ID}/events`, JSON.stringify(body)),
        400,
        "invalid_request",
      );
    }
  });

  test("with a million faults, or an endless field name, are refused in a few words", async () => {
    const many = `{"operationId":"${ID}","images":[${"1,".repeat(1_000_000)}1]}`;
    const long = JSON.stringify({ operationId: ID, ["k".repeat(1_000_000)]: 1 });
    for (const body of [many, long]) {
      const response = await post(`/sessions/${ID}/events`, body);
      const text = await response.clone().text();
      expect(text.length).toBeLessThan(1000);
      await refused(response, 400, "invalid_request");
    }
  });

  test("are optional where a route takes no input, and then have to be an empty object", async () => {
    calls = [];
    const path = `/sessions/${ID}/interrupt`;
    expect((await app.request(path, { method: "POST" })).status).toBe(200);
    expect((await post(path, "{}")).status).toBe(200);
    expect(calls).toEqual(["interrupt", "interrupt"]);
    await refused(await post(path, '{"x":1}'), 400, "invalid_request");
    await refused(await post(path, "[]"), 400, "invalid_request");
    await refused(
      await post(path, "{}", { "content-type": "text/plain" }),
      415,
      "unsupported_media_type",
    );
  });

  test("that break off are no bug, and the daemon goes on", async () => {
    calls = [];
    const logged = app.logged.length;
    const type = { "content-type": "application/json" };
    for (const framing of [{ "content-length": "50" }, { "transfer-encoding": "chunked" }]) {
      const head = rawRequest("POST", "/sessions", { ...HOST, ...type, ...framing });
      await breakOff(app.listener.port, `${head}8\r\n{"opera`);
    }
    expect((await app.request("/health")).status).toBe(200);
    expect(calls).toEqual([]);
    expect(app.logged.slice(logged)).toEqual([]);
  });
});

describe("body limits", () => {
  /** A creation of exactly so many bytes: white space between tokens counts too. */
  function sized(bytes: number): string {
    const body = JSON.stringify({ operationId: ID });
    return body + " ".repeat(bytes - body.length);
  }

  function chunked(body: string): ReadableStream<Uint8Array> {
    const bytes = new TextEncoder().encode(body);
    let offset = 0;
    return new ReadableStream({
      pull(controller) {
        if (offset >= bytes.length) controller.close();
        else controller.enqueue(bytes.subarray(offset, (offset += 100_000)));
      },
    });
  }

  test("an admission takes 9 MiB and not a byte more, declared or chunked", async () => {
    for (const wrap of [(body: string) => body, chunked]) {
      expect((await post("/sessions", wrap(sized(ADMISSION_BODY_BYTES_MAX)))).status).toBe(201);
      const large = await post("/sessions", wrap(sized(ADMISSION_BODY_BYTES_MAX + 1)));
      await refused(large, 413, "payload_too_large");
    }
  });

  test("everything else takes 64 KiB", async () => {
    const shutdown = JSON.stringify({ instance_id: TEST_INSTANCE });
    const fitting = shutdown + " ".repeat(BODY_BYTES_MAX - shutdown.length);
    for (const wrap of [(body: string) => body, chunked]) {
      expect((await post("/server/shutdown", wrap(fitting))).status).toBe(202);
      await refused(await post("/server/shutdown", wrap(`${fitting} `)), 413, "payload_too_large");
    }
  });

  test("both doors and creation have the large limit, and the connection stays usable after a refusal", async () => {
    for (const [method, path] of [
      ["POST", "/sessions"],
      ["POST", `/sessions/${ID}/events`],
      ["PUT", `/sessions/${ID}/inputs/${OTHER}`],
    ] as const) {
      const type = { "content-type": "application/json" };
      const size = ADMISSION_BODY_BYTES_MAX + 1;
      const answers = await sendRaw(
        app.listener.port,
        rawRequest(
          method,
          path,
          { ...HOST, ...type, "content-length": String(size) },
          " ".repeat(size),
        ) + rawRequest("GET", "/health", HOST),
        2,
      );
      expect(answers.map(({ status }) => status)).toEqual([413, 200]);
    }
  });

  test("what is declared too large is refused before it is sent", async () => {
    const answer = await raw(
      rawRequest("POST", "/sessions", {
        ...HOST,
        "content-type": "application/json",
        "content-length": "10000000000",
      }),
    );
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([413, "payload_too_large"]);
  });
});

describe("answers", () => {
  test("an admission's bytes, status and headers are those of the floor below", async () => {
    const created = await post("/sessions", JSON.stringify({ operationId: ID }));
    expect(created.status).toBe(201);
    expect(await created.text()).toBe(`{"operationId":"${ID}" }`);
    expect(created.headers.get("location")).toBe(`/sessions/${OTHER}`);
    expect(created.headers.get("albedo-replayed")).toBeNull();
    expect(created.headers.get("cache-control")).toBe("no-store");
    const body = JSON.stringify({ kind: "message", text: "x" });
    const full = await app.request(`/sessions/${ID}/inputs/${OTHER}`, {
      method: "PUT",
      body,
      headers: { "content-type": "application/json" },
    });
    expect(full.status).toBe(429);
    expect(await full.text()).toBe('{"code":"queue_full"}');
    expect(full.headers.get("content-type")).toBe("application/problem+json");
    expect(full.headers.get("albedo-replayed")).toBe("true");
  });

  test("a bug is a 500 that says nothing, and the log has where it was", async () => {
    const problem = await refused(await app.request(`/operations/${ID}`), 500, "internal");
    expect(JSON.stringify(problem)).not.toMatch(/secret|receipt|\.ts/);
    const entry = app.logged.find(({ message }) => message === "A request met a bug");
    expect(JSON.stringify(entry)).toContain("app.test.ts");
    expect(JSON.stringify(entry)).not.toContain("the secret of a bug");
  });

  test("If-Match reaches the floor below as it was sent", async () => {
    calls = [];
    await app.request(`/sessions/${ID}`, {
      method: "PATCH",
      body: '{"title":"x"}',
      headers: { "content-type": "application/json", "if-match": '"abc"' },
    });
    expect(calls).toEqual(['patch {"title":"x"} "abc"']);
  });

  test("shutdown stops the named instance only", async () => {
    let stopped = 0;
    await using named = startTestApp({ shutdown: () => void (stopped += 1) });
    const ask = (instance: string): Promise<Response> =>
      named.request("/server/shutdown", {
        method: "POST",
        body: JSON.stringify({ instance_id: instance }),
        headers: { "content-type": "application/json" },
      });
    await refused(await ask(OTHER), 409, "instance_mismatch");
    expect(stopped).toBe(0);
    expect((await ask(TEST_INSTANCE)).status).toBe(202);
    expect(stopped).toBe(1);
  });
});

describe("bodies that do not come", () => {
  const size = ADMISSION_BODY_BYTES_MAX;
  const head = rawRequest("POST", "/sessions", {
    ...HOST,
    "content-type": "application/json",
    "content-length": String(size),
  });
  const small = JSON.stringify({ operationId: ID });
  const large = small + " ".repeat(size - small.length);

  test("hold nobody up while little of them is there", async () => {
    const stuck = Array.from({ length: 5 }, () => sendRaw(app.listener.port, `${head}{`));
    await until("the bodies to be waited for", () => app.clock.waiting >= 5);
    expect((await post("/sessions", large)).status).toBe(201);
    const answer = await raw(
      rawRequest("POST", "/sessions", {
        ...HOST,
        "content-type": "application/json",
        "transfer-encoding": "chunked",
      }) + `${small.length.toString(16)}\r\n${small}\r\n0\r\n\r\n`,
    );
    expect(answer.status).toBe(201);
    await app.clock.advance(BODY_SILENCE_MS_MAX);
    for (const answers of await Promise.all(stuck)) {
      expect(answers.map(({ status }) => status)).toEqual([408]);
    }
    expect(app.clock.waiting).toBe(0);
  });

  test("are given up when nothing more comes, and what they held is free again", async () => {
    // Four of these hold all that may be held; the fifth is not read on.
    const part = head + " ".repeat(2 * BODY_BYTES_MAX);
    const stuck = Array.from({ length: 5 }, () => sendRaw(app.listener.port, part));
    let ended = 0;
    for (const answers of stuck) void answers.then(() => (ended += 1));
    await until("the stuck bodies to be given up", async () => {
      await app.clock.advance(BODY_SILENCE_MS_MAX);
      return ended === stuck.length;
    });
    for (const answers of await Promise.all(stuck)) {
      expect(answers.map(({ status }) => status)).toEqual([408]);
    }
    expect((await post("/sessions", large)).status).toBe(201);
    expect(app.clock.waiting).toBe(0);
  });
});
