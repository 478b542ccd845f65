import { Elysia } from "elysia";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Sessions } from "../session/sessions.ts";
import type { ServerInfo } from "../wire/server.ts";
import { activeOutput } from "./active_output.ts";
import { bodies } from "./body.ts";
import { commands } from "./commands.ts";
import { events } from "./events.ts";
import { gate } from "./gate.ts";
import { history } from "./history.ts";
import { images } from "./images.ts";
import { inputs } from "./inputs.ts";
import { createMethodTable } from "./method_not_allowed.ts";
import { type ModelsDependencies, models } from "./models.ts";
import { openapi } from "./openapi.ts";
import { operations } from "./operations.ts";
import { type OriginRules, allowReading } from "./origins.ts";
import { problems, renderProblem, toProblem } from "./problems.ts";
import { server } from "./server.ts";
import { sessions } from "./sessions.ts";

/**
 * Owns how the HTTP floor is put together: problems first, then the gate, then one plugin a resource. A hook covers
 * only what is registered after it, so the order is part of the contract.
 */
export interface AppDependencies {
  readonly sessions: Sessions;
  readonly models: ModelsDependencies["models"];
  readonly skills: ModelsDependencies["skills"];
  readonly info: ServerInfo;
  readonly rules: OriginRules;
  readonly token: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly shutdown: () => void;
}

export interface App {
  /** Answers one request; never rejects. */
  fetch(request: Request): Promise<Response>;
  /** What the server answers when even that failed. */
  failure(error: unknown): Response;
}

export function createApp(dependencies: AppDependencies): App {
  const { rules, log } = dependencies;
  const methodsAt = createMethodTable(() => root.routes);
  const root = compose(dependencies, methodsAt);
  const failure = (error: unknown): Response => renderProblem(toProblem(error, () => []));
  return {
    async fetch(request) {
      const response = await root.fetch(request);
      return request.headers.has("origin") ? allowReading(rules, request, response) : response;
    },
    failure(error) {
      log.error("The server could not answer a request", {
        error: error instanceof Error ? error.name : typeof error,
      });
      return failure(error);
    },
  };
}

function compose(dependencies: AppDependencies, methodsAt: (path: string) => readonly string[]) {
  const { sessions: floor, log, clock, rules, token, info, shutdown } = dependencies;
  const parsers = bodies(clock);
  const app = new Elysia({
    name: "albedo",
    // `/sessions/` is another path than `/sessions`.
    strictPath: true,
    // Schemas are the wire's own; nothing is dropped or filled in on the way.
    normalize: false,
    // Otherwise the path of a request is cut wrongly where the host is shorter than `localhost`.
    handler: { standardHostname: false },
  });
  return app
    .use(problems({ log, methodsAt }))
    .use(gate({ rules, token, methodsAt }))
    .use(server({ info, shutdown, bodies: parsers }))
    .use(operations(floor))
    .use(sessions(floor, parsers))
    .use(inputs(floor, parsers))
    .use(commands(floor, parsers))
    .use(events({ sessions: floor, clock, log }))
    .use(history(floor))
    .use(activeOutput(floor))
    .use(images(floor))
    .use(models(dependencies))
    .use(openapi({ version: info.version, routes: () => app.routes }));
}
