import type { Turn } from "../wire/input.ts";
import type { Creation } from "../wire/submission.ts";
import type { Rejection, Reply } from "./operations.ts";
import type { NewRow, SessionRecord, StoredRow, TurnEnd } from "./rows.ts";

export interface CreationRequest {
  readonly creation: Creation;
  readonly fingerprint: string;
  readonly decision:
    | { readonly sessionId: string; readonly workspace: string; readonly model: string }
    | { readonly rejection: Rejection };
}

/** A change of the session's writable part that belongs to a transaction. */
export interface SessionChange {
  readonly title?: string | null;
  readonly model?: string;
}

export interface FittedImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

export interface ConsumedInput {
  readonly operationId: string;
  /** For each image the version the model gets; `null` where that is the original. Empty for none. */
  readonly fittings: readonly (FittedImage | null)[];
}

export interface ConsumeRequest {
  readonly sessionId: string;
  readonly turnId: string;
  /** Whether the turn begins here; otherwise it must be running. */
  readonly startsTurn: boolean;
  /** The head of the queue, in acceptance order. Those that no longer wait are left out. */
  readonly inputs: readonly ConsumedInput[];
  /** Rows after those of the inputs (what a command had to say). */
  readonly rows?: readonly NewRow[];
  readonly session?: SessionChange;
  /** Ends the turn in the same transaction. */
  readonly end?: TurnEnd;
}

export interface Consumption {
  /** Which of the given inputs were consumed, in acceptance order; empty when none waited any more (then nothing
   *  else was written and `turn` is `null`). */
  readonly consumed: readonly string[];
  /** One row for each consumed input, in the same order, then those of `rows`. */
  readonly rows: readonly StoredRow[];
  readonly turn: Turn | null;
}

export interface CommitRequest {
  readonly sessionId: string;
  /** `null` for rows outside of a turn. */
  readonly turnId: string | null;
  readonly rows: readonly NewRow[];
  readonly session?: SessionChange;
  /** Ends the turn, settles its members; open tool calls get an interrupted result. */
  readonly end?: TurnEnd;
}

export interface Committed {
  readonly rows: readonly StoredRow[];
  /** The turn as it is now; `null` outside of one. */
  readonly turn: Turn | null;
}

/** What an interrupt or a removal did to each session. */
export interface Cancelled {
  readonly sessionId: string;
  /** Cancelled inputs in acceptance order. */
  readonly cancelled: readonly string[];
}

export interface Recovery {
  /** Turns that a dead daemon left behind, now interrupted. */
  readonly interrupted: readonly { readonly sessionId: string; readonly turnId: string }[];
}

export declare class Conversation {
  /** @throws {Problem} operation_conflict, operation_expired, operation_future, storage_unavailable */
  create(request: CreationRequest, effect?: (session: SessionRecord) => void): Promise<Reply>;
  /** @throws {Problem} session_not_found, storage_unavailable */
  consume(request: ConsumeRequest, effect?: (value: Consumption) => void): Promise<Consumption>;
  /** @throws {Problem} session_not_found, storage_unavailable */
  commit(request: CommitRequest, effect?: (value: Committed) => void): Promise<Committed>;
  /** Cancels every waiting input of the sessions. Running turns are ended by their sessions. */
  interrupt(
    sessionIds: readonly string[],
    effect?: (value: Cancelled[]) => void,
  ): Promise<Cancelled[]>;
  /**
   * Cancels what waits, settles what ran, removes the session and, recursively, its descendants.
   *
   * @throws {Problem} session_not_found, session_has_children, storage_unavailable
   */
  remove(
    sessionId: string,
    options: { recursive: boolean },
    effect?: (value: Cancelled[]) => void,
  ): Promise<Cancelled[]>;
  /** At startup, before anything else: synchronous, one transaction. */
  recover(): Recovery;
  /** Rows since the last compaction, that row included, in order. */
  transcript(sessionId: string): StoredRow[];
}
