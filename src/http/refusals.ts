import { PROBLEM_STATUS, type ProblemCode, ProblemSchema } from "../wire/problem.ts";

/**
 * Owns how routes declare what they refuse: by code. The status follows from the code, and the OpenAPI document
 * lists the codes of each status.
 */

/** The problem document as a route's response of one status. */
export type RefusalSchema = typeof ProblemSchema & { readonly codes: readonly ProblemCode[] };

type StatusOf<C extends ProblemCode> = (typeof PROBLEM_STATUS)[C];

/** What any route may answer; `/health` alone never answers 401. */
const COMMON = [
  "invalid_request",
  "unauthorized",
  "forbidden_host",
  "forbidden_origin",
  "internal",
] as const;

/** What any route with a body may answer on top. */
const WITH_BODY = ["request_timeout", "payload_too_large", "unsupported_media_type"] as const;

type Refusals<C extends ProblemCode> = Record<StatusOf<C | (typeof COMMON)[number]>, RefusalSchema>;

/** The responses of a route without a body that may refuse with these codes. */
export function refusals<const C extends ProblemCode = never>(...codes: readonly C[]): Refusals<C> {
  return group([...COMMON, ...codes]) as Refusals<C>;
}

/** The responses of a route with a body that may refuse with these codes. */
export function bodyRefusals<const C extends ProblemCode = never>(
  ...codes: readonly C[]
): Refusals<C | (typeof WITH_BODY)[number]> {
  return group([...COMMON, ...WITH_BODY, ...codes]) as Refusals<C | (typeof WITH_BODY)[number]>;
}

function group(codes: readonly ProblemCode[]): Record<number, RefusalSchema> {
  const byStatus = new Map<number, ProblemCode[]>();
  for (const code of codes) {
    const status = PROBLEM_STATUS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, listed]) => [status, { ...ProblemSchema, codes: listed }]),
  );
}
