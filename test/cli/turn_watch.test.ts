import { describe, expect, test } from "bun:test";
import type { Shown } from "../../src/cli/stream_follower.ts";
import { watchTurn } from "../../src/cli/turn_watch.ts";
import type { TurnEnd } from "../../src/cli/turn_watch.ts";
import { ApiError, ProtocolError, TransportError } from "../../src/client/client.ts";
import type {
  Client,
  HistoryRow,
  Input,
  SubscribeOptions,
  SubscriptionEnd,
  Turn,
} from "../../src/client/client.ts";
import { problemBody } from "../../src/wire/problem.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { resetEvent as reset } from "../support/reset_event.ts";

/**
 * Goal: "Prompt clients follow their input identity instead of inferring completion from echo metadata or idle
 * status", over lost streams, stopped daemons and deleted sessions. Method: a client whose stream and whose durable
 * input are played by hand, and a clock that is moved.
 */
const SESSION = "0198c1d2-0000-7000-8000-000000000001";
const INPUT = "0198c1d2-0000-7000-8000-000000000002";
const TURN = "0198c1d2-0000-7000-8000-000000000003";

function turn(state: Turn["state"]): Turn {
  return { id: TURN, state, members: [INPUT], started_at: 1 };
}

function input(fields: Partial<Input>): Input {
  return {
    id: INPUT,
    session_id: SESSION,
    kind: "message",
    state: "committed",
    accepted_at: 1,
    ...fields,
  };
}

function row(id: number, fields: Partial<HistoryRow>): HistoryRow {
  return { id, role: "assistant", turn_id: TURN, created_at: 1, ...fields };
}

/** One attachment: what the watcher asked for, and its end. */
interface Attachment {
  readonly options: SubscribeOptions;
  end(end: SubscriptionEnd): void;
}

class PlayedClient {
  readonly attachments: Attachment[] = [];
  rows: HistoryRow[] = [];
  input: Input | Error = new ApiError(404, problemBody("input_not_found"));
  inputReads = 0;

  subscribe(_sessionId: string, options: SubscribeOptions) {
    const { promise, resolve } = Promise.withResolvers<SubscriptionEnd>();
    options.signal?.addEventListener("abort", () => resolve({ reason: "aborted" }));
    this.attachments.push({ options, end: resolve });
    return { position: null, ended: promise, close: () => resolve({ reason: "aborted" }) };
  }

  getInput(): Promise<Input> {
    this.inputReads += 1;
    return this.input instanceof Error ? Promise.reject(this.input) : Promise.resolve(this.input);
  }

  history(_sessionId: string, page: { after?: number }) {
    const items = this.rows.filter((each) => each.id > (page.after ?? 0)).slice(0, 2);
    const last = items.at(-1)?.id ?? 0;
    const more = this.rows.some((each) => each.id > last) && items.length > 0;
    return Promise.resolve({ items, next: more ? last : null, watermark: 0 });
  }

  historyRow(_sessionId: string, id: number) {
    return Promise.resolve(row(id, { text: "the whole text", live_id: "l1" }));
  }
}

function start() {
  const client = new PlayedClient();
  const clock = new FakeClock();
  const shown: Shown[] = [];
  const notices: string[] = [];
  const abort = new AbortController();
  const watched = watchTurn({
    client: client as unknown as Client,
    clock,
    sessionId: SESSION,
    inputId: INPUT,
    afterRow: 0,
    show: (each) => shown.push(each),
    notice: (text) => notices.push(text),
    signal: abort.signal,
  });
  const state: { end: TurnEnd | null } = { end: null };
  watched.then(
    (end) => {
      state.end = end;
    },
    () => undefined,
  );
  const attachment = (index = 0): SubscribeOptions => {
    const found = client.attachments[index];
    if (found === undefined) throw new Error("Nothing is attached");
    return found.options;
  };
  return { client, clock, shown, notices, abort, watched, state, attachment };
}

function textOf(shown: readonly Shown[]): string {
  return shown.map((each) => (each.type === "text" ? each.text : "")).join("");
}

describe("watchTurn", () => {
  test("ends with its turn, and not when the session idles", async () => {
    const { attachment, state, watched } = start();
    const { onReset, onEvent } = attachment();
    await onReset(reset());
    await onEvent({ seq: 2, kind: "status", phase: "idle", running: false });
    await settle();
    expect(state.end).toBeNull();
    await onEvent({ seq: 3, kind: "turn_started", turn: turn("running") });
    await onEvent({
      seq: 4,
      kind: "turn_finished",
      turn: turn("completed"),
      replaces_all_live: true,
    });
    expect(await watched).toEqual({ state: "ended", turn: turn("completed") });
  });

  test("asks the durable input after a reset that shows nothing of it, and prints what it missed", async () => {
    const { client, attachment, shown, watched } = start();
    client.rows = [
      row(1, { role: "user", operation_id: INPUT }),
      row(2, { text: "one ", live_id: "l0" }),
      row(3, { text: "two ", live_id: "l2" }),
      row(4, { text: "cut", live_id: "l1", truncated: true }),
    ];
    client.input = input({ turn: turn("completed") });
    await attachment().onReset(reset({ history_watermark: 4 }));
    expect(await watched).toEqual({ state: "ended", turn: turn("completed") });
    expect(textOf(shown)).toBe("one two the whole text");
  });

  test("says that its input was cancelled by someone else", async () => {
    const { client, attachment, watched } = start();
    client.input = input({ state: "cancelled" });
    await attachment().onEvent({ seq: 2, kind: "input_cancelled", input_id: INPUT });
    expect(await watched).toEqual({ state: "cancelled" });
  });

  test("asks for the outcome where the stream broke the contract for good", async () => {
    const { client, clock, notices, state, watched } = start();
    client.input = input({ turn: turn("running") });
    client.attachments[0]?.end({ reason: "protocol", error: new ProtocolError("Nonsense") });
    await settle();
    expect(notices.join()).toContain("Nonsense");
    expect(state.end).toBeNull();
    client.rows = [row(1, { text: "answer" })];
    client.input = input({ turn: turn("failed") });
    await clock.advance(500);
    expect(await watched).toEqual({ state: "ended", turn: turn("failed") });
  });

  test("attaches anew where a row could not be read, since the connection broke just then", async () => {
    const { client, clock, attachment, watched } = start();
    const error = new TransportError("connection", "Broken");
    client.attachments[0]?.end({ reason: "callback", error });
    await settle();
    await clock.advance(500);
    expect(client.attachments).toHaveLength(2);
    client.input = input({ turn: turn("completed") });
    await attachment(1).onReset(reset());
    expect((await watched).state).toBe("ended");
  });

  test("waits fifteen seconds for a daemon that was stopped, and then leaves the outcome open", async () => {
    const { clock, attachment, state, notices, watched } = start();
    const { onState } = attachment();
    const cause = new TransportError("endpoint", "No daemon runs");
    onState?.({ kind: "waiting", delayMs: 500, cause });
    await clock.advance(15_000);
    onState?.({ kind: "waiting", delayMs: 5000, cause });
    expect(state.end).toBeNull();
    await clock.advance(1);
    onState?.({ kind: "waiting", delayMs: 5000, cause });
    expect(await watched).toEqual({ state: "unreachable", reason: "No daemon runs" });
    expect(notices).toHaveLength(1);
  });

  test("starts the wait anew when the stream has been live in between", async () => {
    const { clock, attachment, state, abort, watched } = start();
    const { onState } = attachment();
    const cause = new TransportError("connection", "Gone");
    onState?.({ kind: "waiting", delayMs: 500, cause });
    await clock.advance(14_000);
    onState?.({ kind: "live" });
    await clock.advance(14_000);
    onState?.({ kind: "waiting", delayMs: 500, cause });
    await settle();
    expect(state.end).toBeNull();
    abort.abort(new Error("enough"));
    const error = await watched.catch((thrown: unknown) => thrown);
    expect(error).toHaveProperty("message", "enough");
  });

  test("says that the session is gone", async () => {
    const { client, watched } = start();
    client.input = new ApiError(404, problemBody("session_not_found"));
    client.attachments[0]?.end({ reason: "refused", error: client.input });
    expect(await watched).toEqual({ state: "deleted" });
  });

  test("waits for a submission that the daemon does not know yet", async () => {
    const { client, attachment, state, abort } = start();
    await attachment().onReset(reset());
    await settle();
    expect(client.inputReads).toBe(1);
    expect(state.end).toBeNull();
    abort.abort();
  });
});
