import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { ActiveOutputPageSchema } from "../wire/event.ts";
import { ActiveOutputPathSchema, ActiveOutputQuerySchema } from "../wire/query.ts";
import { json } from "./answers.ts";
import { refusals } from "./refusals.ts";
import { inPath, inQuery } from "./request_schema.ts";

/** Owns the pages of spilled output (contract.md, Active output). */
export function activeOutput(floor: Sessions) {
  return new Elysia({ name: "active_output" }).get(
    "/sessions/:id/active-output/:content_id",
    async ({ params, query }) => {
      const position = { snapshot: query.snapshot, next: query.next ?? null };
      return json(200, await floor.activeOutput(params.id, params.content_id, position));
    },
    {
      params: inPath(ActiveOutputPathSchema),
      query: inQuery(ActiveOutputQuerySchema),
      response: {
        200: ActiveOutputPageSchema,
        ...refusals(
          "session_not_found",
          "active_output_not_found",
          "active_output_expired",
          "active_output_unavailable",
        ),
      },
      detail: {
        operationId: "getActiveOutput",
        summary: "A page of unfinished output, up to the cutoff fixed at capture",
        tags: ["history"],
      },
    },
  );
}
