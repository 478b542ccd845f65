import { AssertionError } from "../base/assert.ts";
import type { ActiveOutputPage } from "../wire/event.ts";
import type { HistoryPage, HistoryRow } from "../wire/history.ts";
import type { Cancellation, Input, Interruption } from "../wire/input.ts";
import type { Receipt } from "../wire/operation.ts";
import type { CommandResult } from "../wire/server.ts";
import type { SessionPage, SessionResource } from "../wire/session.ts";
import type { CommandBody, Creation, SessionPatch, Submission } from "../wire/submission.ts";
import type { StreamPosition, Subscription } from "./subscription.ts";

export type { Frame, StreamPosition, Subscription } from "./subscription.ts";

/** An admission's answer, original or replayed, to the byte. */
export interface Reply {
  readonly status: number;
  readonly body: string;
  readonly contentType: string;
  readonly location: string | null;
  readonly replayed: boolean;
}

export interface HistoryQuery {
  readonly before: number | null;
  readonly after: number | null;
  readonly limit: number;
  readonly direction: "forward" | "backward";
}

/**
 * Owns which sessions are loaded, and is everything the HTTP floor calls. Whatever is not there is thrown as a
 * `Problem`.
 */
export class Sessions {
  /** @throws {Problem} daemon_stopping, invalid_request, operation_conflict, operation_expired, operation_future */
  create(_creation: Creation): Promise<Reply> {
    throw new AssertionError("In the making");
  }

  /**
   * @throws {Problem} daemon_stopping, invalid_request, payload_too_large, operation_conflict, operation_expired,
   *   operation_future, storage_unavailable
   */
  submit(_submission: Submission): Promise<Reply> {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, input_not_found */
  input(_sessionId: string, _inputId: string): Input {
    throw new AssertionError("In the making");
  }

  /**
   * @param id an input id, or a `submissionId` that speaks for every input it owns
   * @throws {Problem} session_not_found, input_not_found, storage_unavailable
   */
  cancel(_sessionId: string, _id: string): Promise<Cancellation> {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, storage_unavailable */
  interrupt(_sessionId: string): Promise<Interruption> {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, session_has_children, storage_unavailable */
  remove(_sessionId: string, _options: { readonly recursive: boolean }): Promise<void> {
    throw new AssertionError("In the making");
  }

  /**
   * @param ifMatch the request's `If-Match`, or `null` without one
   * @throws {Problem} session_not_found, precondition_failed, model_unknown, storage_unavailable
   */
  patch(
    _sessionId: string,
    _patch: SessionPatch,
    _ifMatch: string | null,
  ): Promise<{ readonly resource: SessionResource; readonly etag: string }> {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, session_busy, command_unknown, command_refused, model_unknown */
  command(_sessionId: string, _body: CommandBody): Promise<CommandResult> {
    throw new AssertionError("In the making");
  }

  /**
   * The session resource; loads the session.
   *
   * @param tail how many history rows to show; `0` shows none
   * @throws {Problem} session_not_found
   */
  resource(
    _sessionId: string,
    _tail: number,
  ): { readonly resource: SessionResource; readonly etag: string } {
    throw new AssertionError("In the making");
  }

  /**
   * A page of summaries, newest activity first; never loads a session.
   *
   * @param query.cursor `next` of the page before, or `null`
   * @throws {Problem} invalid_request for a cursor that was not given out
   */
  list(_query: { readonly cursor: string | null; readonly limit: number }): SessionPage {
    throw new AssertionError("In the making");
  }

  /** Reads the store alone, never loads. @throws {Problem} session_not_found */
  historyPage(_sessionId: string, _query: HistoryQuery): HistoryPage {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, history_row_not_found */
  historyRow(_sessionId: string, _rowId: number): HistoryRow {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} session_not_found, image_not_found */
  image(
    _sessionId: string,
    _imageId: string,
  ): { readonly mimeType: string; readonly bytes: Uint8Array } {
    throw new AssertionError("In the making");
  }

  /** @throws {Problem} operation_unknown, operation_expired, operation_future */
  receipt(_operationId: string): Receipt {
    throw new AssertionError("In the making");
  }

  /**
   * A watch on a session's stream; loads the session.
   *
   * @throws {Problem} session_not_found, daemon_stopping
   */
  subscribe(_sessionId: string, _position: StreamPosition | null): Subscription {
    throw new AssertionError("In the making");
  }

  /**
   * One page of spilled output.
   *
   * @throws {Problem} session_not_found, active_output_not_found, active_output_expired,
   *   active_output_unavailable, invalid_request
   */
  activeOutput(
    _sessionId: string,
    _contentId: string,
    _query: { readonly snapshot: string; readonly next: string | null },
  ): Promise<ActiveOutputPage> {
    throw new AssertionError("In the making");
  }

  /** Ends what a daemon that died left open, then opens the sessions that have waiting input. */
  recover(): Promise<void> {
    throw new AssertionError("In the making");
  }

  /** Unloads what is idle, removes expired receipts and expired output. */
  sweep(): Promise<void> {
    throw new AssertionError("In the making");
  }

  /** Whether admissions are refused because the daemon stops. */
  get stopping(): boolean {
    throw new AssertionError("In the making");
  }

  /** Refuses admissions, stops turns and closes sessions, within `deadlineMs`. */
  stop(_deadlineMs: number): Promise<void> {
    throw new AssertionError("In the making");
  }
}
