import * as v from "valibot";
import { HistoryRowSchema } from "./history.ts";
import { UuidSchema } from "./ids.ts";
import { PendingInputSchema, TurnSchema } from "./input.ts";
import { Timestamp } from "./operation.ts";
import { SettingsSchema } from "./submission.ts";

/** Owns the session resource and its list (contract.md, One admission, two doors). */
export const PhaseSchema = v.picklist(["idle", "opening", "running", "blocked", "interrupted"]);
export type Phase = v.InferOutput<typeof PhaseSchema>;

const summary = {
  id: UuidSchema,
  title: v.nullable(v.string()),
  workspace: v.string(),
  model: v.string(),
  parent_id: v.nullable(UuidSchema),
  phase: PhaseSchema,
  running: v.boolean(),
  loaded: v.boolean(),
  /** Loaded, and its last turn is under an hour old. */
  active: v.boolean(),
  created_at: Timestamp,
  activity_at: Timestamp,
};

/** An entry of `GET /sessions`. `pending_count` is how many inputs wait. */
export const SessionSummarySchema = v.object({ ...summary, pending_count: v.number() });
export type SessionSummary = v.InferOutput<typeof SessionSummarySchema>;

/** The body of `GET /sessions/{id}`. */
export const SessionSchema = v.object({
  ...summary,
  settings: SettingsSchema,
  blocking_reason: v.optional(v.string()),
  turn: v.optional(TurnSchema),
  pending_inputs: v.array(PendingInputSchema),
  /** The stream position of a loaded session. */
  generation: v.optional(v.string()),
  cursor: v.optional(v.number()),
  history: v.optional(v.array(HistoryRowSchema)),
  history_watermark: v.number(),
});
export type SessionResource = v.InferOutput<typeof SessionSchema>;

export const SessionPageSchema = v.object({
  items: v.array(SessionSummarySchema),
  /** Opaque; pass it as `cursor` for the next page. `null` at the end. */
  next: v.nullable(v.string()),
});
export type SessionPage = v.InferOutput<typeof SessionPageSchema>;
