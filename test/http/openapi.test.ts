import { afterAll, beforeAll, expect, test } from "bun:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { type TestApp, startTestApp } from "../support/http_app.ts";

/**
 * Goal: `GET /openapi.json` describes every route of contract.md section 1 as it is.
 * Method: a public validator, the table of routes in the contract, and the wire schemas themselves.
 */
interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly security?: readonly unknown[];
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly schema: Record<string, unknown>;
  }[];
  readonly requestBody?: {
    readonly required: boolean;
    readonly content: Record<string, { readonly schema: Record<string, unknown> }>;
  };
  readonly responses: Record<
    string,
    {
      readonly description: string;
      readonly headers?: Record<string, unknown>;
      readonly content?: Record<string, unknown>;
    }
  >;
}

interface Document {
  readonly openapi: string;
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly schemas: Record<string, Record<string, unknown>> };
  readonly security: unknown;
}

let app: TestApp;
let document: Document;

beforeAll(async () => {
  app = startTestApp();
  const response = await app.request("/openapi.json");
  expect(response.headers.get("content-type")).toBe("application/json");
  document = (await response.json()) as Document;
});
afterAll(() => app[Symbol.asyncDispose]());

function operations(): (readonly [string, Operation])[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const,
    ),
  );
}

test("the document is valid OpenAPI 3.1", async () => {
  expect(document.openapi).toStartWith("3.1");
  expect(
    await new Validator().validate(structuredClone(document) as unknown as Record<string, unknown>),
  ).toEqual({
    valid: true,
  });
});

test("every route of the contract is there, and no other", () => {
  expect(
    operations()
      .map(([name]) => name)
      .toSorted(),
  ).toEqual([
    "DELETE /sessions/{id}",
    "GET /health",
    "GET /models",
    "GET /openapi.json",
    "GET /operations/{operationId}",
    "GET /server",
    "GET /sessions",
    "GET /sessions/{id}",
    "GET /sessions/{id}/active-output/{content_id}",
    "GET /sessions/{id}/events",
    "GET /sessions/{id}/history",
    "GET /sessions/{id}/history/{row_id}",
    "GET /sessions/{id}/images/{image_id}",
    "GET /sessions/{id}/inputs/{input_id}",
    "GET /skills",
    "PATCH /sessions/{id}",
    "POST /server/shutdown",
    "POST /sessions",
    "POST /sessions/{id}/commands",
    "POST /sessions/{id}/events",
    "POST /sessions/{id}/inputs/{input_id}/cancel",
    "POST /sessions/{id}/interrupt",
    "PUT /sessions/{id}/inputs/{input_id}",
  ]);
});

test("every operation has its own id, a summary, and refusals that are problem documents", () => {
  const ids = operations().map(([, { operationId }]) => operationId);
  expect(new Set(ids).size).toBe(ids.length);
  for (const [name, operation] of operations()) {
    expect(operation.summary.length).toBeGreaterThan(0);
    const refusals = Object.entries(operation.responses).filter(
      ([status]) => Number(status) >= 400,
    );
    const statuses = refusals.map(([status]) => status);
    expect(statuses).toEqual(expect.arrayContaining(["400", "403", "500"]));
    expect(statuses.includes("401")).toBe(name !== "GET /health");
    expect(statuses.includes("413")).toBe(operation.requestBody !== undefined);
    expect(statuses.includes("415")).toBe(operation.requestBody !== undefined);
    for (const [, { content }] of refusals) {
      expect(Object.keys(content ?? {})).toEqual(["application/problem+json"]);
    }
    const done = Object.keys(operation.responses).filter((status) => Number(status) < 400);
    expect(done).toHaveLength(1);
  }
});

test("every reference leads somewhere, and every component is led to", () => {
  const text = JSON.stringify(document);
  const references = [...text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)].map(
    ([, name]) => name ?? "",
  );
  expect([...new Set<string>(references)].toSorted()).toEqual(
    Object.keys(document.components.schemas).toSorted(),
  );
  expect(text).not.toContain("$defs");
});

test("health alone is open", () => {
  expect(document.security).toEqual([{ token: [] }]);
  const open = operations().filter(([, { security }]) => security?.length === 0);
  expect(open.map(([name]) => name)).toEqual(["GET /health"]);
});

test("queries are described by what they turn into", () => {
  const history = document.paths["/sessions/{id}/history"]?.get;
  expect(history?.parameters).toContainEqual({
    name: "limit",
    in: "query",
    required: false,
    schema: { type: "integer", minimum: 1, maximum: 200, default: 50 },
  });
  expect(history?.parameters).toContainEqual(
    expect.objectContaining({ name: "id", in: "path", required: true }),
  );
});

test("requests refuse unknown fields in the document too, and answers may gain some", () => {
  const { schemas } = document.components;
  for (const name of ["Creation", "Command", "SessionPatch", "Settings", "Shutdown"]) {
    expect(schemas[name]?.additionalProperties).toBe(false);
  }
  for (const name of ["Session", "Receipt", "Admission", "HistoryRow"]) {
    expect(schemas[name]?.additionalProperties).toBeUndefined();
  }
  const { required } = document.paths["/sessions/{id}/interrupt"]?.post?.requestBody ?? {};
  expect(required).toBe(false);
});

test("admissions tell of their headers", () => {
  const { responses } = document.paths["/sessions"]?.post ?? {};
  expect(Object.keys(responses?.["201"]?.headers ?? {})).toEqual(["Albedo-Replayed", "Location"]);
});
