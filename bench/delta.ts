import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { EventStream } from "./support/event_stream.ts";
import { type ModelPlan, promptFor, stampsIn } from "./support/model_plan.ts";
import { createSession, sendMessage } from "./support/prompting.ts";
import { readStamped } from "./support/stamped_stream.ts";
import { Report } from "./support/report.ts";
import { median, quantile } from "./support/stats.ts";

/**
 * How long a delta is on its way from the provider to a subscriber's socket, beside a bare relay of the same
 * provider's stream, in turns. Each delta carries the time it was sent at. Quiet deltas come further apart than a
 * frame of 16 ms; busy ones share frames.
 */
const ROUNDS = 4;
const QUIET: ModelPlan = { deltas: 40, everyMs: 40, bytes: 24 };
const BUSY: ModelPlan = { deltas: 400, everyMs: 4, bytes: 24 };

async function main(): Promise<void> {
  const report = new Report("delta", "from the provider to a subscriber");
  const model = await spawnHelper("model_server.ts");
  const relay = await spawnHelper("relay_server.ts", [String(model.port)]);
  const daemon = await startDaemon({ modelPort: model.port });
  const sessionId = await createSession(daemon);
  for (const [name, plan, atMost] of [
    ["quiet", QUIET, 2],
    ["busy", BUSY, 16],
  ] as const) {
    for (const coding of ["identity", "zstd"] as const) {
      const more: number[] = [];
      const ours: number[] = [];
      const theirs: number[] = [];
      const rounds = coding === "identity" ? ROUNDS : ROUNDS / 2;
      for (let round = 0; round <= rounds; round += 1) {
        const direct = await throughRelay(relay.port, plan);
        const through = await throughDaemon(daemon, sessionId, plan, coding);
        if (round === 0) continue;
        more.push(median(through) - median(direct));
        ours.push(...through);
        theirs.push(...direct);
      }
      report.figure(`${name}, ${coding}: more than a bare relay, median`, median(more), {
        unit: "ms",
        atMost,
        basis:
          `${median(ours).toFixed(2)} ms to ${median(theirs).toFixed(2)} ms; ` +
          `9 of 10 within ${quantile(ours, 0.9).toFixed(1)} ms`,
      });
    }
  }
  report.finish();
}

async function throughRelay(port: number, plan: ModelPlan): Promise<number[]> {
  const messages = [{ role: "user", content: promptFor(plan) }];
  return readStamped(port, JSON.stringify({ model: "m", stream: true, messages }));
}

async function throughDaemon(
  daemon: Daemon,
  sessionId: string,
  plan: ModelPlan,
  coding: "identity" | "zstd",
): Promise<number[]> {
  const delaysMs: number[] = [];
  const stream = await EventStream.open({
    port: daemon.port,
    token: daemon.token,
    sessionId,
    coding,
    onBatch: (batch) => {
      for (const event of batch.events) {
        if (event.kind !== "text_delta") continue;
        for (const stamp of stampsIn(event.text ?? "")) delaysMs.push(batch.at - stamp);
      }
    },
  });
  const finished = stream.untilEvent("turn_finished");
  await sendMessage(daemon, sessionId, promptFor(plan));
  await finished;
  stream.close();
  if (delaysMs.length !== plan.deltas) {
    throw new Error(`Of ${plan.deltas ?? 0} deltas ${delaysMs.length} arrived`);
  }
  return delaysMs;
}

await main();
