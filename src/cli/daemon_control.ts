import { sleep } from "../base/clock.ts";
import { SHUTDOWN_MS_MAX } from "../base/limits.ts";
import { ApiError, Client, TransportError } from "../client/client.ts";
import type { Context } from "./context.ts";
import { isAlive } from "../base/process_alive.ts";
import { findDaemon, notAnswering } from "./discovery.ts";
import { CliError, EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";

/** Owns `albedo daemon --status` and `--stop`. Neither ever starts a daemon. */

/** Stopping in order takes at most `SHUTDOWN_MS_MAX`; the rest is for a busy machine. */
const GONE_MS_MAX = 2 * SHUTDOWN_MS_MAX;
const POLL_MS = 10;

/** @returns 0 where a daemon runs, 1 where none does */
export async function daemonStatus(
  context: Context,
  options: { readonly json: boolean },
): Promise<ExitCode> {
  const found = await findDaemon(context.home);
  const { stdout } = context.output;
  const running = found.state === "running";
  if (options.json) {
    stdout.json({
      state: found.state,
      home: context.home,
      ...(found.state === "absent" ? {} : { url: found.file.url, pid: found.file.pid }),
      ...(running ? { server: found.server } : {}),
    });
    return running ? EXIT.done : EXIT.failed;
  }
  switch (found.state) {
    case "running": {
      const { server, file } = found;
      const seconds = Math.round((context.clock.now() - server.started_at) / 1000);
      stdout.line(["green", "running"], `  ${file.url}`);
      stdout.line(`  process   ${file.pid}, for ${seconds} s`);
      stdout.line(`  version   ${server.version} (protocol ${server.protocol})`);
      stdout.line(`  instance  ${server.instance_id}`);
      break;
    }
    case "absent":
      stdout.line("not running");
      break;
    case "dead":
      stdout.line(`not running: process ${found.file.pid} was killed or has crashed`);
      break;
    case "silent":
      stdout.line(`not answering: process ${found.file.pid} at ${found.file.url}: ${found.reason}`);
      break;
  }
  stdout.line(`  home      ${context.home}`);
  return running ? EXIT.done : EXIT.failed;
}

/** Stops the daemon in order and waits until its process is gone. */
export async function daemonStop(
  context: Context,
  options: { readonly json: boolean },
): Promise<ExitCode> {
  const found = await findDaemon(context.home);
  const { stdout, stderr } = context.output;
  if (found.state === "absent" || found.state === "dead") {
    if (options.json) stdout.json({ state: found.state, home: context.home });
    else stderr.line("No daemon is running");
    return EXIT.done;
  }
  const { file } = found;
  if (found.state === "silent") throw notAnswering(found);
  const client = new Client({ url: file.url, token: file.token, clock: context.clock });
  try {
    await client.shutdown(file.instance_id);
  } catch (error) {
    // It may have gone before its answer was read, or be stopping for another's sake.
    const going =
      error instanceof TransportError ||
      (error instanceof ApiError && error.code === "daemon_stopping");
    if (!going) throw error;
  }
  const startedAt = context.clock.monotonic();
  while (isAlive(file.pid)) {
    if (context.clock.monotonic() - startedAt > GONE_MS_MAX) {
      throw new CliError(`Process ${file.pid} was told to stop and still runs`, {
        hints: [`\`kill -9 ${file.pid}\` ends it; nothing that was accepted is lost by that`],
      });
    }
    await sleep(context.clock, POLL_MS);
  }
  if (options.json) stdout.json({ state: "stopped", home: context.home, pid: file.pid });
  else stderr.line(`Stopped the daemon (process ${file.pid})`);
  return EXIT.done;
}
