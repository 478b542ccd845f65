import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { tempDir } from "../support/temp_dir.ts";
import { FAKE_TOKEN, FakeDaemon } from "./fake_daemon.ts";
import { StreamServer } from "./stream_server.ts";
import { ModelSession } from "./model_session.ts";
import { SESSION } from "./stream_script.ts";

/**
 * Goal: the bundled client runs where Bun is not (issue "The client library", 1). Method: it is bundled for browsers,
 * looked through for what a browser has not, and driven by a program under Node.
 */

// Real sockets on a machine that may be busy.
setDefaultTimeout(60_000);

const node = Bun.which("node");

/** The program that runs under Node: the client's bundle and two servers are its arguments. */
const PROGRAM = `
const [bundle, daemon, stream, token, session] = process.argv.slice(2);
const { createClient, Transcript, Uncertain } = await import(bundle);
const client = createClient({ url: daemon, token });
const created = await client.createSession({ title: "from node" });
const handle = client.prepareMessage(session, { text: "once", images: [{ mimeType: "image/png", data: new Uint8Array([1, 255]) }] });
const kept = JSON.stringify(handle);
const accepted = await handle.send();
const resolved = await client.restoreHandle(kept).resolve();
let aborted = null;
try {
  await client.sendMessage(session, { text: "never" }, { signal: AbortSignal.abort(new Error("aborted")) });
} catch (error) {
  aborted = error.message;
}
const transcript = new Transcript();
const states = [];
const watching = createClient({ url: stream, token }).subscribe(session, {
  onReset: (reset) => transcript.apply(reset),
  onEvent: (event) => transcript.apply(event),
  onBatch: () => {
    if (transcript.turn?.state === "completed" && transcript.phase === "idle") watching.close();
  },
  onState: (state) => states.push(state.kind),
});
const end = await watching.ended;
console.log(JSON.stringify({
  version: process.versions.node,
  created: created.operationId === created.sessionId,
  accepted: accepted.operationId === handle.operationId,
  resolved: resolved.status,
  aborted,
  states,
  end,
  rows: transcript.rows,
}));
`;

async function bundle(directory: string): Promise<string> {
  const entry = new URL("../../src/client/client.ts", import.meta.url).pathname;
  const built = await Bun.build({ entrypoints: [entry], target: "browser" });
  const [output] = built.outputs;
  if (output === undefined) throw new Error("Nothing was built");
  const path = join(directory, "client.mjs");
  await Bun.write(path, output);
  return path;
}

test("the bundle imports nothing and names nothing that a browser has not", async () => {
  using directory = tempDir();
  const text = await Bun.file(await bundle(directory.path)).text();
  expect(text.match(/\b(?:import|from)\s*\(?\s*["'][^"']+["']/g)).toBeNull();
  expect(text).not.toMatch(/\brequire\(|\bBun\.|\bprocess\.|\bBuffer\./);
  expect(text.length).toBeLessThan(250_000);
});

test.skipIf(node === null)(
  "the bundle sends, resolves, watches and waits for a reconnect under Node",
  async () => {
    using directory = tempDir();
    const path = await bundle(directory.path);
    const program = join(directory.path, "program.mjs");
    await Bun.write(program, PROGRAM);
    await using daemon = new FakeDaemon();
    daemon.start();
    const session = new ModelSession([
      { kind: "submit", text: "gruß" },
      { kind: "delta", thinking: false, text: "né 漢字 🙂" },
      { kind: "commit" },
      { kind: "finish" },
    ]);
    const options = { coding: "identity" as const, window: 256, tail: 50, spillOver: 1000 };
    await using server = await StreamServer.start(session, options);
    server.plan.push({ cutAt: 700, happen: 4, pieceBytes: 3 });

    const child = Bun.spawn(
      [node ?? "node", program, path, daemon.url, server.url, FAKE_TOKEN, SESSION],
      { stdout: "pipe", stderr: "pipe" },
    );
    const [output, complaints] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    expect(complaints).toBe("");
    expect(await child.exited).toBe(0);
    const result = JSON.parse(output) as Record<string, unknown>;
    expect(Number(String(result["version"]).split(".")[0])).toBeGreaterThanOrEqual(20);
    expect(result).toMatchObject({
      created: true,
      accepted: true,
      resolved: "accepted",
      aborted: "aborted",
      end: { reason: "aborted" },
      states: ["connecting", "live", "waiting", "connecting", "live"],
    });
    expect(result["rows"]).toEqual([...(session.truths.at(-1)?.rows ?? [])]);
    expect([...daemon.actions.values()]).toEqual([1, 1]);
  },
);
