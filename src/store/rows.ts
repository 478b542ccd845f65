import type { HistoryRole, ImageReference } from "../wire/history.ts";
import type { TurnError, TurnState } from "../wire/input.ts";
import type { Settings, SubmissionKind } from "../wire/submission.ts";

/**
 * Owns what the store's records look like in memory: rows before and after they have their number, pending inputs,
 * sessions. Types alone; how they are shown is in `render.ts`.
 */

/** A row that a turn wants to append. The commit gives it its id and its time. */
export type NewRow =
  | {
      readonly role: "assistant" | "thinking";
      readonly text: string;
      readonly messageId: string;
      /** The provisional identity it replaces on a live display. */
      readonly liveId: string | null;
      /** What the provider needs back (a signature); opaque, JSON. */
      readonly metadata?: unknown;
    }
  | {
      readonly role: "tool_call";
      readonly toolCallId: string;
      readonly toolName: string;
      /** The parsed JSON arguments, or the raw string where they were not valid JSON. */
      readonly input: unknown;
      readonly messageId: string | null;
      readonly metadata?: unknown;
    }
  | {
      readonly role: "tool_result";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly text: string;
      readonly status: ToolStatus;
    }
  | { readonly role: "note" | "compaction"; readonly text: string; readonly metadata?: unknown };

export type ToolStatus = "ok" | "error" | "interrupted";

/** How a committed input is shown (operations.md, Ownership and atomicity). */
export interface InputDisplay {
  readonly operationId: string;
  /** `user`, `skill` or `command`. */
  readonly source: string;
  readonly displayText: string;
  readonly clientId: string | null;
  readonly images: readonly ImageReference[];
}

/** A transcript row or a continuation marker as it is stored. */
export interface StoredRow {
  readonly sessionId: string;
  readonly rowId: number;
  readonly role: HistoryRole;
  readonly turnId: string | null;
  readonly messageId: string | null;
  readonly liveId: string | null;
  /** What the model reads; `null` where it reads nothing (a continuation, a command, a tool call). */
  readonly text: string | null;
  /** Of a user row only. */
  readonly display: InputDisplay | null;
  /** Of a continuation only; a user row has it in `display`. */
  readonly operationId: string | null;
  readonly clientId: string | null;
  readonly toolCallId: string | null;
  readonly toolName: string | null;
  readonly toolStatus: ToolStatus | null;
  /** A tool call's arguments; `undefined` on any other row. */
  readonly toolInput: unknown;
  /** The provider's own metadata; `undefined` where there is none. */
  readonly metadata: unknown;
  readonly createdAt: number;
}

/** An upload that waits with its input; its bytes are read with `Images.get`. */
export interface PendingImage {
  readonly imageId: string;
  readonly mimeType: string;
  readonly width: number;
  readonly height: number;
  readonly byteCount: number;
}

/** An accepted input that waits for consumption. */
export interface PendingRecord {
  /** The acceptance number: a lower one is consumed first. */
  readonly decision: number;
  readonly operationId: string;
  readonly sessionId: string;
  readonly kind: SubmissionKind;
  /** Where its row will say it came from: `user`, `skill`, `command` or `continue`. */
  readonly source: string;
  /** The owner: the explicit `submissionId`, else the operation id. */
  readonly submissionId: string;
  readonly clientId: string | null;
  readonly displayText: string;
  readonly modelText: string | null;
  /** Of a skill or a command. */
  readonly name: string | null;
  readonly arguments: string | null;
  readonly images: readonly PendingImage[];
  readonly acceptedAt: number;
}

/** The phases that are durable; the others describe a loaded session. */
export type StoredPhase = "idle" | "running" | "interrupted";

export interface SessionRecord {
  readonly id: string;
  readonly parentId: string | null;
  readonly title: string | null;
  readonly workspace: string;
  readonly model: string;
  readonly settings: Settings;
  readonly phase: StoredPhase;
  readonly blockingReason: string | null;
  /** The newest row id given out, 0 for none: the history watermark. */
  readonly lastRowId: number;
  /** Where the model's transcript starts; `null` for its beginning. */
  readonly compactionRowId: number | null;
  readonly createdAt: number;
  /** When its last turn began or ended; its creation before the first. */
  readonly activityAt: number;
}

/** A session as a list shows it. */
export interface SessionListRecord extends SessionRecord {
  readonly pendingCount: number;
}

/** How a turn ends. */
export interface TurnEnd {
  readonly state: Exclude<TurnState, "running">;
  readonly error?: TurnError;
}
