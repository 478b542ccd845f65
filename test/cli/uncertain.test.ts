import { describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { StateFile } from "../../src/cli/state_file.ts";
import type { DaemonFile } from "../../src/wire/server.ts";
import { until } from "../support/until.ts";
import { CliWorld, jsonLines } from "./cli_process.ts";

/**
 * Goal: a message that was on its way when something broke happens once, or is kept as uncertain; it is never
 * lost silently and never doubled. Method: a proxy between the program and its daemon, put into `daemon.json`, that
 * holds, drops or answers falsely the one request that submits.
 */
type Fault = "hold" | "drop" | "lose_answer";

class Proxy implements AsyncDisposable {
  /** What becomes of the next submission; the ones after it pass. */
  fault: Fault | null = null;
  /** Drops submissions as long as it stands. */
  deaf = false;
  held = 0;
  readonly #daemon: DaemonFile;
  readonly #server: ReturnType<typeof Bun.serve>;

  constructor(world: CliWorld) {
    const path = join(world.home, "daemon.json");
    this.#daemon = JSON.parse(readFileSync(path, "utf8")) as DaemonFile;
    this.#server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      fetch: (request) => this.#answer(request),
    });
    const url = `http://127.0.0.1:${this.#server.port}`;
    writeFileSync(path, JSON.stringify({ ...this.#daemon, url }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop(true);
  }

  async #answer(request: Request): Promise<Response> {
    const isSubmission = request.method === "PUT";
    const fault = isSubmission ? this.fault : null;
    if (isSubmission) this.fault = null;
    if (isSubmission && this.deaf) return new Response("gone", { status: 502 });
    if (fault === "drop") return new Response("gone", { status: 502 });
    if (fault === "hold") {
      this.held += 1;
      await new Promise(() => undefined);
    }
    const { pathname, search } = new URL(request.url);
    const headers = new Headers(request.headers);
    for (const name of ["host", "accept-encoding", "connection"]) headers.delete(name);
    const response = await fetch(`${this.#daemon.url}${pathname}${search}`, {
      method: request.method,
      headers,
      ...(request.body === null ? {} : { body: await request.arrayBuffer() }),
      signal: request.signal,
      decompress: false,
    });
    if (fault === "lose_answer") return new Response("gone", { status: 502 });
    return new Response(response.body, { status: response.status, headers: response.headers });
  }
}

/** A world with a daemon, a session in it, and a proxy before it. */
async function proxied(world: CliWorld): Promise<{ proxy: Proxy; sessionId: string }> {
  const [first] = await world.json<{ session_id: string }>(["prompt", "!say ready"]);
  return { proxy: new Proxy(world), sessionId: first?.session_id ?? "" };
}

async function userTexts(world: CliWorld, sessionId: string): Promise<string[]> {
  const rows = await world.json<{ role: string; display_text?: string }>([
    "show",
    sessionId,
    "--all",
  ]);
  return rows.filter((row) => row.role === "user").map((row) => row.display_text ?? "");
}

describe("a message whose answer is lost", () => {
  test.each(["drop", "lose_answer"] as const)("%s: is sent once in the end", async (fault) => {
    await using world = new CliWorld();
    const { proxy, sessionId } = await proxied(world);
    await using _ = proxy;
    proxy.fault = fault;
    const { code, stdout } = await world.run(["prompt", "-q", "-s", sessionId, "!say once"]);
    expect(code).toBe(0);
    expect(stdout).toContain("once");
    expect(await userTexts(world, sessionId)).toEqual(["!say ready", "!say once"]);
    expect((await world.run(["operation"])).stderr).toContain("No operation is unresolved");
  });

  test("because the program was killed: is kept, and can be sent again or given up", async () => {
    await using world = new CliWorld();
    const { proxy, sessionId } = await proxied(world);
    await using _ = proxy;
    proxy.fault = "hold";
    const running = world.start(["prompt", "-s", sessionId, "!say kept"]);
    await until("the held message", () => proxy.held === 1);
    running.process.kill("SIGKILL");
    await running.outcome;
    const [kept] = await new StateFile(world.home).list();
    expect(kept).toMatchObject({
      session_id: sessionId,
      awaits: "admission",
      summary: "!say kept",
    });
    const id = kept?.operation_id ?? "";
    const asked = await world.run(["operation"]);
    expect(asked.code).toBe(3);
    expect(asked.stdout).toContain(id);
    expect(await userTexts(world, sessionId)).toEqual(["!say ready"]);
    expect((await world.run(["operation", id, "--retry"])).code).toBe(0);
    await until("the message", async () => (await userTexts(world, sessionId)).length === 2);
    expect((await world.run(["operation"])).code).toBe(0);
  });

  test("twice: is uncertain at once, and stays listed until it is given up", async () => {
    await using world = new CliWorld();
    const { proxy, sessionId } = await proxied(world);
    await using _ = proxy;
    proxy.deaf = true;
    const { code, stdout, stderr } = await world.run([
      "prompt",
      "--json",
      "-s",
      sessionId,
      "!say never",
    ]);
    expect(code).toBe(3);
    const { outcome, operation_id: id = "" } = resultOf(stdout);
    expect(outcome).toBe("uncertain");
    expect(stderr).toContain(`albedo operation ${id}`);
    const listed = await world.run(["operation"]);
    expect(listed.code).toBe(3);
    expect(listed.stdout).toContain(id);
    expect((await world.run(["operation", id, "--forget"])).code).toBe(0);
    expect((await world.run(["operation"])).code).toBe(0);
  });

  test("until the time is over: exits with 124 and does not claim a cancellation", async () => {
    await using world = new CliWorld();
    const { proxy, sessionId } = await proxied(world);
    await using _ = proxy;
    proxy.fault = "hold";
    const { code, stdout, stderr } = await world.run([
      "prompt",
      "--json",
      "--timeout",
      "3",
      "-s",
      sessionId,
      "!say late",
    ]);
    expect(code).toBe(124);
    expect(stderr).toContain("timed out after 3 s; unconfirmed cancellation");
    const { cancellation, operation_id: id = "" } = resultOf(stdout);
    expect(cancellation).toBe("unconfirmed");
    expect((await world.run(["operation", id])).code).toBe(3);
  });
});

interface Result {
  readonly type: string;
  readonly outcome?: string;
  readonly cancellation?: string;
  readonly operation_id?: string;
}

function resultOf(stdout: string): Result {
  const last = jsonLines<Result>(stdout).at(-1);
  if (last?.type !== "result") throw new Error(`The last line is no result: ${stdout}`);
  return last;
}
