import type { Input } from "../wire/input.ts";
import type { DeliveryStatus, OperationKind, Receipt } from "../wire/operation.ts";
import type { ProblemCode } from "../wire/problem.ts";
import type { SubmissionKind } from "../wire/submission.ts";
import type { PendingRecord } from "./rows.ts";

/** An answer to an admission, as it goes out. */
export interface Reply {
  readonly status: number;
  /** The exact body. */
  readonly body: string;
  readonly contentType: "application/json" | "application/problem+json";
  /** Of an accepted creation. */
  readonly location: string | null;
  readonly replayed: boolean;
}

/** A rejection that is recorded and replays. */
export interface Rejection {
  readonly code: ProblemCode;
  readonly detail?: string;
}

export interface StoredOperation {
  readonly decision: number;
  readonly operationId: string;
  readonly fingerprint: string;
  readonly kind: OperationKind;
  readonly target: string | null;
  readonly submissionId: string | null;
  readonly createdAt: number;
  readonly admission: "accepted" | "rejected";
  readonly httpStatus: number;
  readonly body: string;
  readonly deliveryStatus: DeliveryStatus | null;
  readonly committedAt: number | null;
  readonly settledAt: number | null;
  readonly expiresAt: number | null;
}

export interface PreparedImage {
  readonly mimeType: string;
  readonly width: number;
  readonly height: number;
  readonly bytes: Uint8Array;
}

/** A submission with everything resolved that its first execution resolves. */
export interface PreparedInput {
  readonly displayText: string;
  /** `null` for a continuation or a command. */
  readonly modelText: string | null;
  readonly images: readonly PreparedImage[];
  /** Of a skill or a command. */
  readonly name?: string;
  readonly arguments?: string;
}

export interface AdmissionRequest {
  readonly submission: {
    readonly operationId: string;
    readonly sessionId: string;
    readonly kind: SubmissionKind;
    /** The explicit owner, `null` where the operation owns itself. */
    readonly submissionId: string | null;
    readonly clientId: string | null;
  };
  readonly fingerprint: string;
  /** `null` only together with a rejection. */
  readonly prepared: PreparedInput | null;
  readonly rejection: Rejection | null;
}

export declare class Operations {
  find(operationId: string): StoredOperation | null;
  /** @throws {Problem} operation_expired, operation_future, operation_unknown */
  receipt(operationId: string): Receipt;
  /** @throws {Problem} operation_expired, operation_future */
  assertAge(operationId: string, now: number): void;
  /** The stored answer, read only. @throws {Problem} operation_conflict */
  replay(operationId: string, fingerprint: string): Reply | null;
  /** @throws {Problem} operation_conflict, operation_expired, operation_future, storage_unavailable */
  admit(request: AdmissionRequest, onAccepted: (pending: PendingRecord) => void): Promise<Reply>;
  /** In acceptance order. */
  pending(sessionId: string): PendingRecord[];
  pendingCount(sessionId: string): number;
  sessionsWithPending(): string[];
  /** An accepted input, also of a deleted session (then without its turn). */
  input(sessionId: string, inputId: string): Input | null;
  /** The accepted inputs of the session that `id` names or owns, in acceptance order. */
  ownedBy(sessionId: string, id: string): string[];
  /** Cancels those that still wait; the value is their ids, in acceptance order. */
  cancelWaiting(
    sessionId: string,
    operationIds: readonly string[],
    effect?: (cancelled: string[]) => void,
  ): Promise<string[]>;
  setBlocking(sessionId: string, reason: string | null): Promise<void>;
  /** Removes one batch of expired receipts; the value is how many. */
  sweep(now: number): Promise<number>;
  floor(): number;
}
