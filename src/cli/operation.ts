import { ApiError } from "../client/client.ts";
import type { Client, Input, Receipt } from "../client/client.ts";
import type { Context } from "./context.ts";
import { CliError, EXIT, usageError } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { fullId } from "./lookup.ts";
import type { KeptOperation } from "./state_file.ts";
import { ago } from "./table.ts";

/**
 * Owns `albedo operation`: what became of an operation. Those whose outcome this client never learned are kept on
 * disk and shown until it is known (operations.md, Client recovery boundaries). To ask never sends the operation
 * again; only `--retry` does, under the same id.
 */
export interface OperationOptions {
  readonly json: boolean;
  readonly retry: boolean;
  readonly forget: boolean;
}

/** What is known of an operation now. */
interface Knowledge {
  readonly operation_id: string;
  readonly summary: string | null;
  /** `unknown`: there is no receipt, and a request under way could still be accepted. */
  readonly status: "accepted" | "rejected" | "unknown" | "expired";
  /** Nothing is open any more. */
  readonly resolved: boolean;
  readonly receipt: Receipt | null;
  readonly input: Input | null;
}

export async function operation(
  context: Context,
  idText: string | null,
  options: OperationOptions,
): Promise<ExitCode> {
  if (idText === null) {
    if (options.retry || options.forget) throw usageError("Name the operation by its id");
    return await listKept(context, options);
  }
  const id = fullId(idText, "operation");
  const kept = await context.state.find(id);
  if (options.forget) return await forget(context, id, kept);
  const client = await context.connect();
  if (options.retry) await retry(context, client, id, kept);
  const knowledge = await learn(context, client, id, kept);
  print(context, knowledge, options.json);
  return knowledge.status === "unknown" || knowledge.status === "expired"
    ? EXIT.uncertain
    : EXIT.done;
}

async function listKept(context: Context, options: OperationOptions): Promise<ExitCode> {
  const all = await context.state.list();
  if (all.length === 0) {
    context.output.stderr.line("No operation is unresolved");
    return EXIT.done;
  }
  const client = await context.connect();
  let open = 0;
  for (const kept of all) {
    const knowledge = await learn(context, client, kept.operation_id, kept);
    if (!knowledge.resolved) open += 1;
    print(context, knowledge, options.json, kept.kept_at);
  }
  return open > 0 ? EXIT.uncertain : EXIT.done;
}

async function forget(context: Context, id: string, kept: KeptOperation | null): Promise<ExitCode> {
  if (kept === null) throw new CliError(`No operation '${id}' is kept here`);
  await context.state.forget(id);
  context.output.stderr.line(`Forgot ${id}: ${kept.summary}`);
  return EXIT.done;
}

/** The same bytes under the same id: it happens once, however often it is sent. */
async function retry(
  context: Context,
  client: Client,
  id: string,
  kept: KeptOperation | null,
): Promise<void> {
  if (kept === null) {
    throw new CliError(`No operation '${id}' is kept here`, {
      hints: ["Only what this client has kept can be sent again"],
    });
  }
  try {
    await client.restoreHandle(kept.handle).send();
  } catch (error) {
    // A refusal is an outcome, which the receipt shows; anything else is the person's to read.
    if (!(error instanceof ApiError)) throw error;
    context.notice(`refused: ${error.detail} (${error.code})`);
  }
}

/** Asks the daemon, and lets go of what is kept as soon as nothing is open any more. */
async function learn(
  context: Context,
  client: Client,
  id: string,
  kept: KeptOperation | null,
): Promise<Knowledge> {
  const summary = kept?.summary ?? null;
  const nothing = { operation_id: id, summary, receipt: null, input: null, resolved: false };
  // The daemon has said that it can never know; it is not asked again.
  if (kept?.expired === true) return { ...nothing, status: "expired" };
  const receipt = await findReceipt(client, id);
  if (receipt === "expired" && kept !== null) {
    await context.state.keep({ ...kept, expired: true });
  }
  if (receipt === "expired" || receipt === "unknown") return { ...nothing, status: receipt };
  const input = await findInput(client, receipt);
  const resolved =
    receipt.admission === "rejected" || kept?.awaits !== "outcome" || isOver(receipt);
  if (resolved) await context.state.forget(id);
  return { operation_id: id, summary, status: receipt.admission, resolved, receipt, input };
}

async function findReceipt(client: Client, id: string): Promise<Receipt | "unknown" | "expired"> {
  try {
    return await client.receipt(id);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.code === "operation_unknown" || error.code === "operation_future") return "unknown";
    if (error.code === "operation_expired") return "expired";
    throw error;
  }
}

async function findInput(client: Client, receipt: Receipt): Promise<Input | null> {
  if (receipt.kind === "session_create" || receipt.admission === "rejected") return null;
  try {
    return receipt.target === null
      ? null
      : await client.getInput(receipt.target, receipt.operationId);
  } catch (error) {
    // The session is gone; the receipt outlives it.
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** Whether the input has come to its end: its turn is over, or it was cancelled. */
function isOver(receipt: Receipt): boolean {
  return receipt.settledAt !== undefined || receipt.expiresAt !== undefined;
}

function print(context: Context, knowledge: Knowledge, json: boolean, keptAt?: number): void {
  const { stdout } = context.output;
  if (json) {
    stdout.json(knowledge);
    return;
  }
  const { operation_id: id, summary, receipt } = knowledge;
  const when = keptAt === undefined ? "" : `  ${ago(context.clock.now(), keptAt)}`;
  const kind = receipt === null ? "" : `  ${receipt.kind}`;
  stdout.line(["bold", id], `${kind}${when}`, ["faint", summary === null ? "" : `  ${summary}`]);
  stdout.line("  ", ...words(knowledge));
  if (receipt?.target !== null && receipt?.target !== undefined) {
    stdout.line(["faint", `  session ${receipt.target}`]);
  }
}

function words({ status, summary, receipt, input }: Knowledge): string[] {
  // What can be done with it takes what is kept of it.
  const kept = (advice: string): string =>
    summary === null ? ", and nothing is kept of it here" : `. ${advice}`;
  switch (status) {
    case "unknown":
      return [
        `not known: the daemon has no receipt${kept("`--retry` sends it, `--forget` gives it up")}`,
      ];
    case "expired":
      return [
        `never to be known: it is too old to be asked for${kept("`--forget` lets go of it")}`,
      ];
    case "rejected":
      return [`rejected: ${receipt?.error?.detail ?? receipt?.error?.title ?? "no reason"}`];
    case "accepted":
      return [`accepted${delivery(receipt, input)}`];
  }
}

function delivery(receipt: Receipt | null, input: Input | null): string {
  if (receipt?.deliveryStatus === undefined) return "";
  const blocked = receipt.blockingReason === undefined ? "" : ` (${receipt.blockingReason})`;
  const turn = input?.turn === undefined ? "" : `, turn ${input.turn.state}`;
  return `, ${receipt.deliveryStatus}${blocked}${turn}`;
}
