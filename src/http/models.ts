import { Elysia } from "elysia";
import { NoQuerySchema, SkillsQuerySchema } from "../wire/query.ts";
import {
  type ModelInfo,
  ModelListSchema,
  type SkillInfo,
  SkillListSchema,
} from "../wire/server.ts";
import { json } from "./answers.ts";
import { refusals } from "./refusals.ts";
import { inQuery } from "./request_schema.ts";

/** Owns the lists of what can be chosen; there is never a secret in them. */
export interface ModelsDependencies {
  readonly models: { list(): readonly ModelInfo[] | Promise<readonly ModelInfo[]> };
  readonly skills: {
    list(workspace: string | null): readonly SkillInfo[] | Promise<readonly SkillInfo[]>;
  };
}

export function models({ models: known, skills }: ModelsDependencies) {
  return new Elysia({ name: "models" })
    .get("/models", async () => json(200, { items: await known.list() }), {
      query: inQuery(NoQuerySchema),
      response: { 200: ModelListSchema, ...refusals() },
      detail: {
        operationId: "listModels",
        summary: "The models a session can use",
        tags: ["models"],
      },
    })
    .get(
      "/skills",
      async ({ query }) => json(200, { items: await skills.list(query.workspace ?? null) }),
      {
        query: inQuery(SkillsQuerySchema),
        response: { 200: SkillListSchema, ...refusals() },
        detail: {
          operationId: "listSkills",
          summary: "The skills of the home, and of a workspace where one is named",
          tags: ["models"],
        },
      },
    );
}
