import { runDaemon } from "../../src/cli/daemon.ts";

/**
 * The daemon's process with a mistake in it: shortly after the start something throws where nobody catches, and
 * something rejects where nobody listens. Run as `bun test/support/faulty_daemon.ts`.
 */
setTimeout(() => {
  throw new RangeError("a person's words in a mistake");
}, 50);
setTimeout(() => {
  void Promise.reject(new TypeError("a person's words in a mistake"));
}, 60);
process.exit(await runDaemon({ port: null }));
