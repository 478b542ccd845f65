import { RECONNECT_MS_MAX, RECONNECT_MS_MIN } from "../base/limits.ts";
import { sleep } from "../base/clock.ts";
import { AdmissionSchema, ReceiptSchema, REPLAYED_HEADER } from "../wire/operation.ts";
import type { Admission, Receipt } from "../wire/operation.ts";
import { problemBody } from "../wire/problem.ts";
import type { Deadline } from "./deadline.ts";
import type { EncodedOperation } from "./encoding.ts";
import { ApiError, isTransientStatus, ProtocolError } from "./errors.ts";
import { get, operationPath } from "./paths.ts";
import { decode, isSuccess, refusal } from "./transport.ts";
import type { Answer, Transport } from "./transport.ts";

/**
 * Owns what happens between "send this" and knowing what became of it (operations.md, Client recovery
 * boundaries):
 *
 * I1. The operation's bytes are posted at most twice: once, and once more only after the daemon answered that it
 *     has no receipt.
 * I2. After transport loss, an answer that is not the contract's, or a server error, the receipt decides.
 * I3. `410 operation_expired` ends it: nothing more is sent.
 * I4. Nothing is sent after the deadline or the caller's abort.
 *
 * Receipts are only read, so a look-up that fails in passing is repeated as long as the deadline lasts.
 */

/** What is known of an operation in the end. */
export type Delivery =
  | {
      readonly kind: "accepted";
      readonly admission: Admission;
      /** The answer was the stored one, given again, or was read from the receipt. */
      readonly replayed: boolean;
      readonly receipt: Receipt | null;
    }
  | { readonly kind: "refused"; readonly error: ApiError; readonly receipt: Receipt | null }
  | { readonly kind: "uncertain"; readonly reason: UncertainReason; readonly cause: unknown };

/**
 * Why an outcome is not known:
 * - `aborted`, `timeout`: the caller's signal or deadline ended the recovery.
 * - `unknown`: the operation was sent twice without a valid answer, and the daemon has no receipt (yet).
 * - `expired`: the daemon keeps no receipt that old and will not execute the operation any more.
 * - `unconfirmed`: the receipt cannot be read, since the daemon refuses the look-up.
 */
export type UncertainReason = "aborted" | "timeout" | "unknown" | "expired" | "unconfirmed";

export type ReceiptState =
  | { readonly kind: "found"; readonly receipt: Receipt }
  | { readonly kind: "unknown" }
  | { readonly kind: "expired" };

type Attempt =
  | Exclude<Delivery, { kind: "uncertain" }>
  | { readonly kind: "expired"; readonly cause: unknown }
  | { readonly kind: "lost"; readonly cause: unknown };

/** What the handle knows of earlier attempts, and wants to know of this one. */
export interface Sending {
  /** The bytes may have left before, in this program or an earlier one. */
  readonly maybeSent: boolean;
  /** Called before each time the bytes may leave. */
  readonly onSend: () => void;
}

/**
 * Sends the operation and learns its outcome.
 *
 * @throws whatever kept the bytes from ever leaving; it is certain then that nothing has happened
 */
export async function deliver(
  transport: Transport,
  operation: EncodedOperation,
  deadline: Deadline,
  { maybeSent, onSend }: Sending,
): Promise<Delivery> {
  let sent = maybeSent;
  const onLeave = (): void => {
    sent = true;
    onSend();
  };
  let attempt = await post(transport, operation, deadline, onLeave);
  for (let replays = 0; ; replays += 1) {
    if (attempt.kind === "accepted" || attempt.kind === "refused") return attempt;
    if (attempt.kind === "expired") return uncertain("expired", attempt.cause);
    const { cause } = attempt;
    if (!sent) throw cause;
    if (deadline.ended !== null) return uncertain(deadline.ended, cause);
    const state = await lookUp(transport, operation, deadline, cause);
    if (state.kind === "uncertain") return state;
    if (state.kind === "expired") return uncertain("expired", cause);
    if (state.kind === "found") return settle(operation, state.receipt);
    if (replays === 1) return uncertain("unknown", cause);
    attempt = await post(transport, operation, deadline, onLeave);
  }
}

/**
 * Reads the receipt once.
 *
 * @throws {ApiError | TransportError | ProtocolError} when it could not be read
 */
export async function readReceipt(
  transport: Transport,
  operationId: string,
  deadline: Deadline,
): Promise<ReceiptState> {
  const answer = await transport.exchange(get(operationPath(operationId)), deadline);
  if (isSuccess(answer.status)) {
    const receipt = decode(ReceiptSchema, answer);
    const { admission, result } = receipt;
    const isWhole = admission === "rejected" || result?.operationId === operationId;
    if (receipt.operationId !== operationId || !isWhole) {
      throw new ProtocolError("The receipt is not this operation's");
    }
    return { kind: "found", receipt };
  }
  const error = refusal(answer);
  // An id that is ahead of the daemon's clock has no receipt, or the receipt would have been the answer.
  if (error.code === "operation_unknown" || error.code === "operation_future") {
    return { kind: "unknown" };
  }
  if (error.code === "operation_expired") return { kind: "expired" };
  throw error;
}

/** The outcome that a receipt records. */
export function settle(
  operation: EncodedOperation,
  receipt: Receipt,
): Exclude<Delivery, { kind: "uncertain" }> {
  if (!speaksOf(receipt, operation)) {
    const detail = `The operation '${operation.operationId}' was used for another action`;
    const error = new ApiError(409, problemBody("operation_conflict", detail));
    return { kind: "refused", error, receipt };
  }
  if (receipt.admission === "accepted" && receipt.result !== undefined) {
    return { kind: "accepted", admission: receipt.result, replayed: true, receipt };
  }
  const error = new ApiError(receipt.httpStatus, receipt.error ?? null);
  return { kind: "refused", error, receipt };
}

function speaksOf(receipt: Receipt, operation: EncodedOperation): boolean {
  if (receipt.kind !== operation.kind) return false;
  return operation.sessionId === null || receipt.target === operation.sessionId;
}

async function post(
  transport: Transport,
  operation: EncodedOperation,
  deadline: Deadline,
  onSend: () => void,
): Promise<Attempt> {
  // Half of what is left: an answer that never comes must leave time to ask for the receipt.
  const part = deadline.part(deadline.remainingMs / 2);
  const { method, path, body } = operation;
  try {
    return judge(operation, await transport.exchange({ method, path, body, onSend }, part));
  } catch (error) {
    return { kind: "lost", cause: error };
  } finally {
    part.close();
  }
}

/** What one answer to the operation says. Only the daemon's own words are taken for a decision. */
function judge(operation: EncodedOperation, answer: Answer): Attempt {
  if (isSuccess(answer.status)) {
    const admission = decode(AdmissionSchema, answer);
    const { operationId, sessionId } = operation;
    if (admission.operationId !== operationId) {
      throw new ProtocolError("The acknowledgement is another operation's");
    }
    if (sessionId !== null && admission.sessionId !== sessionId) {
      throw new ProtocolError("The acknowledgement is another session's");
    }
    const replayed = answer.headers.get(REPLAYED_HEADER) === "true";
    return { kind: "accepted", admission, replayed, receipt: null };
  }
  const error = refusal(answer);
  if (error.problem === null || isServerFault(error)) return { kind: "lost", cause: error };
  if (error.code === "operation_expired") return { kind: "expired", cause: error };
  return { kind: "refused", error, receipt: null };
}

/** 429 is a decision here (`queue_full`), not a passing condition. */
function isServerFault(error: ApiError): boolean {
  return error.status >= 500 || error.status === 408;
}

async function lookUp(
  transport: Transport,
  operation: EncodedOperation,
  deadline: Deadline,
  cause: unknown,
): Promise<ReceiptState | Extract<Delivery, { kind: "uncertain" }>> {
  for (let delayMs = RECONNECT_MS_MIN; ; delayMs = Math.min(2 * delayMs, RECONNECT_MS_MAX)) {
    const part = deadline.part(deadline.remainingMs / 2);
    try {
      return await readReceipt(transport, operation.operationId, part);
    } catch (error) {
      if (deadline.ended !== null) return uncertain(deadline.ended, cause);
      if (error instanceof ApiError && !isTransientStatus(error.status)) {
        return uncertain("unconfirmed", error);
      }
    } finally {
      part.close();
    }
    try {
      await sleep(transport.clock, delayMs, deadline.signal);
    } catch {
      return uncertain(deadline.ended ?? "timeout", cause);
    }
  }
}

function uncertain(
  reason: UncertainReason,
  cause: unknown,
): Extract<Delivery, { kind: "uncertain" }> {
  return { kind: "uncertain", reason, cause };
}
