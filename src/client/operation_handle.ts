import * as v from "valibot";
import { CALL_MS_DEFAULT } from "../base/limits.ts";
import type { Admission, OperationKind, Receipt } from "../wire/operation.ts";
import { Deadline } from "./deadline.ts";
import type { CallOptions } from "./deadline.ts";
import { HandleRecordSchema, isCoherent } from "./encoding.ts";
import type { EncodedOperation, HandleRecord } from "./encoding.ts";
import type { ApiError } from "./errors.ts";
import { deliver, readReceipt, settle } from "./recovery.ts";
import type { Delivery, UncertainReason } from "./recovery.ts";
import { explain } from "./transport.ts";
import type { Transport } from "./transport.ts";

/**
 * Owns one intended action from its preparation until its outcome is known: the id, the encoded bytes, and what
 * has been learned (operations.md, Client recovery boundaries). Two actions never share a handle, also when their
 * content is the same.
 */

/** The daemon has stored the action safely; the assistant may not even have begun. */
export interface Accepted {
  readonly operationId: string;
  /** The session created, or submitted to. */
  readonly sessionId: string;
  /** Milliseconds since the epoch. */
  readonly acceptedAt: number;
  /** This is the original decision given again, not a new one. */
  readonly replayed: boolean;
}

/** What `resolve` found out. */
export type Resolution =
  | { readonly status: "accepted"; readonly accepted: Accepted; readonly receipt: Receipt }
  | { readonly status: "rejected"; readonly error: ApiError; readonly receipt: Receipt }
  /** No receipt. An earlier request that is still under way could nevertheless be accepted. */
  | { readonly status: "unknown" }
  /** Too old: never to be executed from now on, and whether it once was is no longer known. */
  | { readonly status: "expired" };

/**
 * The outcome of an operation could not be learned: it is neither done nor failed. The handle keeps what is needed
 * to find out later.
 */
export class Uncertain extends Error {
  override readonly name = "Uncertain";
  readonly handle: OperationHandle;
  readonly reason: UncertainReason;

  constructor(handle: OperationHandle, reason: UncertainReason, cause: unknown) {
    const last = cause instanceof Error && cause.message !== "" ? ` (${cause.message})` : "";
    super(
      `The outcome of operation '${handle.operationId}' is not known: ${REASONS[reason]}${last}`,
      { cause },
    );
    this.handle = handle;
    this.reason = reason;
  }
}

const REASONS: Record<UncertainReason, string> = {
  aborted: "the call was aborted",
  timeout: "the time was over",
  unknown: "no valid answer came and the daemon has no receipt",
  expired: "the daemon keeps no receipt that old",
  unconfirmed: "the daemon refused to show the receipt",
};

export class OperationHandle {
  readonly operationId: string;
  readonly kind: OperationKind;
  /** The session it is sent to; `null` for a creation. */
  readonly sessionId: string | null;
  readonly #transport: Transport;
  readonly #operation: EncodedOperation;
  #maybeSent: boolean;
  #expired: boolean;

  /** Programs get handles from `client.prepare…` and `client.restoreHandle`. */
  constructor(
    transport: Transport,
    operation: EncodedOperation,
    past: { maybeSent: boolean; expired: boolean } = { maybeSent: false, expired: false },
  ) {
    this.operationId = operation.operationId;
    this.kind = operation.kind;
    this.sessionId = operation.sessionId;
    this.#transport = transport;
    this.#operation = operation;
    this.#maybeSent = past.maybeSent;
    this.#expired = past.expired;
  }

  /** Whether the daemon has said that the operation is too old to be decided. */
  get expired(): boolean {
    return this.#expired;
  }

  /** Whether the bytes may have left, so that the action may have happened. */
  get maybeSent(): boolean {
    return this.#maybeSent;
  }

  /** A copy of the body's bytes. */
  get body(): Uint8Array<ArrayBuffer> {
    return this.#operation.body.slice();
  }

  /**
   * Submits the operation and learns its outcome. After a lost or invalid answer or a server error it asks for the
   * receipt, and where there is none it posts the same bytes once more, all within the deadline. To call it again
   * is a person's decision to retry: the same action, never a second one.
   *
   * @param options.timeoutMs for all of it; `CALL_MS_DEFAULT` without one
   * @throws {ApiError} when the daemon refused, now or in the recorded decision
   * @throws {Uncertain} when the outcome could not be learned
   * @throws {TransportError} when the daemon could not be located and nothing was ever sent
   * @throws the signal's reason when it aborted before anything was ever sent
   */
  async send(options: CallOptions = {}): Promise<Accepted> {
    if (this.#expired) throw new Uncertain(this, "expired", undefined);
    const { clock } = this.#transport;
    const deadline = new Deadline(clock, options.timeoutMs ?? CALL_MS_DEFAULT, options.signal);
    try {
      const delivery = await deliver(this.#transport, this.#operation, deadline, {
        maybeSent: this.#maybeSent,
        onSend: () => {
          this.#maybeSent = true;
        },
      });
      return this.#conclude(delivery);
    } finally {
      deadline.close();
    }
  }

  /**
   * Asks for the receipt, once; never submits anything.
   *
   * @throws {ApiError | TransportError | ProtocolError} when the receipt could not be read
   */
  async resolve(options: CallOptions = {}): Promise<Resolution> {
    const { clock } = this.#transport;
    const deadline = new Deadline(clock, options.timeoutMs ?? CALL_MS_DEFAULT, options.signal);
    try {
      const state = await readReceipt(this.#transport, this.operationId, deadline);
      if (state.kind === "unknown") return { status: "unknown" };
      if (state.kind === "expired") {
        this.#expired = true;
        return { status: "expired" };
      }
      const { receipt } = state;
      const outcome = settle(this.#operation, receipt);
      return outcome.kind === "accepted"
        ? { status: "accepted", accepted: accepted(outcome.admission, true), receipt }
        : { status: "rejected", error: outcome.error, receipt };
    } finally {
      deadline.close();
    }
  }

  /** What a program stores to resolve the action after its own restart. Keep it before `send`. */
  toJSON(): HandleRecord {
    const { operationId, kind, sessionId, method, path, body } = this.#operation;
    return {
      version: 1,
      operationId,
      kind,
      sessionId,
      method,
      path,
      body: new TextDecoder().decode(body),
      expired: this.#expired,
    };
  }

  #conclude(delivery: Delivery): Accepted {
    switch (delivery.kind) {
      case "accepted":
        return accepted(delivery.admission, delivery.replayed);
      case "refused":
        throw delivery.error;
      case "uncertain":
        if (delivery.reason === "expired") this.#expired = true;
        throw new Uncertain(this, delivery.reason, delivery.cause);
    }
  }
}

/**
 * A handle from what `toJSON` gave, parsed or as text. The bytes that it sends are the original ones.
 *
 * @throws {TypeError} when it is no such record
 */
export function restoreHandle(transport: Transport, record: unknown): OperationHandle {
  const parsed = v.safeParse(
    HandleRecordSchema,
    typeof record === "string" ? parse(record) : record,
  );
  if (!parsed.success) {
    throw new TypeError(`Cannot restore an operation handle: ${explain(parsed.issues)}`);
  }
  const { version: _version, expired, body, ...rest } = parsed.output;
  const operation: EncodedOperation = { ...rest, body: new TextEncoder().encode(body) };
  if (!isCoherent(operation)) {
    throw new TypeError("Cannot restore an operation handle: its request is not its action's");
  }
  // Whoever kept it may have stopped in the middle of sending it.
  return new OperationHandle(transport, operation, { maybeSent: true, expired });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TypeError("Cannot restore an operation handle: it is not JSON", { cause: error });
  }
}

function accepted(admission: Admission, replayed: boolean): Accepted {
  const { operationId, sessionId, acceptedAt } = admission;
  return { operationId, sessionId, acceptedAt, replayed };
}
