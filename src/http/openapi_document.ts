import { type ConversionConfig, toJsonSchema, toJsonSchemaDefs } from "@valibot/to-json-schema";
import * as v from "valibot";
import {
  ActiveOutputPageSchema,
  ActiveOutputSchema,
  BatchSchema,
  CurrentProgressSchema,
  KNOWN_EVENT_SCHEMAS,
} from "../wire/event.ts";
import { HistoryPageSchema, HistoryRowSchema } from "../wire/history.ts";
import {
  CancellationSchema,
  InputSchema,
  InterruptionSchema,
  PendingInputSchema,
  TurnSchema,
} from "../wire/input.ts";
import { AdmissionSchema, ReceiptSchema } from "../wire/operation.ts";
import { type ProblemCode, ProblemFieldSchema, ProblemSchema } from "../wire/problem.ts";
import {
  CommandResultSchema,
  HealthSchema,
  ModelListSchema,
  ModelSchema,
  ServerSchema,
  ShutdownSchema,
  SkillListSchema,
  SkillSchema,
} from "../wire/server.ts";
import { SessionPageSchema, SessionSchema, SessionSummarySchema } from "../wire/session.ts";
import {
  CommandSchema,
  CreationSchema,
  EventsSubmissionSchema,
  InputsSubmissionSchema,
  SessionPatchSchema,
  SettingsSchema,
} from "../wire/submission.ts";
import { JSON_TYPE, PROBLEM_TYPE } from "./answers.ts";

/**
 * Owns the OpenAPI document: Elysia's route table and the wire schemas, written down as OpenAPI 3.1.
 *
 * `@elysiajs/openapi` was tried first. It gives every refusal as `application/json` instead of problem documents,
 * leaves the body of a route with an own parser without content, drops `/openapi.json` for its dot, and repeats each
 * schema at each place.
 */

/** What is read of a route; Elysia's own record has more. */
export interface DocumentedRoute {
  readonly method: string;
  readonly path: string;
  readonly hooks: unknown;
}

type Json = Record<string, unknown>;
type Schema = v.GenericSchema;

interface Hooks {
  readonly params?: { readonly schema: Schema };
  readonly query?: { readonly schema: Schema };
  readonly body?: { readonly schema: Schema };
  readonly response?: Readonly<
    Record<string, Schema & { readonly codes?: readonly ProblemCode[] }>
  >;
  readonly detail?: Json & {
    readonly responses?: Readonly<Record<string, Json>>;
    readonly parameters?: readonly Json[];
  };
}

const StreamEventSchema = v.variant("kind", Object.values(KNOWN_EVENT_SCHEMAS));

/** Schemas that have a name of their own in the document. */
const COMPONENTS: Readonly<Record<string, Schema>> = {
  ActiveOutput: ActiveOutputSchema,
  ActiveOutputPage: ActiveOutputPageSchema,
  Admission: AdmissionSchema,
  Batch: v.object({ ...BatchSchema.entries, events: v.array(StreamEventSchema) }),
  Cancellation: CancellationSchema,
  Command: CommandSchema,
  CommandResult: CommandResultSchema,
  Creation: CreationSchema,
  CurrentProgress: CurrentProgressSchema,
  EventsSubmission: EventsSubmissionSchema,
  Health: HealthSchema,
  HistoryPage: HistoryPageSchema,
  HistoryRow: HistoryRowSchema,
  Input: InputSchema,
  InputsSubmission: InputsSubmissionSchema,
  Interruption: InterruptionSchema,
  Model: ModelSchema,
  ModelList: ModelListSchema,
  PendingInput: PendingInputSchema,
  Problem: ProblemSchema,
  ProblemField: ProblemFieldSchema,
  Receipt: ReceiptSchema,
  Server: ServerSchema,
  Session: SessionSchema,
  SessionPage: SessionPageSchema,
  SessionPatch: SessionPatchSchema,
  SessionSummary: SessionSummarySchema,
  Settings: SettingsSchema,
  Shutdown: ShutdownSchema,
  Skill: SkillSchema,
  SkillList: SkillListSchema,
  StreamEvent: StreamEventSchema,
  Turn: TurnSchema,
};

const CONVERSION: ConversionConfig = {
  target: "draft-2020-12",
  // A check that JSON Schema cannot say is left out of the document; the schema itself still holds it.
  errorMode: "ignore",
  overrideRef: ({ referenceId }) => `#/components/schemas/${referenceId}`,
  // The first variant may leave its `type` out, so only one of them is not what `oneOf` takes it for.
  overrideSchema: ({ valibotSchema, jsonSchema }) =>
    valibotSchema === EventsSubmissionSchema && jsonSchema.oneOf !== undefined
      ? { anyOf: jsonSchema.oneOf }
      : undefined,
};

const TAGS = [
  { name: "server", description: "The daemon itself" },
  { name: "sessions", description: "Sessions and their settings" },
  { name: "inputs", description: "Admission, outcome and cancellation of inputs" },
  { name: "stream", description: "What happens in a session, as it happens" },
  { name: "history", description: "Transcripts, unfinished output and uploads" },
  { name: "operations", description: "Receipts of admissions" },
  { name: "models", description: "What can be chosen" },
];

/** The document of every route. */
export function createDocument(routes: readonly DocumentedRoute[], version: string): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:([^/]+)/g, "{$1}");
    (paths[path] ??= {})[route.method.toLowerCase()] = operationOf(route.hooks as Hooks);
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "albedo",
      version,
      summary: "A local daemon for agent sessions",
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/", description: "The daemon that served this document" }],
    tags: TAGS,
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
      schemas: toJsonSchemaDefs(COMPONENTS, CONVERSION),
    },
  };
}

function operationOf(hooks: Hooks): Json {
  const { parameters = [], responses = {}, ...detail } = hooks.detail ?? {};
  const all = [
    ...parametersOf(hooks.params?.schema, "path"),
    ...parametersOf(hooks.query?.schema, "query"),
    ...parameters,
  ];
  return {
    ...detail,
    ...(all.length === 0 ? {} : { parameters: all }),
    ...(hooks.body === undefined ? {} : { requestBody: requestBody(hooks.body.schema) }),
    responses: merge(responsesOf(hooks.response ?? {}, hooks.detail?.security), responses),
  };
}

/** What a route says of a status itself goes before what follows from its schema. */
function merge(
  documented: Readonly<Record<string, Json>>,
  own: Readonly<Record<string, Json>>,
): Json {
  const merged: Record<string, Json> = { ...documented };
  for (const [status, response] of Object.entries(own)) {
    merged[status] = { ...documented[status], ...response };
  }
  return merged;
}

function parametersOf(schema: Schema | undefined, place: "path" | "query"): Json[] {
  if (schema === undefined) return [];
  const { entries } = schema as unknown as { readonly entries: Readonly<Record<string, Schema>> };
  return Object.entries(entries).map(([name, entry]) => ({
    name,
    in: place,
    required: entry.type !== "optional",
    // Text turns into a number on the way in; the document says what it has to be.
    schema: withDefault(entry, convert(entry, { typeMode: "output" })),
  }));
}

/** The default as what it turns into, not as the text it is written in. */
function withDefault(entry: Schema, schema: Json): Json {
  return schema.default === undefined ? schema : { ...schema, default: v.parse(entry, undefined) };
}

function requestBody(schema: Schema): Json {
  return {
    required: schema.type !== "optional",
    content: { [JSON_TYPE]: { schema: convert(schema, { typeMode: "input" }) } },
  };
}

function responsesOf(
  response: NonNullable<Hooks["response"]>,
  security: unknown,
): Record<string, Json> {
  const open = Array.isArray(security) && security.length === 0;
  const documented: Record<string, Json> = {};
  for (const [status, schema] of Object.entries(response)) {
    if (open && status === "401") continue;
    documented[status] =
      schema.codes === undefined
        ? { description: "Done.", content: { [JSON_TYPE]: { schema: convert(schema) } } }
        : refusalOf(schema.codes);
  }
  return documented;
}

function refusalOf(codes: readonly ProblemCode[]): Json {
  return {
    description: `Refused: ${codes.map((code) => `\`${code}\``).join(", ")}.`,
    content: {
      [PROBLEM_TYPE]: {
        schema: {
          allOf: [
            { $ref: "#/components/schemas/Problem" },
            { type: "object", properties: { code: { enum: codes } } },
          ],
        },
      },
    },
  };
}

/** One schema in place; what it shares with the components is a reference. */
function convert(schema: Schema, config: ConversionConfig = {}): Json {
  const {
    $defs: _defs,
    $schema: _draft,
    ...inline
  } = toJsonSchema(schema, { ...CONVERSION, ...config, definitions: COMPONENTS });
  return inline as Json;
}
