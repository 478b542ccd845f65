import { expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { createClient, Uncertain } from "../../src/client/client.ts";
import type { Client, OperationHandle } from "../../src/client/client.ts";
import { ApiError } from "../../src/client/errors.ts";
import { problemBody } from "../../src/wire/problem.ts";
import { HostileProxy, rawAnswer } from "../support/hostile_proxy.ts";
import type { Fault } from "../support/hostile_proxy.ts";
import { FAKE_TOKEN, FakeDaemon } from "./fake_daemon.ts";
import type { Breakdown } from "./fake_daemon.ts";
import { hurriedClock, impatientClock } from "./hurried_clock.ts";

/**
 * Goal: whatever the network and the daemon do, "the action happens once or is reported uncertain, never twice".
 * Method: real sockets through a proxy that loses, cuts, delays and falsifies by plan, in front of a daemon that
 * counts what was done by what was meant; fast-check makes the plans. Afterwards the network heals, the program is
 * "restarted" from its stored handle, and what `resolve` says has to be what was done.
 */

// Real sockets on a machine that may be busy.
setDefaultTimeout(60_000);

const SESSION = "0192f0c1-2345-7abc-8def-0123456789ab";
/** 30 s of the client's time are 600 ms here, so that plans which use up the deadline stay short. */
const clock = hurriedClock(50);

const INTERNAL = JSON.stringify(problemBody("internal"));
const lies = fc.constantFrom(
  rawAnswer(500, "application/problem+json", INTERNAL),
  rawAnswer(502, "text/html", "<h1>Bad gateway</h1>"),
  rawAnswer(403, "text/html", "<h1>Forbidden</h1>"),
  rawAnswer(200, "text/html", "<h1>Welcome</h1>"),
  rawAnswer(202, "application/json", "{}"),
  rawAnswer(204, "application/json", ""),
  "HTTP/1.1 2",
  "no HTTP at all\r\n\r\n",
);

const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({ kind: fc.constant("pass" as const), pieceBytes: fc.integer({ min: 1, max: 64 }) }),
  // The client waits 300 ms of these for the first answer, and less for each that follows.
  fc.record({ kind: fc.constant("pass" as const), delayMs: fc.constantFrom(10, 350) }),
  fc.record({ kind: fc.constant("late_request" as const), delayMs: fc.constantFrom(10, 350) }),
  fc.constant<Fault>({ kind: "refuse" }),
  fc.record({ kind: fc.constant("cut_request" as const), bytes: fc.integer({ min: 0, max: 600 }) }),
  fc.constant<Fault>({ kind: "lose_response" }),
  fc.record({
    kind: fc.constant("cut_response" as const),
    bytes: fc.integer({ min: 0, max: 500 }),
    clean: fc.boolean(),
  }),
  fc.constant<Fault>({ kind: "stall" }),
  fc.record({ kind: fc.constant("answer" as const), response: lies, forward: fc.boolean() }),
);

const breakdown = fc.constantFrom<Breakdown>("before", "after", null);
/** After which request the daemon is killed, and on which side of its decision. */
const kill = fc.option(
  fc.record({ request: fc.integer({ min: 0, max: 3 }), side: fc.constantFrom("before", "after") }),
);
const action = fc.constantFrom("session", "message", "events", "skill", "command", "continuation");

function prepare(client: Client, what: string, text: string): OperationHandle {
  switch (what) {
    case "session":
      return client.prepareSession({ title: text });
    case "events":
      return client.prepareMessage(SESSION, { text, door: "events" });
    case "skill":
      return client.prepareSkill(SESSION, { name: text });
    case "command":
      return client.prepareCommand(SESSION, { name: text });
    case "continuation":
      return client.prepareContinuation(SESSION);
    default:
      return client.prepareMessage(SESSION, { text });
  }
}

interface Outcome {
  readonly kind: "accepted" | "refused" | "uncertain";
  readonly code?: string;
}

async function outcomeOf(handle: OperationHandle): Promise<Outcome> {
  try {
    const accepted = await handle.send();
    expect(accepted.operationId).toBe(handle.operationId);
    return { kind: "accepted" };
  } catch (error) {
    if (error instanceof ApiError) return { kind: "refused", code: error.code };
    if (error instanceof Uncertain) {
      expect(error.handle).toBe(handle);
      return { kind: "uncertain" };
    }
    throw error;
  }
}

/** `SEED=… bun test` runs the plans of a failed run again. */
const replay = process.env["SEED"] === undefined ? {} : { seed: Number(process.env["SEED"]) };

/** A fetch that takes a connection for each request, so that each meets a fault of its own. */
function lonelyFetch(url: string, init: RequestInit): Promise<Response> {
  return fetch(url, { ...init, keepalive: false });
}

test("an action happens once or is uncertain, never twice, whatever the network does", async () => {
  let runs = 0;
  const scenario = fc.record({
    what: action,
    isRefused: fc.boolean(),
    faults: fc.array(fault, { maxLength: 5 }),
    breakdowns: fc.array(breakdown, { maxLength: 3 }),
    kill,
  });
  await fc.assert(
    fc.asyncProperty(scenario, async ({ what, isRefused, faults, breakdowns, kill: death }) => {
      const text = what === "continuation" ? "" : `action ${(runs += 1)}`;
      await using daemon = new FakeDaemon();
      daemon.start();
      daemon.breakdowns.push(...breakdowns);
      if (isRefused) daemon.refused.add(text);
      let restarted = Promise.resolve();
      const restart = (): Promise<void> => {
        restarted = daemon.kill().then(() => daemon.start());
        return restarted;
      };
      let healed = false;
      let requests = 0;
      let answers = 0;
      await using proxy = await HostileProxy.start({
        target: () => {
          requests += 1;
          if (!healed && death?.side === "before" && death.request === requests) void restart();
          return daemon.port;
        },
        onAnswer: async () => {
          answers += 1;
          if (!healed && death?.side === "after" && death.request === answers) await restart();
        },
      });
      proxy.plan.push(...faults);

      const options = { url: proxy.url, token: FAKE_TOKEN, fetch: lonelyFetch };
      const handle = prepare(createClient({ ...options, clock }), what, text);
      const stored = JSON.stringify(handle);
      const outcome = await outcomeOf(handle);
      const posted = proxy.requests.filter((line) => !line.startsWith("GET ")).length;
      expect(posted).toBeLessThanOrEqual(2);

      // What was on its way arrives or is gone by now; the network heals and the program starts anew.
      healed = true;
      proxy.plan.length = 0;
      daemon.breakdowns.length = 0;
      await Promise.all([restarted, proxy.settled()]);
      const done = daemon.actions.get(text) ?? 0;
      expect(done).toBeLessThanOrEqual(1);
      if (outcome.kind === "accepted") expect(done).toBe(1);
      if (outcome.kind === "refused") {
        expect(done).toBe(0);
        expect(outcome.code).toBe("queue_full");
      }
      const resolution = await createClient(options).restoreHandle(stored).resolve();
      const decided = daemon.decisions.has(handle.operationId);
      expect(resolution.status).toBe(decided ? (isRefused ? "rejected" : "accepted") : "unknown");
      expect(daemon.decisions.size).toBe(decided ? 1 : 0);

      // To send the stored action again is still the same action.
      const again = await outcomeOf(createClient(options).restoreHandle(stored));
      expect(again.kind).toBe(isRefused ? "refused" : "accepted");
      expect(daemon.actions.get(text) ?? 0).toBe(isRefused ? 0 : 1);
      expect(daemon.decisions.size).toBe(1);
    }),
    { numRuns: 60, ...replay },
  );
}, 120_000);

test("an acknowledgement that is cut at any byte is an acknowledgement in the end", async () => {
  await using daemon = new FakeDaemon();
  daemon.start();
  await using proxy = await HostileProxy.start({ target: () => daemon.port });
  const client = createClient({
    url: proxy.url,
    token: FAKE_TOKEN,
    clock: impatientClock,
    fetch: lonelyFetch,
  });
  const answerBytes = await wholeAnswerBytes(daemon);
  let actions = 0;
  for (let bytes = 0; bytes < answerBytes; bytes += 1) {
    for (const clean of [false, true]) {
      proxy.plan.push({ kind: "cut_response", bytes, clean });
      const text = `cut at ${bytes} ${clean}`;
      const accepted = await client.sendMessage(SESSION, { text });
      actions += 1;
      expect(accepted.replayed).toBe(true);
      expect(daemon.actions.get(text)).toBe(1);
      expect(daemon.submissions).toBe(actions);
    }
  }
});

/** How long the raw acknowledgement of a message is. */
async function wholeAnswerBytes(daemon: FakeDaemon): Promise<number> {
  let seen = 0;
  const { promise, resolve } = Promise.withResolvers<number>();
  const body = '{"kind":"message","text":"measure"}';
  const id = "0192f0c1-2345-7abc-8def-0123456789ff";
  await Bun.connect({
    hostname: "127.0.0.1",
    port: daemon.port ?? 0,
    socket: {
      open: (socket) => {
        socket.write(
          `PUT /sessions/${SESSION}/inputs/${id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n` +
            `authorization: Bearer ${FAKE_TOKEN}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        );
      },
      data: (_socket, data) => {
        seen += data.length;
      },
      close: () => resolve(seen),
    },
  });
  daemon.submissions = -1;
  const bytes = await promise;
  daemon.submissions = 0;
  return bytes;
}
