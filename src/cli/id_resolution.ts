import { isUuidv7 } from "../base/ids.ts";
import { CliError, EXIT } from "./exit.ts";

/**
 * Owns which session a person means (sessions.md, session attachment).
 *
 * I1 A full lowercase UUIDv7 addresses a root or a child directly.
 * I2 A shortened id matches root sessions only; an exact match wins over prefixes.
 * I3 A missing full id and a missing prefix are the same error, and nothing is ever created for one.
 */
export interface Candidate {
  readonly id: string;
  readonly title: string | null;
  readonly parent_id: string | null;
}

export interface SessionLookup {
  /** Whether a session of this full id exists, root or child. */
  exists(id: string): Promise<boolean>;
  /** Every session of the list; children may be among them. */
  list(): AsyncIterable<Candidate>;
}

/** How many candidates an ambiguous id names. */
const CANDIDATES_MAX = 10;

/**
 * @returns the full id
 * @throws {CliError} when no session or more than one matches
 */
export async function resolveSessionId(text: string, lookup: SessionLookup): Promise<string> {
  if (isUuidv7(text)) {
    if (await lookup.exists(text)) return text;
    throw noMatch(text);
  }
  // An empty text is a prefix of everything, which nobody means.
  if (text === "") throw noMatch(text);
  const roots: Candidate[] = [];
  for await (const session of lookup.list()) {
    if (session.parent_id === null) roots.push(session);
  }
  return chooseRoot(text, roots);
}

/** The pure part: which of the root sessions a shortened id names. */
export function chooseRoot(text: string, roots: readonly Candidate[]): string {
  if (roots.some((root) => root.id === text)) return text;
  const matches = roots.filter((root) => root.id.startsWith(text));
  const [only, second] = matches;
  if (only === undefined) throw noMatch(text);
  if (second === undefined) return only.id;
  throw ambiguous(text, matches);
}

export function noMatch(text: string): CliError {
  return new CliError(`No session matches '${text}'`, {
    hints: ["`albedo sessions` lists them; a child session needs its full id"],
  });
}

function ambiguous(text: string, matches: readonly Candidate[]): CliError {
  const shown = matches
    .slice(0, CANDIDATES_MAX)
    .map((match) => `  ${match.id}  ${match.title ?? "(no title)"}`);
  const more = matches.length - shown.length;
  return new CliError(`'${text}' matches ${matches.length} sessions`, {
    exitCode: EXIT.failed,
    hints: more > 0 ? [...shown, `  and ${more} more`] : shown,
  });
}

/** The shortest length, at least `minimum`, at which no two of the ids look the same. */
export function distinctLength(ids: readonly string[], minimum = 8): number {
  const sorted = ids.toSorted();
  let length = minimum;
  for (let index = 1; index < sorted.length; index += 1) {
    const a = sorted[index - 1] ?? "";
    const b = sorted[index] ?? "";
    let common = 0;
    while (common < a.length && a[common] === b[common]) common += 1;
    length = Math.max(length, common + 1);
  }
  return length;
}
