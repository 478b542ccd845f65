import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Child, spawnChild } from "./child.ts";
import { compiledDaemon } from "./executable.ts";
import { bodyJson, Connection, encodeRequest, type RequestOptions } from "./http_client.ts";
import { atEnd, ROOT, temporaryDirectory } from "./paths.ts";

/** Owns a daemon process of the bench's own, in a home of its own. */

/** `compiled` is the executable, `script` what `bun run daemon` starts, `source` the program uncompiled. */
export type Flavour = "compiled" | "script" | "source";

export interface DaemonOptions {
  readonly flavour?: Flavour;
  /** A home that is there already. */
  readonly home?: string;
  /** Of the local model server; without one the model is one that is never asked. */
  readonly modelPort?: number;
  readonly env?: Record<string, string>;
  /** Runs this script in place of the daemon's own entry. */
  readonly entry?: string;
}

export interface Daemon {
  readonly home: string;
  readonly workspace: string;
  readonly port: number;
  readonly token: string;
  /** Of the process that answers, which the one started may have turned into or started. */
  readonly pid: number;
  /** From the start of the process to its first answer, on `GET /health`. */
  readonly readyMs: number;
  request(options: Omit<RequestOptions, "port" | "token">): Promise<unknown>;
  encode(options: Omit<RequestOptions, "port" | "token">): Uint8Array;
  /** Stops as a person would. */
  stop(): Promise<void>;
  kill(): Promise<void>;
}

export const MODEL = "bench/m";

export function makeHome(modelPort: number | undefined): string {
  const home = join(temporaryDirectory(), "home");
  mkdirSync(home, { mode: 0o700 });
  writeConfig(home, modelPort);
  return home;
}

export function writeConfig(home: string, modelPort: number | undefined): void {
  const lines = [
    `model = "${MODEL}"`,
    "[providers.bench]",
    'kind = "openai-compatible"',
    `base_url = "http://127.0.0.1:${modelPort ?? 9}/v1"`,
    'models = ["m"]',
  ];
  writeFileSync(join(home, "config.toml"), `${lines.join("\n")}\n`);
}

async function commandOf(options: DaemonOptions): Promise<string[]> {
  if (options.entry !== undefined) return [process.execPath, options.entry, "daemon"];
  switch (options.flavour ?? "compiled") {
    case "compiled":
      return [await compiledDaemon(), "daemon"];
    case "script":
      return [process.execPath, "run", "--silent", "daemon"];
    case "source":
      return [process.execPath, join(ROOT, "src", "main.ts"), "daemon"];
  }
}

export async function startDaemon(options: DaemonOptions = {}): Promise<Daemon> {
  const home = options.home ?? makeHome(options.modelPort);
  const workspace = join(home, "workspace");
  mkdirSync(workspace, { recursive: true });
  const port = await freePort();
  const command = await commandOf(options);
  const began = performance.now();
  const child = spawnChild(command, {
    env: { ALBEDO_HOME: home, ALBEDO_PORT: String(port), ALBEDO_LOG: "warn", ...options.env },
    ...(options.flavour === "script" ? { cwd: ROOT } : {}),
  });
  await firstAnswer(port, child);
  const readyMs = performance.now() - began;
  const { token, pid } = await discovery(home, child);
  return daemonAt({ home, workspace, port, token, pid, readyMs, child });
}

function daemonAt(
  facts: Pick<Daemon, "home" | "workspace" | "port" | "token" | "pid" | "readyMs"> & {
    readonly child: Child;
  },
): Daemon {
  const { child, ...rest } = facts;
  const { port, token, pid } = rest;
  let exited = false;
  void child.exited.then(() => {
    exited = true;
  });
  // A script's process is not the daemon's.
  atEnd(() => {
    if (!exited) process.kill(pid, "SIGKILL");
  });
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    process.kill(pid, signal);
    await child.exited;
  };
  return {
    ...rest,
    async request(options) {
      const connection = await Connection.open(port);
      try {
        const answer = await connection.send(encodeRequest({ ...options, port, token }));
        if (answer.status >= 400) {
          throw new Error(
            `${options.method} ${options.path}: ${answer.status} ${answer.body.toString()}`,
          );
        }
        return answer.body.length === 0 ? null : bodyJson(answer);
      } finally {
        connection.close();
      }
    },
    encode: (options) => encodeRequest({ ...options, port, token }),
    stop: () => end("SIGTERM"),
    kill: () => end("SIGKILL"),
  };
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

/** Asks for `GET /health` until it is answered. A refused connection costs next to nothing. */
export async function firstAnswer(port: number, child: Child): Promise<void> {
  const request = encodeRequest({ method: "GET", path: "/health", port });
  let exited = false;
  void child.exited.then(() => {
    exited = true;
  });
  const deadline = performance.now() + 30_000;
  while (!exited && performance.now() < deadline) {
    try {
      const connection = await Connection.open(port);
      const answer = await connection.send(request);
      connection.close();
      if (answer.status === 200) return;
    } catch {
      // Nobody listens yet.
    }
    await Bun.sleep(1);
  }
  throw new Error(`The daemon did not answer:\n${await child.output()}`);
}

async function discovery(home: string, child: Child): Promise<{ token: string; pid: number }> {
  const file = Bun.file(join(home, "daemon.json"));
  for (let tries = 0; tries < 1000; tries += 1) {
    try {
      return (await file.json()) as { token: string; pid: number };
    } catch {
      await Bun.sleep(1);
    }
  }
  throw new Error(`The daemon left no daemon.json:\n${await child.output()}`);
}
