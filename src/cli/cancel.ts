import type { CancelResult } from "../client/client.ts";
import type { Context } from "./context.ts";
import { EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { findSession, fullId, orNoMatch } from "./lookup.ts";

/**
 * Owns `albedo cancel` and the words for the four answers of a cancellation (contract.md, Pending inputs, turns
 * and cancellation).
 */

/** What each answer says, and no more than that: that a turn was told to stop does not say that it stopped. */
export const CANCEL_WORDS: Record<CancelResult, string> = {
  cancelled: "cancelled: it was waiting and will not run",
  interrupt_requested:
    "interrupt requested: its turn was told to stop, which does not say that it has stopped",
  shared_running: "still running: its turn is shared with other inputs and goes on",
  not_pending: "nothing to cancel: it had ended before",
};

export async function cancel(
  context: Context,
  sessionText: string,
  inputText: string,
  options: { readonly json: boolean },
): Promise<ExitCode> {
  const inputId = fullId(inputText, "input");
  const client = await context.connect();
  const sessionId = await findSession(client, sessionText);
  const answer = await orNoMatch(sessionText, client.cancelInput(sessionId, inputId));
  if (options.json) context.output.stdout.json(answer);
  else context.output.stdout.line(`${inputId}  ${CANCEL_WORDS[answer.result]}`);
  return EXIT.done;
}
