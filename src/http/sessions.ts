import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { AdmissionSchema } from "../wire/operation.ts";
import {
  NoQuerySchema,
  RemovalQuerySchema,
  SessionPathSchema,
  SessionQuerySchema,
  SessionsQuerySchema,
} from "../wire/query.ts";
import { SessionPageSchema, SessionSchema } from "../wire/session.ts";
import { CreationSchema, SessionPatchSchema, fromCreation } from "../wire/submission.ts";
import { admitted, empty, json } from "./answers.ts";
import type { Bodies } from "./body.ts";
import { bodyRefusals, refusals } from "./refusals.ts";
import { CREATION_HEADERS, RESOURCE_HEADERS } from "./response_headers.ts";
import { inBody, inPath, inQuery } from "./request_schema.ts";

/** Owns the routes of the session resource and its list (contract.md, One admission, two doors). */
export function sessions(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "sessions" })
    .use(sessionList(floor, bodies))
    .use(sessionResource(floor, bodies))
    .use(sessionRemoval(floor));
}

function sessionList(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "session_list" })
    .use(bodies)
    .get(
      "/sessions",
      ({ query }) => json(200, floor.list({ cursor: query.cursor ?? null, limit: query.limit })),
      {
        query: inQuery(SessionsQuerySchema),
        response: { 200: SessionPageSchema, ...refusals() },
        detail: {
          operationId: "listSessions",
          summary: "A page of session summaries, newest activity first; loads none",
          tags: ["sessions"],
        },
      },
    )
    .post("/sessions", async ({ body }) => admitted(await floor.create(fromCreation(body))), {
      parse: "admission",
      body: inBody(CreationSchema),
      query: inQuery(NoQuerySchema),
      response: {
        201: AdmissionSchema,
        ...bodyRefusals(
          "operation_future",
          "operation_expired",
          "operation_conflict",
          "workspace_invalid",
          "model_unknown",
          "parent_invalid",
          "storage_unavailable",
          "daemon_stopping",
        ),
      },
      detail: {
        operationId: "createSession",
        summary: "Create a session; the same operationId gives the same answer again",
        tags: ["sessions"],
        responses: { 201: { description: "The session is made.", headers: CREATION_HEADERS } },
      },
    });
}

function sessionResource(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "session_resource" })
    .use(bodies)
    .get(
      "/sessions/:id",
      ({ params, query }) => {
        const { resource, etag } = floor.resource(params.id, query.tail);
        return json(200, resource, { etag });
      },
      {
        params: inPath(SessionPathSchema),
        query: inQuery(SessionQuerySchema),
        response: { 200: SessionSchema, ...refusals("session_not_found", "daemon_stopping") },
        detail: {
          operationId: "getSession",
          summary: "The session resource with its newest history rows; loads the session",
          tags: ["sessions"],
          responses: { 200: { description: "The session.", headers: RESOURCE_HEADERS } },
        },
      },
    )
    .patch(
      "/sessions/:id",
      async ({ params, body, request }) => {
        const ifMatch = request.headers.get("if-match");
        const { resource, etag } = await floor.patch(params.id, body, ifMatch);
        return json(200, resource, { etag });
      },
      {
        parse: "command",
        params: inPath(SessionPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(SessionPatchSchema),
        response: {
          200: SessionSchema,
          ...bodyRefusals(
            "session_not_found",
            "precondition_failed",
            "model_unknown",
            "storage_unavailable",
            "daemon_stopping",
          ),
        },
        detail: {
          operationId: "patchSession",
          summary: "Change title, model or settings, guarded by If-Match where it is sent",
          tags: ["sessions"],
          parameters: [{ name: "If-Match", in: "header", schema: { type: "string" } }],
          responses: {
            200: { description: "The session as it is now.", headers: RESOURCE_HEADERS },
          },
        },
      },
    );
}

function sessionRemoval(floor: Sessions) {
  return new Elysia({ name: "session_removal" }).delete(
    "/sessions/:id",
    async ({ params, query }) => {
      await floor.remove(params.id, { recursive: query.recursive });
      return empty(204);
    },
    {
      params: inPath(SessionPathSchema),
      query: inQuery(RemovalQuerySchema),
      response: refusals(
        "session_not_found",
        "session_has_children",
        "storage_unavailable",
        "daemon_stopping",
      ),
      detail: {
        operationId: "deleteSession",
        summary: "Cancel what waits and remove the session; receipts stay",
        tags: ["sessions"],
        responses: { 204: { description: "The session is gone." } },
      },
    },
  );
}
