import { Elysia } from "elysia";
import type { ServerInfo } from "../wire/server.ts";
import { HealthSchema, ServerSchema, ShutdownSchema } from "../wire/server.ts";
import { Problem } from "../wire/problem.ts";
import { NoQuerySchema } from "../wire/query.ts";
import { empty, json } from "./answers.ts";
import type { Bodies } from "./body.ts";
import { bodyRefusals, refusals } from "./refusals.ts";
import { inBody, inQuery } from "./request_schema.ts";

/** Owns the routes that speak of the daemon itself. */
export interface ServerDependencies {
  readonly info: ServerInfo;
  /** Starts a graceful stop and returns at once. */
  readonly shutdown: () => void;
  readonly bodies: Bodies;
}

export function server({ info, shutdown, bodies }: ServerDependencies) {
  return new Elysia({ name: "server" })
    .use(bodies)
    .get("/health", () => json(200, { status: "ok" }), {
      query: inQuery(NoQuerySchema),
      response: { 200: HealthSchema, ...refusals() },
      detail: { operationId: "getHealth", summary: "Liveness", tags: ["server"], security: [] },
    })
    .get("/server", () => json(200, info), {
      query: inQuery(NoQuerySchema),
      response: { 200: ServerSchema, ...refusals() },
      detail: {
        operationId: "getServer",
        summary: "Version, instance, capabilities and the limits in force",
        tags: ["server"],
      },
    })
    .post(
      "/server/shutdown",
      ({ body }) => {
        if (body.instance_id !== info.instance_id) throw new Problem("instance_mismatch");
        shutdown();
        return empty(202);
      },
      {
        parse: "command",
        body: inBody(ShutdownSchema),
        query: inQuery(NoQuerySchema),
        response: bodyRefusals("instance_mismatch"),
        detail: {
          operationId: "shutdownServer",
          summary: "Stop the named instance gracefully",
          tags: ["server"],
          responses: { 202: { description: "The daemon stops." } },
        },
      },
    );
}
