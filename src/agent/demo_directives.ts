/**
 * Owns the plain directives the demo model understands, each on a line of its own:
 *
 * `!bash <command>`, `!read <path>`, `!write <path> <text>`, `!edit <path> <old> => <new>`, `!glob <pattern>`,
 * `!grep <pattern>` call a tool, one an answer, in order; `!parallel` lets the calls of one message go together;
 * `!think <text>`, `!say <text>` and `!repeat <times> <text>` stream; `!slow <ms>` sets the time between deltas;
 * `!fail <code> [times]` fails like a provider, each time or that many times.
 *
 * In `!write`, `!edit` and `!say`, `\n` and `\t` stand for a new line and a tab.
 */
export interface DemoToolCall {
  readonly kind: "call";
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

export type DemoStep =
  | DemoToolCall
  | { readonly kind: "parallel" }
  | { readonly kind: "think"; readonly text: string }
  | { readonly kind: "say"; readonly text: string }
  | { readonly kind: "repeat"; readonly times: number; readonly text: string }
  | { readonly kind: "slow"; readonly delayMs: number }
  | { readonly kind: "fail"; readonly code: string; readonly times: number | null };

const REPEAT_MAX = 10_000_000;
const DELAY_MS_MAX = 60_000;
const DIRECTIVE_REGEXP = /^!([a-z]+)(?:[ \t]+(.*))?$/;

/**
 * The directives of the texts in order. A call of a tool that is not offered is left out; `!fail` counts only in
 * the last text, since the earlier ones have failed already.
 */
export function parseDirectives(
  texts: readonly string[],
  offered: ReadonlySet<string>,
): readonly DemoStep[] {
  const steps: DemoStep[] = [];
  for (const [index, text] of texts.entries()) {
    for (const line of text.split("\n")) {
      const step = parseLine(line.trim());
      if (step === null) continue;
      if (step.kind === "call" && !offered.has(step.name)) continue;
      if (step.kind === "fail" && index < texts.length - 1) continue;
      steps.push(step);
    }
  }
  return steps;
}

function parseLine(line: string): DemoStep | null {
  const match = DIRECTIVE_REGEXP.exec(line);
  if (match === null) return null;
  const [, name = "", rest = ""] = match;
  switch (name) {
    case "bash":
      return rest === "" ? null : { kind: "call", name, input: { command: rest } };
    case "read":
      return rest === "" ? null : { kind: "call", name, input: { path: rest } };
    case "glob":
    case "grep":
      return rest === "" ? null : { kind: "call", name, input: { pattern: rest } };
    case "write":
      return parseWrite(rest);
    case "edit":
      return parseEdit(rest);
    case "parallel":
      return { kind: "parallel" };
    case "think":
      return { kind: "think", text: unescape(rest) };
    case "say":
      return { kind: "say", text: unescape(rest) };
    case "repeat":
      return parseRepeat(rest);
    case "slow":
      return { kind: "slow", delayMs: wholeNumber(rest, DELAY_MS_MAX) ?? 0 };
    case "fail":
      return parseFail(rest);
    default:
      return null;
  }
}

function parseWrite(rest: string): DemoStep | null {
  const [path, content] = splitOnce(rest, " ");
  if (path === "") return null;
  return { kind: "call", name: "write", input: { path, content: unescape(content ?? "") } };
}

function parseEdit(rest: string): DemoStep | null {
  const [path, change = ""] = splitOnce(rest, " ");
  const [oldText, newText] = splitOnce(change, " => ");
  if (path === "" || newText === undefined) return null;
  return {
    kind: "call",
    name: "edit",
    input: { path, old_string: unescape(oldText), new_string: unescape(newText) },
  };
}

function parseRepeat(rest: string): DemoStep | null {
  const [count, text = ""] = splitOnce(rest, " ");
  const times = wholeNumber(count, REPEAT_MAX);
  return times === null ? null : { kind: "repeat", times, text: unescape(text) };
}

function parseFail(rest: string): DemoStep {
  const [code, times = ""] = splitOnce(rest, " ");
  return {
    kind: "fail",
    code: code === "" ? "unavailable" : code,
    times: wholeNumber(times, 1000),
  };
}

function splitOnce(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator);
  if (at === -1) return [text, undefined];
  return [text.slice(0, at), text.slice(at + separator.length)];
}

function wholeNumber(text: string, max: number): number | null {
  return /^\d{1,9}$/.test(text) ? Math.min(Number(text), max) : null;
}

function unescape(text: string): string {
  return text.replace(/\\([nt\\])/g, (_, letter: string) =>
    letter === "n" ? "\n" : letter === "t" ? "\t" : "\\",
  );
}
