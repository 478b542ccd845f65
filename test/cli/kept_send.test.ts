import { describe, expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CliError } from "../../src/cli/exit.ts";
import { sendKept } from "../../src/cli/kept_send.ts";
import { StateFile } from "../../src/cli/state_file.ts";
import { ApiError, Client, Uncertain } from "../../src/client/client.ts";
import { FAKE_TOKEN, FakeDaemon } from "../client/fake_daemon.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/**
 * Goal: the handle is on disk before the first byte leaves and goes only when the outcome is known. Method: a
 * daemon in memory that loses answers, and a look at the state file from inside of the sending.
 */
const SESSION = "0198c1d2-0000-7000-8000-0000000000aa";

function context(home: string) {
  return { state: new StateFile(home), clock: new FakeClock() };
}

function client(daemon: FakeDaemon, watch: () => void | Promise<void> = () => undefined): Client {
  return new Client({
    url: daemon.url,
    token: FAKE_TOKEN,
    fetch: async (url, init) => {
      await watch();
      return await fetch(url, init);
    },
  });
}

describe("sendKept", () => {
  test("keeps the handle while the operation is under way, and forgets it once it is decided", async () => {
    using home = tempDir();
    await using daemon = new FakeDaemon();
    daemon.start();
    const { state, clock } = context(home.path);
    let keptWhileSending = 0;
    const handle = client(daemon, async () => {
      keptWhileSending = (await state.list()).length;
    }).prepareMessage(SESSION, { text: "hello" });
    await sendKept({ state, clock }, handle, "hello", {});
    expect(keptWhileSending).toBe(1);
    expect(await state.list()).toEqual([]);
    expect(daemon.actions.get("hello")).toBe(1);
  });

  test("forgets a refusal, which is an outcome", async () => {
    using home = tempDir();
    await using daemon = new FakeDaemon();
    daemon.start();
    daemon.refused.add("hello");
    const { state, clock } = context(home.path);
    const handle = client(daemon).prepareMessage(SESSION, { text: "hello" });
    const error = await sendKept({ state, clock }, handle, "hello", {}).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ApiError);
    expect(await state.list()).toEqual([]);
  });

  test("leaves an uncertain one behind, from which a later program learns the outcome", async () => {
    using home = tempDir();
    await using daemon = new FakeDaemon();
    daemon.start();
    const { state, clock } = context(home.path);
    const abort = new AbortController();
    const sending = client(daemon, () => {
      // The person gives up while the bytes may already be with the daemon.
      abort.abort(new Error("enough"));
    }).prepareMessage(SESSION, { text: "hello" });
    const error = await sendKept({ state, clock }, sending, "hello", {
      signal: abort.signal,
    }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(Uncertain);
    const [kept] = await new StateFile(home.path).list();
    expect(kept).toMatchObject({
      operation_id: sending.operationId,
      session_id: SESSION,
      awaits: "admission",
      summary: "hello",
    });
    const restored = client(daemon).restoreHandle(kept?.handle);
    await restored.send();
    expect((await restored.resolve()).status).toBe("accepted");
    expect(daemon.actions.get("hello")).toBe(1);
  });

  test("sends nothing that could not be kept", async () => {
    await using daemon = new FakeDaemon();
    daemon.start();
    const handle = client(daemon).prepareMessage(SESSION, { text: "hello" });
    const error = await sendKept(context("/dev/null/home"), handle, "hello", {}).catch(
      (e: unknown) => e,
    );
    expect(error).toBeInstanceOf(CliError);
    expect((error as CliError).hints).toEqual(["Nothing was sent"]);
    expect(daemon.submissions).toBe(0);
    expect(handle.maybeSent).toBe(false);
  });

  test("takes an acceptance for one also where the handle cannot go", async () => {
    using home = tempDir();
    await using daemon = new FakeDaemon();
    daemon.start();
    const directory = join(home.path, "client", "operations");
    const handle = client(daemon, () => {
      // A file where the directory would be stops root as well.
      rmSync(directory, { recursive: true });
      writeFileSync(directory, "");
    }).prepareMessage(SESSION, { text: "hello" });
    const accepted = await sendKept(context(home.path), handle, "hello", {});
    expect(accepted.operationId).toBe(handle.operationId);
  });
});
