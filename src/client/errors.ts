import type { ProblemBody, ProblemField } from "../wire/problem.ts";

/**
 * Owns how a client's call can fail, told apart by class and never by message:
 * - `ApiError`: the daemon answered and refused. What it says is definite.
 * - `TransportError`: no whole answer came. For anything but a read, the outcome is unknown.
 * - `ProtocolError`: an answer came that is not the contract's.
 * - `Uncertain` (operation_handle.ts): an operation whose outcome could not be learned.
 *
 * A call that its caller aborted throws the signal's own reason.
 */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** The HTTP status. */
  readonly status: number;
  /** The stable code of the problem (`wire/problem.ts`), or `http_{status}` where the body was no problem document. */
  readonly code: string;
  readonly detail: string;
  readonly fields: readonly ProblemField[];
  /** The document as it came; `null` where something else than the daemon may have answered. */
  readonly problem: ProblemBody | null;

  constructor(status: number, problem: ProblemBody | null) {
    const detail = problem?.detail ?? problem?.title ?? `The server answered with status ${status}`;
    super(detail);
    this.status = status;
    this.code = problem?.code ?? `http_${status}`;
    this.detail = detail;
    this.fields = problem?.fields ?? [];
    this.problem = problem;
  }
}

/** How an answer failed to arrive. `endpoint`: the daemon could not even be located, so nothing was sent. */
export type TransportFailure = "connection" | "timeout" | "endpoint";

export class TransportError extends Error {
  override readonly name = "TransportError";
  readonly failure: TransportFailure;

  constructor(failure: TransportFailure, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.failure = failure;
  }
}

/** An answer that breaks the contract. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** The stream said itself that it cannot go on (an SSE event named `error`). */
export class StreamFailure extends Error {
  override readonly name = "StreamFailure";
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Whether the status speaks of a passing condition, so that the same request may succeed later. */
export function isTransientStatus(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}
