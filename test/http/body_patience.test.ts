import { expect, test } from "bun:test";
import { BODY_MS_MAX, BODY_SILENCE_MS_MAX, BodyPatience } from "../../src/http/body_patience.ts";
import { Problem } from "../../src/wire/problem.ts";
import { FakeClock } from "../support/fake_clock.ts";

/** One read that resolves when told, or when it is given up. */
function bench() {
  const clock = new FakeClock();
  let resolve = (): void => {};
  const patience = new BodyPatience(clock, () => resolve());
  const read = async (ms: number): Promise<void> => {
    const { promise, resolve: arrive } = Promise.withResolvers<void>();
    resolve = arrive;
    const waited = patience.during(promise);
    waited.catch(() => {});
    await clock.advance(ms);
    arrive();
    await waited;
  };
  return { clock, patience, read };
}

test("a sender that is silent for too long is given up, and no timer is left", async () => {
  const { clock, read } = bench();
  await read(BODY_SILENCE_MS_MAX - 1);
  await read(BODY_SILENCE_MS_MAX - 1);
  const error = await read(BODY_SILENCE_MS_MAX).catch((reason: unknown) => reason);
  expect((error as Problem).code).toBe("request_timeout");
  expect(clock.waiting).toBe(0);
});

test("a sender that trickles is given up in the end; waiting between two reads does not count", async () => {
  const { clock, read } = bench();
  const stepMs = BODY_SILENCE_MS_MAX / 2;
  for (let spentMs = 0; spentMs + stepMs < BODY_MS_MAX; spentMs += stepMs) {
    await read(stepMs);
    await clock.advance(BODY_MS_MAX);
  }
  const error = await read(stepMs).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(Problem);
  expect(clock.waiting).toBe(0);
});
