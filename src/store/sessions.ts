import type { SessionPatch } from "../wire/submission.ts";
import type { SessionListRecord, SessionRecord } from "./rows.ts";

export interface SessionCursor {
  readonly activityAt: number;
  readonly sessionId: string;
}

/** An entity tag over the writable part, quoted. */
export declare function sessionEtag(record: SessionRecord): string;

export declare class SessionTable {
  get(sessionId: string): SessionRecord | null;
  /** Newest activity first, starting after the cursor. */
  list(options: { before: SessionCursor | null; limit: number }): SessionListRecord[];
  /** Direct children, oldest first. */
  children(sessionId: string): string[];
  /** The session and everything below it, parents before children. */
  family(sessionId: string): string[];
  /** `expectedEtag` null means any. @throws {Problem} session_not_found, precondition_failed */
  patch(
    sessionId: string,
    patch: SessionPatch,
    expectedEtag: string | null,
    effect?: (record: SessionRecord) => void,
  ): Promise<SessionRecord>;
  etag(record: SessionRecord): string;
}
