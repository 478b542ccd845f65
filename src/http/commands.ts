import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { NoQuerySchema, SessionPathSchema } from "../wire/query.ts";
import { CommandResultSchema } from "../wire/server.ts";
import { CommandSchema } from "../wire/submission.ts";
import { json } from "./answers.ts";
import type { Bodies } from "./body.ts";
import { bodyRefusals } from "./refusals.ts";
import { inBody, inPath, inQuery } from "./request_schema.ts";

/** Owns the route of immediate commands; a skill is a submission and is refused here. */
export function commands(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "commands" })
    .use(bodies)
    .post(
      "/sessions/:id/commands",
      async ({ params, body }) => json(200, await floor.command(params.id, body)),
      {
        parse: "command",
        params: inPath(SessionPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(CommandSchema),
        response: {
          200: CommandResultSchema,
          ...bodyRefusals(
            "session_not_found",
            "session_busy",
            "command_unknown",
            "command_refused",
            "model_unknown",
            "storage_unavailable",
            "daemon_stopping",
          ),
        },
        detail: {
          operationId: "runCommand",
          summary: "Run an immediate command: compact, rename or model",
          tags: ["sessions"],
        },
      },
    );
}
