import { SESSIONS_PAGE_MAX } from "../base/limits.ts";
import { isUuidv7 } from "../base/ids.ts";
import { ApiError } from "../client/client.ts";
import type { Client, SessionSummary } from "../client/client.ts";
import { usageError } from "./exit.ts";
import { noMatch, resolveSessionId } from "./id_resolution.ts";
import type { SessionLookup } from "./id_resolution.ts";

/** Owns how the daemon is asked which sessions there are; it loads none of them. */
export async function* allSessions(client: Client): AsyncGenerator<SessionSummary> {
  let cursor: string | null = null;
  do {
    const page = await client.listSessions({
      limit: SESSIONS_PAGE_MAX,
      ...(cursor === null ? {} : { cursor }),
    });
    yield* page.items;
    cursor = page.next;
  } while (cursor !== null);
}

function sessionLookup(client: Client): SessionLookup {
  return {
    async exists(id) {
      try {
        // A page of history never loads the session, unlike the session resource.
        await client.history(id, { limit: 1 });
        return true;
      } catch (error) {
        if (error instanceof ApiError && error.code === "session_not_found") return false;
        throw error;
      }
    },
    list: () => allSessions(client),
  };
}

/**
 * The session a person named on the command line.
 *
 * @throws {CliError} when none or more than one matches
 */
export function findSession(client: Client, text: string): Promise<string> {
  return resolveSessionId(text, sessionLookup(client));
}

/**
 * For a call that needs no look-up of its own: the session was there a moment ago, or its full id was given.
 *
 * @throws {CliError} the same error as for an id that matches nothing
 */
export async function orNoMatch<T>(text: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw error instanceof Error ? noMatchOr(text, error) : error;
  }
}

/** The error itself, or where the session is gone the same one as for an id that matches nothing. */
export function noMatchOr(text: string, error: Error): Error {
  const isGone = error instanceof ApiError && error.code === "session_not_found";
  return isGone ? noMatch(text) : error;
}

/** An input or operation id, which is never shortened. @throws {CliError} when it is something else */
export function fullId(text: string, what: string): string {
  if (isUuidv7(text)) return text;
  throw usageError(`The ${what} must be a full lowercase UUIDv7: current value is '${text}'`);
}
