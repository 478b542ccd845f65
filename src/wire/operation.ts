import * as v from "valibot";
import { UuidSchema } from "./ids.ts";
import { ProblemSchema } from "./problem.ts";

/**
 * Owns admission answers and receipts (contract.md, Admission and receipts). What operations.md names is
 * camelCase here.
 */

/** Milliseconds since the Unix epoch. */
export const Timestamp = v.pipe(v.number(), v.integer());

/** The body of 201 on `POST /sessions` and of 202 on a submission. */
export const AdmissionSchema = v.object({
  operationId: UuidSchema,
  sessionId: UuidSchema,
  status: v.literal("accepted"),
  acceptedAt: Timestamp,
});
export type Admission = v.InferOutput<typeof AdmissionSchema>;

export const OperationKindSchema = v.picklist([
  "session_create",
  "message",
  "continue",
  "skill",
  "command",
]);
export type OperationKind = v.InferOutput<typeof OperationKindSchema>;

export const DeliveryStatusSchema = v.picklist(["pending", "committed", "cancelled"]);
export type DeliveryStatus = v.InferOutput<typeof DeliveryStatusSchema>;

/** The body of `GET /operations/{operationId}` (operations.md, Query and retention). */
export const ReceiptSchema = v.object({
  operationId: UuidSchema,
  fingerprint: v.string(),
  kind: OperationKindSchema,
  /** The session: the one addressed, or the one created. A rejected creation has none. */
  target: v.nullable(v.string()),
  createdAt: Timestamp,
  admission: v.picklist(["accepted", "rejected"]),
  httpStatus: v.pipe(v.number(), v.integer()),
  /** The original admission body of an accepted operation. */
  result: v.optional(AdmissionSchema),
  /** The original problem of a rejected operation. */
  error: v.optional(ProblemSchema),
  deliveryStatus: v.optional(DeliveryStatusSchema),
  blockingReason: v.optional(v.string()),
  settledAt: v.optional(Timestamp),
  expiresAt: v.optional(Timestamp),
});
export type Receipt = v.InferOutput<typeof ReceiptSchema>;

/** The response header that marks a stored answer given again. */
export const REPLAYED_HEADER = "albedo-replayed";
