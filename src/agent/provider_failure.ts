import { REDACTED, scrub } from "../base/redact.ts";
import { ProviderError } from "./provider.ts";
import { readRetryAfterMs } from "./retry.ts";

/**
 * Owns what a failure of a provider means: whether to try again, when, and what may be said of it (contract.md,
 * Turns, models, tools). Statuses decide, since they are what all services share; a stream that has begun and
 * breaks is always worth another attempt.
 */
export interface FailureContext {
  /** The provider's name in the settings. */
  readonly provider: string;
  /** Taken out of whatever a server says. */
  readonly secret: string | null;
  /** The wall clock, for a `Retry-After` that is a date. */
  readonly now: number;
}

const MESSAGE_CHARS_MAX = 300;

/** Words in an error's type or code where there is no status: in mid-stream, or of a network that refuses. */
const FINAL_WORDS =
  /invalid|authenticat|permission|forbidden|not_found|too_large|context_length|content_(policy|filter)|billing|unsupported|redirect|cert/i;
const OVERLOAD_WORDS = /overload|capacity|unavailable/i;
const RATE_WORDS = /rate_?limit|too_many/i;

/** What the SDKs throw and put into their streams, as far as it is looked at. */
interface SdkError {
  readonly message?: unknown;
  readonly statusCode?: unknown;
  readonly responseHeaders?: Record<string, string | undefined>;
  readonly type?: unknown;
  readonly code?: unknown;
  readonly cause?: unknown;
}

export function toProviderError(error: unknown, context: FailureContext): ProviderError {
  if (error instanceof ProviderError) return error;
  const given = (typeof error === "object" && error !== null ? error : {}) as SdkError;
  const status = statusOf(given);
  const said = saidBy(error, given, context);
  if (status === null) return fromWords(given, said, context);
  if (status < 400) {
    return new ProviderError(
      "stream_broken",
      `The answer of ${context.provider} broke off: ${said}`,
      {
        retryable: true,
      },
    );
  }
  return new ProviderError(codeOf(status), `${context.provider} answered ${status}: ${said}`, {
    retryable: isRetryableStatus(status),
    retryAfterMs: readRetryAfterMs(given.responseHeaders ?? {}, context.now),
  });
}

/** 408, 409, 429, 5xx (and with them 529, which means overloaded). */
export function isRetryableStatus(status: number): boolean {
  return status === 408 || status === 409 || status === 429 || status >= 500;
}

function codeOf(status: number): string {
  switch (status) {
    case 401:
      return "authentication";
    case 402:
      return "payment_required";
    case 403:
      return "permission";
    case 404:
      return "not_found";
    case 408:
      return "timeout";
    case 409:
      return "conflict";
    case 429:
      return "rate_limited";
    case 503:
    case 529:
      return "overloaded";
    default:
      return status >= 500 ? "unavailable" : "bad_request";
  }
}

/** A status is a number, also where a server writes it into the `code` of an error in mid-stream. */
function statusOf(given: SdkError): number | null {
  for (const value of [given.statusCode, given.code]) {
    const number = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
    if (typeof number === "number" && number >= 100 && number < 600) return number;
  }
  return null;
}

/** Without a status: an error event in mid-stream, a network that failed, or a stream that made no sense. */
function fromWords(given: SdkError, said: string, { provider }: FailureContext): ProviderError {
  const words = `${textOf(given.type)} ${textOf(given.code)}`;
  const is = (code: string, retryable: boolean): ProviderError =>
    new ProviderError(code, `${provider} failed: ${said}`, { retryable });
  if (RATE_WORDS.test(words)) return is("rate_limited", true);
  if (OVERLOAD_WORDS.test(words)) return is("overloaded", true);
  if (FINAL_WORDS.test(words)) return is("bad_request", false);
  const isNetwork =
    given.cause !== undefined || /^(E[A-Z]+|Connection|FailedToOpen)/.test(textOf(given.code));
  return is(isNetwork ? "unavailable" : "stream_broken", true);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** A bounded sentence without secrets; never the request, which the SDK's errors carry along. */
function saidBy(error: unknown, given: SdkError, { secret }: FailureContext): string {
  const message = textOf(given.message) || (typeof error === "string" ? error : "");
  const cut = message.slice(0, MESSAGE_CHARS_MAX * 4);
  const safe = secret === null || secret === "" ? cut : cut.replaceAll(secret, REDACTED);
  return scrub(safe.replace(/\s+/g, " "), MESSAGE_CHARS_MAX) || "no reason was given";
}
