import { afterAll, beforeAll, expect, test } from "bun:test";
import { fakeSessions } from "../support/fake_sessions.ts";
import { type TestApp, startTestApp } from "../support/http_app.ts";

/**
 * Goal: a bug below any route leaves the process as a problem document that says nothing of itself. A hook that was
 * registered too late would leave routes uncovered, so every route of the document is tried.
 * Method: a session floor of which every call throws.
 */
const SECRET = "what-a-person-wrote";
const ID = "01970000-0000-7000-8000-000000000001";

function throwing(): never {
  throw new Error(SECRET);
}

let app: TestApp;

beforeAll(() => {
  const broken = new Proxy({}, { get: () => throwing });
  app = startTestApp({
    sessions: fakeSessions(broken),
    models: { list: throwing },
    skills: { list: throwing },
  });
});
afterAll(() => app[Symbol.asyncDispose]());

/** Bodies that the routes with input let through. */
const BODIES: Readonly<Record<string, unknown>> = {
  createSession: { operationId: ID },
  patchSession: { title: "x" },
  runCommand: { name: "compact" },
  submitEvent: { operationId: ID, text: "x" },
  putInput: { kind: "message", text: "x" },
};

/** Routes that have nothing below them. */
const OWN = new Set(["getHealth", "getServer", "getOpenapi", "shutdownServer"]);

test("a bug below any route is a 500 that says nothing of itself", async () => {
  const document = (await (await app.request("/openapi.json")).json()) as {
    readonly paths: Record<string, Record<string, { readonly operationId: string }>>;
  };
  let tried = 0;
  for (const [template, methods] of Object.entries(document.paths)) {
    for (const [method, { operationId }] of Object.entries(methods)) {
      if (OWN.has(operationId)) continue;
      const path = template
        .replace("{row_id}", "1")
        .replace("{content_id}", "x")
        .replace("{image_id}", "x")
        .replaceAll(/\{[^}]+\}/g, ID);
      const query = operationId === "getActiveOutput" ? "?snapshot=x" : "";
      const body = BODIES[operationId];
      const response = await app.request(path + query, {
        method: method.toUpperCase(),
        ...(body === undefined
          ? {}
          : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      });
      const text = await response.text();
      expect([operationId, response.status]).toEqual([operationId, 500]);
      expect(response.headers.get("content-type")).toBe("application/problem+json");
      expect(JSON.parse(text)).toEqual({
        type: "urn:albedo:problem:internal",
        title: "The daemon failed",
        status: 500,
        detail: "The daemon failed",
        code: "internal",
      });
      tried += 1;
    }
  }
  expect(tried).toBe(19);
  expect(app.logged).toHaveLength(tried);
  expect(JSON.stringify(app.logged)).not.toContain(SECRET);
});
