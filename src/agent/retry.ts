import type { RandomSource } from "../base/ids.ts";
import { ProviderError } from "./provider.ts";

/**
 * Owns when a failed request to a provider is made again (contract.md, Turns, models, tools): exponential backoff
 * with jitter, never sooner than the server asked for in `Retry-After`.
 */
export interface RetryPolicy {
  /** How often a request is made altogether. */
  readonly attemptsMax: number;
  /** The delay after the first failure, before jitter. */
  readonly baseMs: number;
  readonly capMs: number;
  /** A server that asks for more than this is not waited for. */
  readonly retryAfterMsMax: number;
}

export const RETRY_POLICY: RetryPolicy = {
  attemptsMax: 8,
  baseMs: 500,
  capMs: 30_000,
  retryAfterMsMax: 5 * 60_000,
};

/**
 * How long to wait before the next attempt, or `null` to give up.
 *
 * @param attempt how many attempts have failed, from 1
 * @param random a number from 0 up to 1
 */
export function retryDelayMs(
  attempt: number,
  error: unknown,
  random: number,
  policy: RetryPolicy = RETRY_POLICY,
): number | null {
  if (!(error instanceof ProviderError) || !error.retryable) return null;
  if (attempt >= policy.attemptsMax) return null;
  const askedMs = error.retryAfterMs ?? 0;
  if (askedMs > policy.retryAfterMsMax) return null;
  const fullMs = Math.min(policy.capMs, policy.baseMs * 2 ** (attempt - 1));
  // Half of it is jitter, so that sessions that failed together do not come back together.
  const backoffMs = fullMs / 2 + (fullMs / 2) * random;
  // What the server asked for is a lower bound; jitter goes on top, since others were told the same.
  return Math.round(
    Math.max(backoffMs, askedMs === 0 ? 0 : askedMs + (policy.baseMs / 2) * random),
  );
}

/** A number from 0 up to 1 from a source of random bytes. */
export function randomUnit(source: RandomSource): number {
  const bytes = new Uint8Array(4);
  source(bytes);
  return new DataView(bytes.buffer).getUint32(0) / 2 ** 32;
}

/**
 * Reads what a server asked for: `retry-after-ms`, or `Retry-After` as seconds or as a date (RFC 9110 §10.2.3).
 *
 * @param now the wall clock, for a date
 */
export function readRetryAfterMs(
  headers: Readonly<Record<string, string | undefined>>,
  now: number,
): number | null {
  const exact = Number.parseFloat(headers["retry-after-ms"] ?? "");
  if (Number.isFinite(exact) && exact >= 0) return Math.ceil(exact);
  const given = headers["retry-after"]?.trim() ?? "";
  if (/^\d+(\.\d+)?$/.test(given)) return Math.ceil(Number(given) * 1000);
  // A date has a name of a day in it; without that check a plain number would be taken for a year.
  const date = /^[A-Za-z]{3}/.test(given) ? Date.parse(given) : Number.NaN;
  return Number.isNaN(date) ? null : Math.max(0, date - now);
}
