import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { CancellationSchema, InputSchema, InterruptionSchema } from "../wire/input.ts";
import { AdmissionSchema } from "../wire/operation.ts";
import { InputPathSchema, NoBodySchema, NoQuerySchema, SessionPathSchema } from "../wire/query.ts";
import {
  EventsSubmissionSchema,
  InputsSubmissionSchema,
  fromEvents,
  fromInputs,
} from "../wire/submission.ts";
import { admitted, json } from "./answers.ts";
import type { Bodies } from "./body.ts";
import { bodyRefusals, refusals } from "./refusals.ts";
import { ADMISSION_HEADERS } from "./response_headers.ts";
import { inBody, inPath, inQuery } from "./request_schema.ts";

/** Owns the two doors of one admission, and what becomes of an input (contract.md, One admission, two doors). */
export function inputs(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "inputs" }).use(doors(floor, bodies)).use(outcomes(floor, bodies));
}

const SUBMISSION_REFUSALS = bodyRefusals(
  "operation_future",
  "operation_expired",
  "operation_conflict",
  "session_not_found",
  "skill_unknown",
  "command_unknown",
  "queue_full",
  "storage_unavailable",
  "daemon_stopping",
);

const ADMITTED = {
  description: "The submission is stored; it is not done yet.",
  headers: ADMISSION_HEADERS,
};

function doors(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "doors" })
    .use(bodies)
    .post(
      "/sessions/:id/events",
      async ({ params, body }) => admitted(await floor.submit(fromEvents(params.id, body))),
      {
        parse: "admission",
        params: inPath(SessionPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(EventsSubmissionSchema),
        response: { 202: AdmissionSchema, ...SUBMISSION_REFUSALS },
        detail: {
          operationId: "submitEvent",
          summary: "Admit a submission under the operationId of its body",
          tags: ["inputs"],
          responses: { 202: ADMITTED },
        },
      },
    )
    .put(
      "/sessions/:id/inputs/:input_id",
      async ({ params, body }) =>
        admitted(await floor.submit(fromInputs(params.id, params.input_id, body))),
      {
        parse: "admission",
        params: inPath(InputPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(InputsSubmissionSchema),
        response: { 202: AdmissionSchema, ...SUBMISSION_REFUSALS },
        detail: {
          operationId: "putInput",
          summary: "Admit a submission under the id of its path",
          tags: ["inputs"],
          responses: { 202: ADMITTED },
        },
      },
    );
}

function outcomes(floor: Sessions, bodies: Bodies) {
  return new Elysia({ name: "outcomes" })
    .use(bodies)
    .get(
      "/sessions/:id/inputs/:input_id",
      ({ params }) => json(200, floor.input(params.id, params.input_id)),
      {
        params: inPath(InputPathSchema),
        query: inQuery(NoQuerySchema),
        response: { 200: InputSchema, ...refusals("session_not_found", "input_not_found") },
        detail: {
          operationId: "getInput",
          summary: "The durable input: state, turn membership and outcome",
          tags: ["inputs"],
        },
      },
    )
    .post(
      "/sessions/:id/inputs/:input_id/cancel",
      async ({ params }) => json(200, await floor.cancel(params.id, params.input_id)),
      {
        parse: "nothing",
        params: inPath(InputPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(NoBodySchema),
        response: {
          200: CancellationSchema,
          ...bodyRefusals("session_not_found", "input_not_found", "storage_unavailable"),
        },
        detail: {
          operationId: "cancelInput",
          summary: "Cancel one input, or every input that a submissionId owns",
          tags: ["inputs"],
        },
      },
    )
    .post(
      "/sessions/:id/interrupt",
      async ({ params }) => json(200, await floor.interrupt(params.id)),
      {
        parse: "nothing",
        params: inPath(SessionPathSchema),
        query: inQuery(NoQuerySchema),
        body: inBody(NoBodySchema),
        response: {
          200: InterruptionSchema,
          ...bodyRefusals("session_not_found", "storage_unavailable"),
        },
        detail: {
          operationId: "interruptSession",
          summary: "Stop the active turn and cancel every waiting input",
          tags: ["inputs"],
        },
      },
    );
}
