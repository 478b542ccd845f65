import { describe, expect, test } from "bun:test";
import { CANCEL_CLEANUP_MS } from "../../src/base/limits.ts";
import { CANCEL_WORDS } from "../../src/cli/cancel.ts";
import { cancelOwn } from "../../src/cli/own_cancellation.ts";
import { ApiError, TransportError } from "../../src/client/client.ts";
import type { CancelResult, Cancellation } from "../../src/client/client.ts";
import { problemBody } from "../../src/wire/problem.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";

/**
 * Goal: "The CLI uses a separate five-second cleanup deadline and reports unconfirmed cancellation when cleanup
 * fails. An interruption acknowledgement does not claim that work stopped." Method: scripted answers and a clock
 * that is moved.
 */
const TARGET = {
  sessionId: "0198c1d2-0000-7000-8000-0000000000aa",
  inputId: "0198c1d2-0000-7000-8000-0000000000bb",
};

function cancellation(result: CancelResult): Cancellation {
  return {
    result,
    input: {
      id: TARGET.inputId,
      session_id: TARGET.sessionId,
      kind: "message",
      state: "committed",
      accepted_at: 1,
    },
  };
}

/** Answers in turn; the last one again and again. */
function daemon(answers: readonly (Error | Cancellation)[]) {
  const calls: { id: string; timeoutMs: number | undefined }[] = [];
  return {
    calls,
    cancelInput(sessionId: string, id: string, options?: { timeoutMs?: number | undefined }) {
      expect(sessionId).toBe(TARGET.sessionId);
      const answer = answers[Math.min(calls.length, answers.length - 1)];
      calls.push({ id, timeoutMs: options?.timeoutMs });
      if (answer instanceof Error) return Promise.reject(answer);
      if (answer === undefined) throw new Error("No answer was scripted");
      return Promise.resolve(answer);
    },
  };
}

const lost = new TransportError("connection", "No answer");
const unknown = new ApiError(404, problemBody("input_not_found"));

describe("cancelOwn", () => {
  test.each(["cancelled", "interrupt_requested", "shared_running", "not_pending"] as const)(
    "reports %s as it was answered",
    async (result) => {
      const client = daemon([cancellation(result)]);
      expect(await cancelOwn(client, TARGET, new FakeClock())).toEqual({ result });
      expect(client.calls).toEqual([{ id: TARGET.inputId, timeoutMs: CANCEL_CLEANUP_MS }]);
    },
  );

  test("asks again where the answer was lost or the input is still on its way", async () => {
    const clock = new FakeClock();
    const client = daemon([lost, unknown, cancellation("cancelled")]);
    const answer = cancelOwn(client, TARGET, clock);
    await settle();
    await clock.advance(1_000);
    expect(await answer).toEqual({ result: "cancelled" });
    expect(client.calls).toHaveLength(3);
    expect(client.calls[2]?.timeoutMs).toBeLessThan(CANCEL_CLEANUP_MS);
  });

  test("is unconfirmed when five seconds are over", async () => {
    const clock = new FakeClock();
    const answer = cancelOwn(daemon([lost]), TARGET, clock);
    let ended = false;
    void answer.then(() => {
      ended = true;
    });
    await settle();
    await clock.advance(CANCEL_CLEANUP_MS - 1);
    expect(ended).toBe(false);
    await clock.advance(1);
    expect(await answer).toEqual({ result: "unconfirmed", reason: "No answer" });
  });

  test("is unconfirmed at once when the daemon refuses", async () => {
    const refused = new ApiError(401, problemBody("unauthorized", "No token"));
    expect(await cancelOwn(daemon([refused]), TARGET, new FakeClock())).toEqual({
      result: "unconfirmed",
      reason: "No token",
    });
  });
});

describe("CANCEL_WORDS", () => {
  test("claim of no running work that it has stopped", () => {
    expect(CANCEL_WORDS.interrupt_requested).toContain("does not say that it has stopped");
    expect(CANCEL_WORDS.shared_running).toContain("goes on");
    for (const result of ["interrupt_requested", "shared_running", "not_pending"] as const) {
      expect(CANCEL_WORDS[result]).not.toMatch(/cancelled/);
    }
  });
});
