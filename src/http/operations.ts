import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { ReceiptSchema } from "../wire/operation.ts";
import { NoQuerySchema, OperationPathSchema } from "../wire/query.ts";
import { json } from "./answers.ts";
import { refusals } from "./refusals.ts";
import { inPath, inQuery } from "./request_schema.ts";

/** Owns the route of receipts (operations.md, Query and retention). */
export function operations(floor: Sessions) {
  return new Elysia({ name: "operations" }).get(
    "/operations/:operationId",
    ({ params }) => json(200, floor.receipt(params.operationId)),
    {
      params: inPath(OperationPathSchema),
      query: inQuery(NoQuerySchema),
      response: {
        200: ReceiptSchema,
        ...refusals("operation_unknown", "operation_expired", "operation_future"),
      },
      detail: {
        operationId: "getOperation",
        summary: "The receipt of an operation; operation_unknown does not prove it cannot commit",
        tags: ["operations"],
      },
    },
  );
}
