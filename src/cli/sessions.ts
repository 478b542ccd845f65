import type { SessionSummary } from "../client/client.ts";
import type { Context } from "./context.ts";
import { EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { distinctLength } from "./id_resolution.ts";
import { allSessions } from "./lookup.ts";
import { ago, printTable } from "./table.ts";
import type { Cell } from "./table.ts";

/**
 * Owns `albedo sessions`: the list, newest activity first. A green dot marks an active session, which is loaded
 * and had its last turn within the hour (sessions.md, Loaded sessions and unloading).
 */
export interface SessionsOptions {
  readonly json: boolean;
  /** Children too. */
  readonly all: boolean;
  readonly limit: number;
}

export async function sessions(context: Context, options: SessionsOptions): Promise<ExitCode> {
  const client = await context.connect();
  const { stdout, stderr } = context.output;
  const roots: string[] = [];
  const shown: SessionSummary[] = [];
  // Every root counts for how far an id can be shortened, also one that is not shown.
  for await (const session of allSessions(client)) {
    if (session.parent_id === null) roots.push(session.id);
    else if (!options.all) continue;
    if (shown.length < options.limit) shown.push(session);
    else if (options.json) break;
  }
  if (options.json) {
    for (const session of shown) stdout.json(session);
    return EXIT.done;
  }
  if (shown.length === 0) {
    stderr.line('No sessions yet. `albedo prompt "…"` makes one in the current directory.');
    return EXIT.done;
  }
  const length = distinctLength(roots);
  const now = context.clock.now();
  printTable(
    stdout,
    [" ", "ID", "PHASE", "ACTIVITY", "MODEL", "WORKSPACE", "TITLE"],
    shown.map((session) => row(session, length, now)),
  );
  return EXIT.done;
}

function row(session: SessionSummary, idLength: number, now: number): Cell[] {
  const isRoot = session.parent_id === null;
  const waiting = session.pending_count === 0 ? "" : ` +${session.pending_count}`;
  return [
    session.active ? { text: "●", style: "green" } : { text: " " },
    { text: isRoot ? session.id.slice(0, idLength) : session.id, style: "bold" },
    { text: `${session.phase}${waiting}`, ...(session.running ? { style: "green" as const } : {}) },
    { text: ago(now, session.activity_at) },
    { text: session.model },
    { text: session.workspace },
    session.title === null ? { text: "-", style: "faint" } : { text: session.title },
  ];
}
