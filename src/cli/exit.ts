/**
 * Owns how a verb ends: the exit codes the README documents, and the error a verb throws to end with one.
 */
export const EXIT = {
  /** What was asked for is done. */
  done: 0,
  /** It failed, or was refused. */
  failed: 1,
  /** The command line itself is wrong; nothing was sent. */
  usage: 2,
  /** Whether it happened is not known; `albedo operation` keeps it. */
  uncertain: 3,
  /** The reader of stdout went away; 128 + SIGPIPE, as every other program has it. */
  brokenPipe: 141,
  /** `--timeout` ran out. */
  timeout: 124,
  /** Ctrl-C, or someone else stopped the work. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Ends a verb with a message for the person. The message is a sentence without its period. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: ExitCode;
  /** What to do next, one line each. */
  readonly hints: readonly string[];

  constructor(
    message: string,
    options: { exitCode?: ExitCode; hints?: readonly string[]; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.exitCode = options.exitCode ?? EXIT.failed;
    this.hints = options.hints ?? [];
  }
}

/** The command line is wrong. */
export function usageError(message: string, ...hints: readonly string[]): CliError {
  return new CliError(message, { exitCode: EXIT.usage, hints });
}

/** Whether the error is the operating system's, with this code. */
export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}

export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
