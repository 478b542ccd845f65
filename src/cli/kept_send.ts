import { Uncertain } from "../client/client.ts";
import type { Accepted, CallOptions, OperationHandle } from "../client/client.ts";
import type { Context } from "./context.ts";
import { CliError } from "./exit.ts";
import type { KeptOperation } from "./state_file.ts";

/**
 * Owns sending an operation in a way that survives the death of this program: its handle is on disk before its
 * first byte leaves, and goes when the outcome is known (operations.md, Client recovery boundaries).
 *
 * Where it cannot be written nothing is sent. From then on a disk that fails changes neither what the daemon has
 * said nor what is still to be asked of it: a cancellation above all.
 */
type Keeping = Pick<Context, "state" | "clock">;

/**
 * @param summary what it is for, as a person knows it again
 * @throws {CliError} when the handle cannot be kept; nothing was sent then
 * @throws {Uncertain} and then the handle stays; everything else is definite
 */
export async function sendKept(
  context: Keeping,
  handle: OperationHandle,
  summary: string,
  options: CallOptions,
): Promise<Accepted> {
  try {
    await context.state.keep(record(context, handle, summary, "admission"));
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    throw new CliError(error.message, { hints: ["Nothing was sent"], cause: error });
  }
  let accepted: Accepted;
  try {
    accepted = await handle.send(options);
  } catch (error) {
    if (!(error instanceof Uncertain)) await letGo(context, handle);
    else if (handle.expired) await keepOn(context, handle, summary, "admission");
    throw error;
  }
  await letGo(context, handle);
  return accepted;
}

/** Keeps a handle that was sent, or what is known of it by now. Its id is enough to ask about it all the same. */
export async function keepOn(
  context: Keeping,
  handle: OperationHandle,
  summary: string,
  awaits: KeptOperation["awaits"],
): Promise<void> {
  await context.state.keep(record(context, handle, summary, awaits)).catch(() => undefined);
}

/** The outcome is known. Where the file cannot go, `albedo operation` finds the same outcome later. */
export async function letGo(context: Keeping, handle: OperationHandle): Promise<void> {
  await context.state.forget(handle.operationId).catch(() => undefined);
}

function record(
  { clock }: Keeping,
  handle: OperationHandle,
  summary: string,
  awaits: KeptOperation["awaits"],
): Omit<KeptOperation, "version"> {
  return {
    operation_id: handle.operationId,
    session_id: handle.sessionId,
    kept_at: clock.now(),
    awaits,
    expired: handle.expired,
    summary,
    handle: handle.toJSON(),
  };
}
