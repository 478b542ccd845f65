import * as v from "valibot";
import { UuidSchema } from "./ids.ts";
import { DeliveryStatusSchema, Timestamp } from "./operation.ts";

/**
 * Owns the durable input, the turn it belongs to and the answers of a cancellation (contract.md, Pending inputs,
 * turns and cancellation).
 */
export const InputKindSchema = v.picklist(["message", "continuation", "skill", "command"]);
export type InputKind = v.InferOutput<typeof InputKindSchema>;

export const TurnStateSchema = v.picklist(["running", "completed", "failed", "interrupted"]);
export type TurnState = v.InferOutput<typeof TurnStateSchema>;

export const TurnErrorSchema = v.object({ code: v.string(), message: v.string() });
export type TurnError = v.InferOutput<typeof TurnErrorSchema>;

export const TurnSchema = v.object({
  id: UuidSchema,
  state: TurnStateSchema,
  /** Input ids in the order they joined. */
  members: v.array(UuidSchema),
  started_at: Timestamp,
  ended_at: v.optional(Timestamp),
  error: v.optional(TurnErrorSchema),
});
export type Turn = v.InferOutput<typeof TurnSchema>;

export const InputSchema = v.object({
  id: UuidSchema,
  session_id: UuidSchema,
  kind: InputKindSchema,
  state: DeliveryStatusSchema,
  blocking_reason: v.optional(v.string()),
  accepted_at: Timestamp,
  committed_at: v.optional(Timestamp),
  turn: v.optional(TurnSchema),
});
export type Input = v.InferOutput<typeof InputSchema>;

export const CancelResultSchema = v.picklist([
  "cancelled",
  "interrupt_requested",
  "shared_running",
  "not_pending",
]);
export type CancelResult = v.InferOutput<typeof CancelResultSchema>;

/** The body of `POST …/inputs/{input_id}/cancel`. With a `submissionId` the newest input it owns is shown. */
export const CancellationSchema = v.object({ result: CancelResultSchema, input: InputSchema });
export type Cancellation = v.InferOutput<typeof CancellationSchema>;

/** The body of `POST …/interrupt`. */
export const InterruptionSchema = v.object({
  /** The turn that was told to stop, if one ran. That it was told does not claim that it has stopped. */
  turn_id: v.nullable(UuidSchema),
  /** Waiting inputs that were cancelled, in acceptance order. */
  cancelled: v.array(UuidSchema),
});
export type Interruption = v.InferOutput<typeof InterruptionSchema>;

/** A waiting input as the session resource and a reset show it. */
export const PendingInputSchema = v.object({
  id: UuidSchema,
  kind: InputKindSchema,
  display_text: v.optional(v.string()),
  client_id: v.optional(v.string()),
  submission_id: UuidSchema,
  image_count: v.number(),
  accepted_at: Timestamp,
  blocking_reason: v.optional(v.string()),
  truncated: v.optional(v.boolean()),
});
export type PendingInput = v.InferOutput<typeof PendingInputSchema>;
