import { Elysia } from "elysia";
import type { HistoryQuery, Sessions } from "../session/sessions.ts";
import { HistoryPageSchema, HistoryRowSchema } from "../wire/history.ts";
import {
  HistoryQuerySchema,
  type HistoryQuery as HistoryQueryText,
  HistoryRowPathSchema,
  NoQuerySchema,
  SessionPathSchema,
} from "../wire/query.ts";
import { json } from "./answers.ts";
import { refusals } from "./refusals.ts";
import { inPath, inQuery } from "./request_schema.ts";

/** Owns the pages of a transcript. They read the store only and never load a session. */
export function history(floor: Sessions) {
  return new Elysia({ name: "history" })
    .get(
      "/sessions/:id/history",
      ({ params, query }) => json(200, floor.historyPage(params.id, toQuery(query))),
      {
        params: inPath(SessionPathSchema),
        query: inQuery(HistoryQuerySchema),
        response: { 200: HistoryPageSchema, ...refusals("session_not_found") },
        detail: {
          operationId: "getHistory",
          summary: "A page of history rows in ascending order, the newest by default",
          tags: ["history"],
        },
      },
    )
    .get(
      "/sessions/:id/history/:row_id",
      ({ params }) => json(200, floor.historyRow(params.id, params.row_id)),
      {
        params: inPath(HistoryRowPathSchema),
        query: inQuery(NoQuerySchema),
        response: {
          200: HistoryRowSchema,
          ...refusals("session_not_found", "history_row_not_found"),
        },
        detail: {
          operationId: "getHistoryRow",
          summary: "One whole history row",
          tags: ["history"],
        },
      },
    );
}

/** Who pages on from `after` and says no direction means forward. */
function toQuery(query: HistoryQueryText): HistoryQuery {
  return {
    before: query.before ?? null,
    after: query.after ?? null,
    limit: query.limit,
    direction: query.direction ?? (query.after === undefined ? "backward" : "forward"),
  };
}
