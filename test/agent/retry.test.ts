import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { ProviderError } from "../../src/agent/provider.ts";
import { randomUnit, readRetryAfterMs, RETRY_POLICY, retryDelayMs } from "../../src/agent/retry.ts";

// Goal: "retry with backoff and the server's Retry-After; authentication and bad requests do not" (contract.md,
// Turns, models, tools).

function failure(retryAfterMs: number | null = null, retryable = true): ProviderError {
  return new ProviderError("overloaded", "No.", { retryable, retryAfterMs });
}

describe("retryDelayMs()", () => {
  test("doubles up to its bound, between half and whole", () => {
    const least = [1, 2, 3, 4, 5, 6, 7].map((attempt) => retryDelayMs(attempt, failure(), 0));
    const most = [1, 2, 3, 4, 5, 6, 7].map((attempt) => retryDelayMs(attempt, failure(), 1));
    expect(least).toEqual([250, 500, 1000, 2000, 4000, 8000, 15_000]);
    expect(most).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000]);
  });

  test("gives up after the last attempt, and at once on what another attempt cannot mend", () => {
    expect(retryDelayMs(RETRY_POLICY.attemptsMax - 1, failure(), 0)).not.toBeNull();
    expect(retryDelayMs(RETRY_POLICY.attemptsMax, failure(), 0)).toBeNull();
    expect(retryDelayMs(1, failure(null, false), 0)).toBeNull();
    expect(retryDelayMs(1, new Error("A bug"), 0)).toBeNull();
    expect(retryDelayMs(1, "stop", 0)).toBeNull();
  });

  test("never comes before the server asked for, and does not wait longer than the bound", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: RETRY_POLICY.attemptsMax - 1 }),
        fc.integer({ min: 0, max: RETRY_POLICY.retryAfterMsMax }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (attempt, asked, random) => {
          const delay = retryDelayMs(attempt, failure(asked), random)!;
          expect(delay).toBeGreaterThanOrEqual(asked);
          expect(delay).toBeLessThanOrEqual(Math.max(RETRY_POLICY.capMs, asked + 1000));
        },
      ),
    );
    expect(retryDelayMs(1, failure(RETRY_POLICY.retryAfterMsMax + 1), 0)).toBeNull();
  });
});

describe("readRetryAfterMs()", () => {
  const now = Date.UTC(2026, 0, 1);

  test.each([
    [{ "retry-after": "0" }, 0],
    [{ "retry-after": "2" }, 2000],
    [{ "retry-after": " 2.5 " }, 2500],
    [{ "retry-after": "Thu, 01 Jan 2026 00:01:00 GMT" }, 60_000],
    // A date that has passed means now.
    [{ "retry-after": "Wed, 31 Dec 2025 23:00:00 GMT" }, 0],
    [{ "retry-after-ms": "1500.2", "retry-after": "9" }, 1501],
    [{ "retry-after-ms": "soon", "retry-after": "9" }, 9000],
    [{ "retry-after": "soon" }, null],
    [{ "retry-after": "-5" }, null],
    [{ "retry-after": "2026" }, 2_026_000],
    [{}, null],
  ] as [Record<string, string>, number | null][])("%j: %p", (headers, expected) => {
    expect(readRetryAfterMs(headers, now)).toBe(expected);
  });
});

describe("randomUnit()", () => {
  test("is from 0 up to 1", () => {
    expect(randomUnit((bytes) => void bytes.fill(0))).toBe(0);
    expect(randomUnit((bytes) => void bytes.fill(255))).toBeLessThan(1);
    expect(randomUnit((bytes) => bytes.set([128, 0, 0, 0]))).toBe(0.5);
  });
});
