import { Elysia } from "elysia";
import type { Log } from "../base/log.ts";
import { Problem } from "../wire/problem.ts";
import { PROBLEM_TYPE, text } from "./answers.ts";

/**
 * Owns what an error looks like once it leaves the process: RFC 9457 documents and nothing else (contract.md, One
 * admission, two doors). Used before everything else, since a hook covers only what is registered after it.
 */

export interface ProblemsDependencies {
  readonly log: Log;
  /** The methods that a path takes; empty where there is nothing. */
  readonly methodsAt: (path: string) => readonly string[];
}

/** Renders whatever a route or a hook throws. */
export function problems({ log, methodsAt }: ProblemsDependencies) {
  return new Elysia({ name: "problems" }).onError({ as: "global" }, ({ error, path, request }) => {
    const problem = toProblem(error, () => methodsAt(path));
    if (problem.code === "internal") logBug(log, request.method, error);
    return renderProblem(problem);
  });
}

/** Nothing was decided, so the same request may be sent again (RFC 9110 §15.6.4). */
const RETRY_AFTER_SECONDS = "1";

/** The document of a refusal. */
export function renderProblem(problem: Problem): Response {
  return text(problem.status, PROBLEM_TYPE, JSON.stringify(problem.body()), {
    ...(problem.status === 503 ? { "retry-after": RETRY_AFTER_SECONDS } : {}),
    ...problem.headers,
  });
}

/** What a thrown value is to a client. Anything unexpected is `internal` and says nothing of itself. */
export function toProblem(error: unknown, methods: () => readonly string[]): Problem {
  if (error instanceof Problem) return error;
  const { code, cause } = error as { readonly code?: unknown; readonly cause?: unknown };
  // What a body parser throws arrives wrapped.
  if (code === "PARSE" && cause instanceof Problem) return cause;
  if (code === "NOT_FOUND") return notFound(methods());
  return new Problem("internal", undefined, { cause: error });
}

/** 404, or 405 where the path exists with other methods (RFC 9110 §15.5.6). */
function notFound(methods: readonly string[]): Problem {
  if (methods.length === 0) return new Problem("not_found");
  return new Problem("method_not_allowed", undefined, { headers: { allow: methods.join(", ") } });
}

/** Only where it happened: the message of an unexpected error may quote what a person wrote. */
function logBug(log: Log, method: string, error: unknown): void {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const frames = stack.split("\n").filter((line) => line.trimStart().startsWith("at "));
  log.error("A request met a bug", {
    method,
    error: error instanceof Error ? error.name : typeof error,
    at: frames.slice(0, 8).map((line) => line.trim()),
  });
}
