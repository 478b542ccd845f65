import { spawnHelper } from "./support/child.ts";
import { type Daemon, startDaemon } from "./support/daemon.ts";
import { EventStream } from "./support/event_stream.ts";
import { descriptors, rssMb } from "./support/proc.ts";
import { createSession, sendMessage, turnEnded } from "./support/prompting.ts";
import { Report } from "./support/report.ts";

/** What 3,000 short stream connections leave behind: memory and descriptors. */
const CONNECTIONS = 3000;
const AT_ONCE = 30;
const SETTLE_MS = 5000;

async function main(): Promise<void> {
  const report = new Report("connections", `${CONNECTIONS} short streams`);
  const model = await spawnHelper("model_server.ts");
  const daemon = await startDaemon({ modelPort: model.port });
  const sessionId = await createSession(daemon);
  const id = await sendMessage(daemon, sessionId, "Say something short.");
  await turnEnded(daemon, sessionId, id);
  await shortStream(daemon, sessionId, 0);
  await Bun.sleep(300);
  const before = { rss: rssMb(daemon.pid), descriptors: descriptors(daemon.pid) };
  const began = performance.now();
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < CONNECTIONS) await shortStream(daemon, sessionId, next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const seconds = (performance.now() - began) / 1000;
  const right = rssMb(daemon.pid);
  await settle(daemon, before.descriptors);
  const after = { rss: rssMb(daemon.pid), descriptors: descriptors(daemon.pid) };
  report.figure("memory more than before", after.rss - before.rss, {
    unit: "MB",
    digits: 1,
    atMost: 30,
    basis: `${before.rss.toFixed(1)} MB, ${right.toFixed(1)} MB right after, then ${after.rss.toFixed(1)} MB`,
  });
  report.figure("descriptors more than before", after.descriptors - before.descriptors, {
    atMost: 0,
    digits: 0,
  });
  report.figure("streams opened and closed a second", CONNECTIONS / seconds, { digits: 0 });
  report.finish();
}

/** Opens a stream, reads the first batch and goes. Every second one is coded. */
async function shortStream(daemon: Daemon, sessionId: string, number: number): Promise<void> {
  const first = Promise.withResolvers<void>();
  const stream = await EventStream.open({
    port: daemon.port,
    token: daemon.token,
    sessionId,
    coding: number % 2 === 0 ? "identity" : "zstd",
    onBatch: () => first.resolve(),
  });
  await first.promise;
  stream.close();
}

async function settle(daemon: Daemon, before: number): Promise<void> {
  const until = performance.now() + SETTLE_MS;
  while (performance.now() < until && descriptors(daemon.pid) > before) await Bun.sleep(50);
  await Bun.sleep(1000);
}

await main();
