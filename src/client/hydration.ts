import { CALL_MS_DEFAULT } from "../base/limits.ts";
import { ActiveOutputPageSchema } from "../wire/event.ts";
import type { ActiveSegment, ContentReference, ResetEvent } from "../wire/event.ts";
import { Deadline } from "./deadline.ts";
import { ApiError, ProtocolError } from "./errors.ts";
import { activeOutputPath, get } from "./paths.ts";
import { decode, isSuccess, refusal } from "./transport.ts";
import type { Transport } from "./transport.ts";

/**
 * Owns the completion of a reset: output that was spilled is read whole before anyone sees the reset
 * (sessions.md, Stream failures and recovery). Each reference keeps its original snapshot while its pages are
 * followed.
 */

/** The references of this snapshot are gone: only a new snapshot has live ones. */
export class SnapshotExpired extends Error {
  override readonly name = "SnapshotExpired";
}

/**
 * The reset with the text of each spilled segment in place. What the daemon itself could not keep is marked
 * unavailable; it arrives with the commit.
 *
 * @throws {SnapshotExpired}
 * @throws {ApiError | TransportError | ProtocolError}
 * @throws the signal's reason when it aborted
 */
export async function hydrate(
  transport: Transport,
  sessionId: string,
  reset: ResetEvent,
  signal: AbortSignal,
): Promise<ResetEvent> {
  const segments: ActiveSegment[] = [];
  let incomplete = reset.active_output.incomplete;
  for (const segment of reset.active_output.segments) {
    const { content, ...rest } = segment;
    if (content === undefined) {
      segments.push(segment);
      continue;
    }
    const text = await readContent(transport, sessionId, content, signal);
    segments.push(text === null ? { ...rest, unavailable: true } : { ...rest, text });
    incomplete ||= text === null;
  }
  return { ...reset, active_output: { segments, incomplete } };
}

/** `null` when the daemon says that it could not keep it. */
async function readContent(
  transport: Transport,
  sessionId: string,
  reference: ContentReference,
  signal: AbortSignal,
): Promise<string | null> {
  const pages: string[] = [];
  const encoder = new TextEncoder();
  let bytes = 0;
  let next: string | null = null;
  do {
    const page = await readPage(transport, sessionId, reference, next, signal);
    if (page === null) return null;
    const pageBytes = encoder.encode(page.text).length;
    bytes += pageBytes;
    if (bytes > reference.bytes || (pageBytes === 0 && page.next !== null)) {
      throw new ProtocolError("Spilled output that does not end at its cutoff");
    }
    pages.push(page.text);
    next = page.next;
  } while (next !== null);
  if (bytes !== reference.bytes) {
    throw new ProtocolError(`Spilled output of ${bytes} bytes: expected ${reference.bytes}`);
  }
  return pages.join("");
}

async function readPage(
  transport: Transport,
  sessionId: string,
  reference: ContentReference,
  next: string | null,
  signal: AbortSignal,
): Promise<{ text: string; next: string | null } | null> {
  const { content_id: contentId, snapshot } = reference;
  const request = get(activeOutputPath(sessionId, contentId, { snapshot, next }));
  const deadline = new Deadline(transport.clock, CALL_MS_DEFAULT, signal);
  try {
    const answer = await transport.exchange(request, deadline);
    if (!isSuccess(answer.status)) return refused(refusal(answer));
    const page = decode(ActiveOutputPageSchema, answer);
    if (page.content_id !== contentId || page.snapshot !== snapshot) {
      throw new ProtocolError("A page of another snapshot");
    }
    return page;
  } finally {
    deadline.close();
  }
}

function refused(error: ApiError): null {
  switch (error.code) {
    case "active_output_unavailable":
      return null;
    // A daemon that was restarted knows no reference of its predecessor.
    case "active_output_expired":
    case "active_output_not_found":
      throw new SnapshotExpired("The snapshot's output has expired", { cause: error });
    default:
      throw error;
  }
}
