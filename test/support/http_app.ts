import type { Log, LogFields } from "../../src/base/log.ts";
import { type App, type AppDependencies, createApp } from "../../src/http/app.ts";
import { type Listener, listen } from "../../src/http/listener.ts";
import { originRules } from "../../src/http/origins.ts";
import { FakeClock } from "./fake_clock.ts";
import { fakeSessions } from "./fake_sessions.ts";

export const TEST_TOKEN = "t".repeat(43);
export const TEST_INSTANCE = "01970000-0000-7000-8000-00000000000a";

export interface TestApp extends AsyncDisposable {
  readonly app: App;
  readonly listener: Listener;
  readonly clock: FakeClock;
  readonly logged: { readonly message: string; readonly fields: LogFields }[];
  /** A request with the token, unless the headers say otherwise. */
  request(path: string, init?: RequestInit): Promise<Response>;
}

/** The HTTP floor on a real socket, over whatever session floor a test gives it. */
export function startTestApp(dependencies: Partial<AppDependencies> = {}): TestApp {
  const clock = new FakeClock();
  const { log, logged } = recordingLog();
  const app = createApp({
    sessions: fakeSessions({}),
    models: { list: () => [] },
    skills: { list: () => [] },
    info: {
      name: "albedo",
      version: "0.0.0",
      protocol: 1,
      instance_id: TEST_INSTANCE,
      pid: 1,
      started_at: clock.now(),
      capabilities: { session_replay: 2 },
      limits: {},
    },
    rules: originRules("127.0.0.1", []),
    token: TEST_TOKEN,
    clock,
    log,
    shutdown: () => {},
    ...dependencies,
  });
  const listener = listen(app, { host: "127.0.0.1", port: 0 });
  return {
    app,
    listener,
    clock,
    logged,
    request(path, init = {}) {
      const headers = new Headers(init.headers);
      if (!headers.has("authorization")) headers.set("authorization", `Bearer ${TEST_TOKEN}`);
      return fetch(listener.url + path, { ...init, headers });
    },
    [Symbol.asyncDispose]: () => listener.close(),
  };
}

function recordingLog(): { log: Log; logged: { message: string; fields: LogFields }[] } {
  const logged: { message: string; fields: LogFields }[] = [];
  const record = (message: string, fields: LogFields = {}): void => {
    logged.push({ message, fields });
  };
  return { log: { debug: record, info: record, warn: record, error: record }, logged };
}
