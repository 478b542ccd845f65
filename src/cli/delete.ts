import { ApiError } from "../client/client.ts";
import type { Context } from "./context.ts";
import { CliError, EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { findSession, orNoMatch } from "./lookup.ts";

/** Owns `albedo delete`: removes a session for good, and its children where that is asked for. */
export async function deleteSession(
  context: Context,
  sessionText: string,
  options: { readonly recursive: boolean; readonly json: boolean },
): Promise<ExitCode> {
  const client = await context.connect();
  const sessionId = await findSession(client, sessionText);
  try {
    await orNoMatch(
      sessionText,
      client.deleteSession(sessionId, options.recursive ? { recursive: true } : {}),
    );
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "session_has_children") throw error;
    throw new CliError(`Session '${sessionId}' has children`, {
      hints: ["`--recursive` deletes them too"],
      cause: error,
    });
  }
  const { stdout } = context.output;
  if (options.json) stdout.json({ session_id: sessionId, deleted: true });
  else stdout.line(`Deleted ${sessionId}`);
  return EXIT.done;
}
