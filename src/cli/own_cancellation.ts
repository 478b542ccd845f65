import { sleep } from "../base/clock.ts";
import type { Clock } from "../base/clock.ts";
import { CANCEL_CLEANUP_MS } from "../base/limits.ts";
import { ApiError } from "../client/client.ts";
import type { CancelResult, Client } from "../client/client.ts";
import { errorText } from "./exit.ts";

/**
 * Owns taking back this program's own submission after a timeout or Ctrl-C, within a deadline of its own
 * (sessions.md, Prompt ownership and cancellation). It names one input and never falls back to interrupting the
 * session.
 */
export type OwnCancellation =
  | { readonly result: CancelResult }
  /** Whether it was cancelled is not known. */
  | { readonly result: "unconfirmed"; readonly reason: string };

const RETRY_MS = 100;

export async function cancelOwn(
  client: Pick<Client, "cancelInput">,
  target: { readonly sessionId: string; readonly inputId: string },
  clock: Clock,
): Promise<OwnCancellation> {
  const deadline = clock.monotonic() + CANCEL_CLEANUP_MS;
  let reason = "no answer in time";
  for (;;) {
    const timeoutMs = deadline - clock.monotonic();
    if (timeoutMs <= 0) return { result: "unconfirmed", reason };
    try {
      const { result } = await client.cancelInput(target.sessionId, target.inputId, { timeoutMs });
      return { result };
    } catch (error) {
      reason = errorText(error);
      // The submission may still be on its way: it is not known yet, and would be accepted after all.
      if (!mayPass(error)) return { result: "unconfirmed", reason };
    }
    await sleep(clock, Math.max(0, Math.min(RETRY_MS, deadline - clock.monotonic())));
  }
}

function mayPass(error: unknown): boolean {
  if (!(error instanceof ApiError)) return true;
  return error.code === "input_not_found" || error.status >= 500;
}
