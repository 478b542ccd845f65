import { EnvironmentError } from "../base/environment.ts";
import { ApiError, ProtocolError, TransportError, Uncertain } from "../client/client.ts";
import { processContext } from "./context.ts";
import type { Context } from "./context.ts";
import { CliError, errorText, EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import type { Sink } from "./output.ts";

/**
 * Owns how a verb runs and ends: its context, its errors as sentences on stderr, its exit code.
 */
export async function runVerb(
  verb: (context: Context) => Promise<ExitCode>,
  options: { readonly quiet?: boolean } = {},
): Promise<void> {
  let context: Context;
  try {
    context = processContext({ quiet: options.quiet ?? false });
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    process.stderr.write(`albedo: ${error.message}\n`);
    process.exitCode = EXIT.usage;
    return;
  }
  const { stdout, stderr } = context.output;
  let code: ExitCode;
  try {
    code = await verb(context);
  } catch (error) {
    stdout.endLineOnTerminal();
    code = report(error, stderr);
  }
  await stdout.flush();
  await stderr.flush();
  // Sockets that idle would hold the process for a while.
  process.exit(code);
}

/** Says on stderr what went wrong. @returns the exit code that goes with it */
export function report(error: unknown, stderr: Sink): ExitCode {
  const { message, hints, exitCode } = explain(error);
  stderr.line(["red", "albedo: "], message);
  for (const hint of hints) stderr.line("  ", hint);
  return exitCode;
}

function explain(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof Uncertain) {
    return new CliError(error.message, {
      exitCode: EXIT.uncertain,
      hints: [resolveHint(error.handle.operationId)],
    });
  }
  if (error instanceof ApiError) {
    const hints = error.fields.map((field) => `${field.pointer}: ${field.detail}`);
    return new CliError(`${error.detail} (${error.code})`, { hints });
  }
  if (error instanceof TransportError) {
    return new CliError(`The daemon cannot be reached: ${error.message}`, {
      hints: ["`albedo daemon --status` says whether one runs"],
    });
  }
  if (error instanceof ProtocolError) return new CliError(error.message);
  if (isFileError(error)) {
    // `EACCES: permission denied, open '/…'`: the path stands before it.
    const [reason] = error.message.split(", ", 1);
    return new CliError(`Cannot use '${error.path}': ${reason}`);
  }
  const stack = error instanceof Error ? (error.stack ?? error.message) : errorText(error);
  return new CliError(`This should not have happened: ${stack}`);
}

/** Whether the operating system refused a file, which is no bug of this program. */
function isFileError(error: unknown): error is Error & { readonly path: string } {
  if (!(error instanceof Error)) return false;
  const { code, path, syscall } = error as NodeJS.ErrnoException;
  return typeof code === "string" && typeof path === "string" && typeof syscall === "string";
}

/** How an operation is resolved later. */
export function resolveHint(operationId: string): string {
  return `\`albedo operation ${operationId}\` says later what became of it`;
}
