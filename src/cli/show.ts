import type { Context } from "./context.ts";
import { EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { rowBefore, rowsAfter } from "./history_rows.ts";
import { findSession, orNoMatch } from "./lookup.ts";
import { printRow } from "./row_text.ts";

/** Owns `albedo show`: stored history in line form. It reads the store alone and loads no session. */
export interface ShowOptions {
  readonly json: boolean;
  /** The newest rows to show; `null` for all of them. */
  readonly rows: number | null;
}

export async function show(
  context: Context,
  sessionText: string,
  options: ShowOptions,
): Promise<ExitCode> {
  const client = await context.connect();
  const sessionId = await findSession(client, sessionText);
  const { stdout } = context.output;
  const after = options.rows === null ? 0 : await rowBefore(client, sessionId, options.rows);
  for await (const row of rowsAfter(client, sessionId, after)) {
    const whole =
      row.truncated === true
        ? await orNoMatch(sessionText, client.historyRow(sessionId, row.id))
        : row;
    if (options.json) stdout.json(whole);
    else printRow(stdout, whole);
  }
  return EXIT.done;
}
