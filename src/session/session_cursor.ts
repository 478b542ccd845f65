import { isUuidv7 } from "../base/ids.ts";
import type { SessionCursor } from "../store/sessions.ts";
import { Problem } from "../wire/problem.ts";

/** Owns the opaque cursor of the list of sessions: the entry that a page ended with. */
export function writeCursor(last: { readonly activityAt: number; readonly id: string }): string {
  return Buffer.from(`${last.activityAt}.${last.id}`).toString("base64url");
}

/** @throws {Problem} invalid_request */
export function readCursor(cursor: string): SessionCursor {
  const [activityAt = "", sessionId = ""] = Buffer.from(cursor, "base64url").toString().split(".");
  if (!/^\d{1,15}$/.test(activityAt) || !isUuidv7(sessionId)) {
    throw new Problem("invalid_request", "'cursor' is not one that was given out", {
      fields: [{ pointer: "?cursor", detail: "Must be the 'next' of an earlier page" }],
    });
  }
  return { activityAt: Number(activityAt), sessionId };
}
