import type { Context } from "./context.ts";
import { EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { findSession, orNoMatch } from "./lookup.ts";

/** Owns `albedo interrupt`: stops the active turn and cancels everything that waits. */
export async function interrupt(
  context: Context,
  sessionText: string,
  options: { readonly json: boolean },
): Promise<ExitCode> {
  const client = await context.connect();
  const sessionId = await findSession(client, sessionText);
  const { stdout } = context.output;
  const answer = await orNoMatch(sessionText, client.interrupt(sessionId));
  if (options.json) {
    stdout.json(answer);
    return EXIT.done;
  }
  stdout.line(
    answer.turn_id === null
      ? "No turn was running"
      : `Turn ${answer.turn_id} was told to stop, which does not say that it has stopped`,
  );
  for (const id of answer.cancelled) stdout.line(`Cancelled the waiting input ${id}`);
  return EXIT.done;
}
