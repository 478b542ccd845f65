import * as v from "valibot";
import {
  HISTORY_ROWS_DEFAULT,
  HISTORY_ROWS_MAX,
  SESSIONS_PAGE_DEFAULT,
  SESSIONS_PAGE_MAX,
} from "../base/limits.ts";
import { UuidSchema } from "./ids.ts";

/**
 * Owns what stands in a path and behind the `?` (contract.md, One admission, two doors). Everything arrives as
 * text; a number is plain decimal digits, so that `1e3`, `0x10` and blanks are refused instead of read.
 */

/** Refuses every query parameter. */
export const NoQuerySchema = v.strictObject({});

/** A route that takes no input accepts no body, or an empty object. */
export const NoBodySchema = v.optional(v.strictObject({}));

const OPAQUE_CHARS_MAX = 1024;

function wholeNumber(max: number) {
  return v.pipe(
    v.string(),
    v.regex(/^(?:0|[1-9]\d{0,15})$/, "Must be a whole number in decimal digits"),
    v.transform(Number),
    v.number(),
    v.integer(),
    v.maxValue(max),
  );
}

function pageSize(max: number) {
  return v.pipe(wholeNumber(max), v.minValue(1));
}

const RowIdText = wholeNumber(Number.MAX_SAFE_INTEGER);
const Opaque = v.pipe(v.string(), v.minLength(1), v.maxLength(OPAQUE_CHARS_MAX));

export const SessionPathSchema = v.strictObject({ id: UuidSchema });
export const OperationPathSchema = v.strictObject({ operationId: UuidSchema });
export const InputPathSchema = v.strictObject({ id: UuidSchema, input_id: UuidSchema });
export const HistoryRowPathSchema = v.strictObject({ id: UuidSchema, row_id: RowIdText });
export const ImagePathSchema = v.strictObject({ id: UuidSchema, image_id: Opaque });
export const ActiveOutputPathSchema = v.strictObject({ id: UuidSchema, content_id: Opaque });

/** `GET /sessions`. */
export const SessionsQuerySchema = v.strictObject({
  cursor: v.optional(Opaque),
  limit: v.optional(pageSize(SESSIONS_PAGE_MAX), String(SESSIONS_PAGE_DEFAULT)),
});

/** `GET /sessions/{id}`. */
export const SessionQuerySchema = v.strictObject({
  tail: v.optional(wholeNumber(HISTORY_ROWS_MAX), String(HISTORY_ROWS_DEFAULT)),
});

/** `DELETE /sessions/{id}`. */
export const RemovalQuerySchema = v.strictObject({
  recursive: v.optional(
    v.pipe(
      v.picklist(["true", "false"]),
      v.transform((text) => text === "true"),
      v.boolean(),
    ),
    "false",
  ),
});

/** `GET /sessions/{id}/history`. */
export const HistoryQuerySchema = v.strictObject({
  before: v.optional(RowIdText),
  after: v.optional(RowIdText),
  limit: v.optional(pageSize(HISTORY_ROWS_MAX), String(HISTORY_ROWS_DEFAULT)),
  direction: v.optional(v.picklist(["forward", "backward"])),
});
export type HistoryQuery = v.InferOutput<typeof HistoryQuerySchema>;

/** `GET /sessions/{id}/events`: both parts of the position, or neither. */
export const EventsQuerySchema = v.pipe(
  v.strictObject({
    after_generation: v.optional(Opaque),
    after_seq: v.optional(RowIdText),
  }),
  v.forward(
    v.check(
      (query) => (query.after_generation === undefined) === (query.after_seq === undefined),
      "Must be given together with 'after_seq', or not at all",
    ),
    ["after_generation"],
  ),
);
export type EventsQuery = v.InferOutput<typeof EventsQuerySchema>;

/** `GET /sessions/{id}/images/{image_id}`: as it was uploaded, or as the model gets it. */
export const ImageQuerySchema = v.strictObject({
  variant: v.optional(v.picklist(["original", "fitted"]), "original"),
});
export type ImageVariant = v.InferOutput<typeof ImageQuerySchema>["variant"];

/** `GET /sessions/{id}/active-output/{content_id}`. */
export const ActiveOutputQuerySchema = v.strictObject({
  snapshot: Opaque,
  next: v.optional(Opaque),
});

/** `GET /skills`. */
export const SkillsQuerySchema = v.strictObject({
  /** An absolute path; its skills are listed beside those of the home. */
  workspace: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(4096))),
});
