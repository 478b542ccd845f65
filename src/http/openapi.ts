import { Elysia } from "elysia";
import { NoQuerySchema } from "../wire/query.ts";
import { JSON_TYPE, text } from "./answers.ts";
import type { DocumentedRoute } from "./openapi_document.ts";
import { refusals } from "./refusals.ts";
import { inQuery } from "./request_schema.ts";

/**
 * Owns `GET /openapi.json`. The document is made from the route table at the first request: its converter is not
 * loaded before, since a start would pay for what few ask for.
 */
export interface OpenapiDependencies {
  readonly version: string;
  readonly routes: () => readonly DocumentedRoute[];
}

export function openapi({ version, routes }: OpenapiDependencies) {
  let document: Promise<string> | null = null;
  const make = async (): Promise<string> => {
    const { createDocument } = await import("./openapi_document.ts");
    return JSON.stringify(createDocument(routes(), version));
  };
  return new Elysia({ name: "openapi" }).get(
    "/openapi.json",
    async () => text(200, JSON_TYPE, await (document ??= make())),
    {
      query: inQuery(NoQuerySchema),
      response: refusals(),
      detail: {
        operationId: "getOpenapi",
        summary: "This document",
        tags: ["server"],
        responses: {
          200: {
            description: "The OpenAPI 3.1 document of every route.",
            content: { [JSON_TYPE]: { schema: { type: "object" } } },
          },
        },
      },
    },
  );
}
