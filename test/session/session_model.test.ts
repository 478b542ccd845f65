import { expect, setDefaultTimeout, test } from "bun:test";
import * as fc from "fast-check";
import type { Tool, ToolResult } from "../../src/agent/tool.ts";
import type { CancelResult } from "../../src/wire/input.ts";
import { settle } from "../support/fake_clock.ts";
import { SessionBench, seededRandom } from "../support/session_bench.ts";
import { until } from "../support/until.ts";

// A bound on failure for a slow machine; nothing waits for it.
setDefaultTimeout(60_000);

/**
 * Goal: whatever the order of sends, retries, cancels, interrupts, crashes and restarts, also at the same moment, every
 * acknowledged input has one outcome, is read by the model at most once, and nothing is left running. Method: random
 * scripts of groups; the actions of a group are begun together. The model is a map of what was answered; it is compared
 * with what the session says, and with the history.
 */
type Action =
  | { readonly kind: "send"; readonly owner: number | null }
  | { readonly kind: "retry" | "cancel"; readonly which: number }
  | { readonly kind: "cancel_owner"; readonly owner: number }
  | { readonly kind: "interrupt" | "answer" | "call" | "fail" };

interface Group {
  readonly actions: readonly Action[];
  /** How much of what was begun gets done before the next group. */
  readonly rounds: number;
  readonly after: "nothing" | "crash" | "restart" | "hour";
}

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("send" as const),
      owner: fc.option(fc.nat(1), { nil: null }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom("retry" as const, "cancel" as const),
      which: fc.nat(20),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("cancel_owner" as const), owner: fc.nat(1) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        "answer" as const,
        "answer" as const,
        "call" as const,
        "fail" as const,
        "interrupt" as const,
      ),
    }),
  },
);

const groups: fc.Arbitrary<Group[]> = fc.array(
  fc.record({
    actions: fc.array(action, { minLength: 1, maxLength: 5 }),
    rounds: fc.nat(6),
    after: fc.constantFrom("nothing", "nothing", "nothing", "nothing", "crash", "restart", "hour"),
  }),
  { minLength: 1, maxLength: 10 },
);

const echo: Tool = {
  name: "echo",
  description: "Says what it was told",
  parameters: { type: "object" },
  run: async (): Promise<ToolResult> => ({ output: "echo", isError: false }),
};

class World {
  readonly bench: SessionBench;
  readonly session: string;
  readonly owners: readonly string[];
  /** Acknowledged inputs in the order they were sent. */
  readonly sent: { id: string; text: string; owner: number | null }[] = [];
  readonly cancels: { id: string; result: CancelResult }[] = [];
  /** Inputs that someone had a reason to stop: their own cancellation, an interruption, an end of the daemon. */
  readonly touched = new Set<string>();
  #count = 0;

  constructor(bench: SessionBench, session: string) {
    this.bench = bench;
    this.session = session;
    this.owners = [bench.ids.uuidv7(), bench.ids.uuidv7()];
  }

  async do(step: Action): Promise<void> {
    const { bench, session } = this;
    switch (step.kind) {
      case "send": {
        this.#count += 1;
        const text = `text ${this.#count}`;
        const id = bench.ids.uuidv7();
        const owner = step.owner === null ? null : (this.owners[step.owner] ?? null);
        const entry = { id, text, owner: step.owner };
        const reply = await bench.submit(
          session,
          { kind: "message", text, images: [] },
          { operationId: id, submissionId: owner },
        );
        expect(reply.status).toBe(202);
        this.sent.push(entry);
        return;
      }
      case "retry":
        return this.#retry(step.which);
      case "cancel": {
        const entry = this.sent[step.which % Math.max(1, this.sent.length)];
        if (entry === undefined) return;
        this.touched.add(entry.id);
        const { result, input } = await bench.sessions.cancel(session, entry.id);
        expect(input.id).toBe(entry.id);
        this.#checkCancel(entry.id, result);
        return;
      }
      case "cancel_owner": {
        const owned = this.sent.filter(({ owner }) => owner === step.owner);
        if (owned.length === 0) return;
        await bench.sessions.cancel(session, this.owners[step.owner] ?? "");
        // It speaks for what came in the same moment too.
        for (const { id, owner } of this.sent) if (owner === step.owner) this.touched.add(id);
        // What it owned and was acknowledged waits no longer.
        for (const { id } of owned) expect(bench.input(session, id).state).not.toBe("pending");
        return;
      }
      case "interrupt": {
        const before = this.sent.map(({ id }) => id);
        await bench.sessions.interrupt(session);
        for (const id of before) expect(bench.input(session, id).state).not.toBe("pending");
        return;
      }
      case "answer":
      case "call":
      case "fail":
        return this.#speak(step.kind);
    }
  }

  /** What has come so far may end as interrupted or cancelled. */
  touchAll(): void {
    for (const { id } of this.sent) this.touched.add(id);
  }

  /** Lets everything come to its end. */
  async finish(): Promise<void> {
    const { bench, session } = this;
    await until("everything to end", async () => {
      await this.#speak("answer");
      await bench.clock.advance(500);
      const { phase, pending_inputs } = bench.resource(session);
      return (phase === "idle" || phase === "interrupted") && pending_inputs.length === 0;
    });
  }

  check(): void {
    const { bench, session } = this;
    const history = bench.history(session);
    const users = history.filter((row) => row.startsWith("user: "));
    const committed: string[] = [];
    for (const { id, text } of this.sent) {
      const input = bench.input(session, id);
      const rows = users.filter((row) => row === `user: ${text}`).length;
      if (input.state === "committed") {
        committed.push(`user: ${text}`);
        expect(rows).toBe(1);
        expect(input.turn?.state).not.toBe("running");
        expect(input.turn?.members).toContain(id);
        if (!this.touched.has(id)) expect(input.turn?.state).not.toBe("interrupted");
      } else {
        expect(this.touched.has(id)).toBe(true);
        expect(input.state).toBe("cancelled");
        expect(rows).toBe(0);
        expect(input.turn).toBeUndefined();
      }
      expect(bench.sessions.receipt(id).expiresAt).toBeGreaterThan(0);
    }
    // Acceptance order is the order of the transcript.
    expect(users).toEqual(
      [...this.sent]
        .sort((a, b) => this.#decision(a.id) - this.#decision(b.id))
        .map(({ text }) => `user: ${text}`)
        .filter((row) => committed.includes(row)),
    );
    for (const { id, result } of this.cancels) {
      const input = bench.input(session, id);
      if (result === "cancelled") expect(input.state).toBe("cancelled");
      // It was told to stop; where its last commit was on its way already, it ends as it would have.
      if (result === "interrupt_requested") expect(input.turn?.state).not.toBe("running");
    }
    expect(bench.sessions.busy).toBe(false);
    expect(bench.errors).toEqual([]);
  }

  #decision(id: string): number {
    return this.bench.store.operations.find(id)?.decision ?? 0;
  }

  async #retry(which: number): Promise<void> {
    const entry = this.sent[which % Math.max(1, this.sent.length)];
    if (entry === undefined) return;
    const { id, text, owner } = entry;
    const reply = await this.bench.submit(
      this.session,
      { kind: "message", text, images: [] },
      { operationId: id, submissionId: owner === null ? null : (this.owners[owner] ?? null) },
    );
    expect([reply.status, reply.replayed]).toEqual([202, true]);
  }

  #checkCancel(id: string, result: CancelResult): void {
    const input = this.bench.input(this.session, id);
    this.cancels.push({ id, result });
    if (result === "cancelled") expect(input.state).toBe("cancelled");
    if (result === "not_pending") expect(input.state).not.toBe("pending");
    if (result === "shared_running") expect(input.turn?.members.length).toBeGreaterThan(1);
    if (result === "interrupt_requested") expect(input.state).toBe("committed");
  }

  async #speak(how: "answer" | "call" | "fail"): Promise<void> {
    const { model } = this.bench;
    if (model.unseen === 0) return;
    const exchange = await model.next();
    if (how === "answer") exchange.say("ok").finish();
    else if (how === "call") exchange.call("c", "echo").finish("tool_calls");
    else exchange.say("half").breakOff();
  }
}

test("property: every acknowledged input has one outcome, whatever happens and whenever", async () => {
  await fc.assert(
    fc.asyncProperty(groups, fc.integer({ min: 1 }), async (script, seed) => {
      await using bench = new SessionBench({ tools: [echo], random: seededRandom(seed) });
      const world = new World(bench, await bench.create());
      for (const { actions, rounds, after } of script) {
        const begun = actions.map((step) => world.do(step));
        await Promise.all(begun);
        if (actions.some(({ kind }) => kind === "interrupt")) world.touchAll();
        await settle(rounds);
        if (after === "crash" || after === "restart") world.touchAll();
        if (after === "crash") await bench.crash();
        else if (after === "restart") await bench.restart();
        else if (after === "hour") {
          await bench.clock.advance(3_600_001);
          await bench.sessions.sweep();
        }
      }
      await world.finish();
      world.check();
    }),
    { numRuns: 40, interruptAfterTimeLimit: 25_000 },
  );
}, 60_000);
