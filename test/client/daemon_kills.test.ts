import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { createClient } from "../../src/client/client.ts";
import type { Client, OperationHandle } from "../../src/client/client.ts";
import { ChildDaemon } from "../support/daemon.ts";
import { HostileProxy } from "../support/hostile_proxy.ts";
import { until } from "../support/until.ts";
import { impatientClock } from "./hurried_clock.ts";

/**
 * Goal: "daemon killed between" (issue "The client library", 2): a SIGKILL at either side of the decision neither
 * loses nor doubles the action, and the client finds the daemon's successor by itself. Method: a daemon process that
 * is killed by the proxy in the middle of an exchange and started again on its home.
 */

setDefaultTimeout(60_000);

/**
 * - `arrival`: as the request comes, before any of it is passed on.
 * - `forwarding`: with the request on its way, so that the decision may or may not be made.
 * - `answer`: after the answer, which the client never sees.
 */
const moments = ["arrival", "forwarding", "answer"] as const;

async function sendThroughKill(
  daemon: ChildDaemon,
  moment: (typeof moments)[number],
  prepare: (client: Client) => OperationHandle,
): Promise<OperationHandle> {
  let killed = false;
  let successor = Promise.resolve();
  const kill = (): Promise<void> => {
    killed = true;
    const end = daemon.end("SIGKILL");
    successor = end.then(() => daemon.start());
    return end.then(() => {});
  };
  await using proxy = await HostileProxy.start({
    target: () => {
      if (moment === "arrival" && !killed) void kill();
      return Number(new URL(daemon.url).port);
    },
    onRequest: () => {
      if (moment === "forwarding" && !killed) setImmediate(() => void kill());
    },
    onAnswer: async () => {
      if (moment === "answer" && !killed) await kill();
    },
  });
  if (moment === "answer") proxy.plan.push({ kind: "lose_response" });
  const client = createClient({
    clock: impatientClock,
    endpoint: async () => {
      await successor;
      return { url: proxy.url, token: daemon.token };
    },
  });
  const handle = prepare(client);
  const accepted = await handle.send({ timeoutMs: Infinity });
  expect(killed).toBe(true);
  expect(accepted.operationId).toBe(handle.operationId);
  const posted = proxy.requests.filter((line) => !line.startsWith("GET ")).length;
  expect(posted).toBeLessThanOrEqual(2);
  await successor;
  return handle;
}

describe("a daemon that is killed in the middle of an exchange", () => {
  for (const moment of moments) {
    test(`at the ${moment}: creation and message are done once`, async () => {
      await using daemon = await ChildDaemon.start();
      const { workspace } = daemon;
      const title = `killed at the ${moment}`;
      const fields = { title, workspace, model: "demo/demo" };
      await sendThroughKill(daemon, moment, (client) => client.prepareSession(fields));
      const client = createClient({ endpoint: () => ({ url: daemon.url, token: daemon.token }) });
      const { items } = await client.listSessions();
      expect(items.map((session) => session.title)).toEqual([title]);

      const sessionId = items[0]?.id ?? "";
      const handle = await sendThroughKill(daemon, moment, (each) => {
        return each.prepareMessage(sessionId, { text: title });
      });
      const input = await until("its turn to end", async () => {
        const { turn } = await client.getInput(sessionId, handle.operationId);
        return turn?.ended_at === undefined ? null : turn;
      });
      expect(input.members).toEqual([handle.operationId]);
      const { items: rows } = await client.history(sessionId);
      expect(rows.filter((row) => row.display_text === title)).toHaveLength(1);
    });
  }

  test("streams find its successor, and its work goes on", async () => {
    await using daemon = await ChildDaemon.start();
    let successor = Promise.resolve();
    const client = createClient({
      clock: impatientClock,
      endpoint: async () => {
        await successor;
        return { url: daemon.url, token: daemon.token };
      },
    });
    const { workspace } = daemon;
    const { sessionId } = await client.createSession({ workspace, model: "demo/demo" });
    const answers: string[] = [];
    const states: string[] = [];
    let killedAt: string | null = null;
    const subscription = client.subscribe(sessionId, {
      onReset: () => {},
      onEvent: (event) => {
        if (event.kind === "text_delta" && killedAt === null) {
          killedAt = event.live_id;
          successor = daemon.end("SIGKILL").then(() => daemon.start());
        }
        if (event.kind === "assistant") answers.push(event.row.text ?? "");
      },
      onState: ({ kind }) => void states.push(kind),
    });
    await until("a live stream", () => states.includes("live"));
    await client.sendMessage(sessionId, { text: "!slow 40\n!repeat 5 going on " });
    await until("the kill", () => killedAt);
    await successor;
    await client.sendMessage(sessionId, { text: "!say here again" });
    await until("the answer", () => answers.some((text) => text.includes("here again")));
    expect(states).not.toContain("ended");
    expect(states).not.toContain("recovering");
    subscription.close();
    await subscription.ended;
  });
});
