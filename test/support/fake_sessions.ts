import type { Sessions } from "../../src/session/sessions.ts";

/**
 * A session floor of which only the named calls exist. A test that reaches any other fails with a bug, which the
 * HTTP floor answers as 500.
 */
export function fakeSessions(calls: Partial<{ [K in keyof Sessions]: Sessions[K] }>): Sessions {
  return calls as Sessions;
}
