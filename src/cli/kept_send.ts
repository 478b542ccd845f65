import { Uncertain } from "../client/client.ts";
import type { Accepted, CallOptions, OperationHandle } from "../client/client.ts";
import type { Context } from "./context.ts";

/**
 * Owns sending an operation in a way that survives the death of this program: its handle is on disk before its
 * first byte leaves, and goes when the outcome is known (operations.md, Client recovery boundaries).
 *
 * @param summary what it is for, as a person knows it again
 * @throws {Uncertain} and then the handle stays; everything else is definite
 */
export async function sendKept(
  context: Pick<Context, "state" | "clock">,
  handle: OperationHandle,
  summary: string,
  options: CallOptions,
): Promise<Accepted> {
  await keep(context, handle, summary, "admission");
  try {
    const accepted = await handle.send(options);
    await context.state.forget(handle.operationId);
    return accepted;
  } catch (error) {
    if (!(error instanceof Uncertain)) await context.state.forget(handle.operationId);
    else if (handle.expired) await keep(context, handle, summary, "admission");
    throw error;
  }
}

/** Keeps a handle, or what is known of it by now. */
export function keep(
  { state, clock }: Pick<Context, "state" | "clock">,
  handle: OperationHandle,
  summary: string,
  awaits: "admission" | "outcome",
): Promise<void> {
  return state.keep({
    operation_id: handle.operationId,
    session_id: handle.sessionId,
    kept_at: clock.now(),
    awaits,
    expired: handle.expired,
    summary,
    handle: handle.toJSON(),
  });
}
