import * as v from "valibot";
import { Timestamp } from "./operation.ts";

/**
 * Owns what a transcript row looks like outside of the store (contract.md, Pending inputs, turns and
 * cancellation). Row ids are integers that increase within a session.
 */
export const HistoryRoleSchema = v.picklist([
  "user",
  "assistant",
  "thinking",
  "tool_call",
  "tool_result",
  "continuation",
  "compaction",
  "note",
]);
export type HistoryRole = v.InferOutput<typeof HistoryRoleSchema>;

export const RowId = v.pipe(v.number(), v.integer(), v.minValue(0));

/** An upload as history shows it: the original dimensions, never the content. */
export const ImageReferenceSchema = v.object({
  image_id: v.string(),
  mime_type: v.string(),
  width: v.number(),
  height: v.number(),
  bytes: v.number(),
});
export type ImageReference = v.InferOutput<typeof ImageReferenceSchema>;

export const HistoryRowSchema = v.object({
  id: RowId,
  role: HistoryRoleSchema,
  /** What was said; a user row has `display_text` instead. */
  text: v.optional(v.string()),
  display_text: v.optional(v.string()),
  /** Where a user row came from: `user`, `skill` or `command`. */
  source: v.optional(v.string()),
  operation_id: v.optional(v.string()),
  client_id: v.optional(v.string()),
  turn_id: v.nullable(v.string()),
  message_id: v.optional(v.string()),
  /** The provisional identity that this row replaces on a live display. */
  live_id: v.optional(v.string()),
  images: v.optional(v.array(ImageReferenceSchema)),
  tool_call_id: v.optional(v.string()),
  tool_name: v.optional(v.string()),
  /** The arguments of a tool call, as JSON. */
  tool_input: v.optional(v.unknown()),
  /** How a tool call ended. */
  tool_status: v.optional(v.picklist(["ok", "error", "interrupted"])),
  created_at: Timestamp,
  /** The text was cut to keep the page in bounds; the whole row is at `GET …/history/{row_id}`. */
  truncated: v.optional(v.boolean()),
});
export type HistoryRow = v.InferOutput<typeof HistoryRowSchema>;

/** A page of history, always in ascending order. */
export const HistoryPageSchema = v.object({
  items: v.array(HistoryRowSchema),
  /** The row id to continue from: as `before` going backward, as `after` going forward; `null` at the end. */
  next: v.nullable(RowId),
  /** The newest row id of the session when the page was read. */
  watermark: RowId,
});
export type HistoryPage = v.InferOutput<typeof HistoryPageSchema>;
