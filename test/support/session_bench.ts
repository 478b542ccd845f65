import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Skills } from "../../src/agent/skills.ts";
import type { Tool } from "../../src/agent/tool.ts";
import { createIds, type Ids, type RandomSource } from "../../src/base/ids.ts";
import type { Log } from "../../src/base/log.ts";
import { type Reply, Sessions, type Subscription } from "../../src/session/sessions.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import type { StreamEvent } from "../../src/wire/event.ts";
import type { Input } from "../../src/wire/input.ts";
import { Problem } from "../../src/wire/problem.ts";
import type { SessionResource } from "../../src/wire/session.ts";
import type { Creation, Submission, SubmissionAction } from "../../src/wire/submission.ts";
import { FakeClock, settle } from "./fake_clock.ts";
import { ScriptedModel, ScriptedModels } from "./scripted_model.ts";
import { type TempDir, tempDir } from "./temp_dir.ts";
import { until } from "./until.ts";

/**
 * The session floor on a real store in a private folder, with a clock that stands still and a model that says what
 * the test says.
 */
export interface BenchOptions {
  readonly tools?: readonly Tool[];
  readonly unloadSeconds?: number;
  readonly random?: RandomSource;
}

export interface LogEntry {
  readonly level: string;
  readonly message: string;
  readonly fields: unknown;
}

/** Random bytes that are the same in each run. */
export function seededRandom(seed = 1): RandomSource {
  let state = seed;
  return (bytes) => {
    for (let index = 0; index < bytes.length; index += 1) {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      bytes[index] = state >>> 24;
    }
  };
}

export class SessionBench implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly model = new ScriptedModel();
  readonly other = new ScriptedModel("test/other");
  readonly models = new ScriptedModels(this.model, this.other);
  readonly log: LogEntry[] = [];
  readonly ids: Ids;
  readonly home: string;
  readonly workspace: string;
  readonly #directory: TempDir;
  readonly #options: BenchOptions;
  readonly #random: RandomSource;
  #instances = 0;
  store!: Store;
  sessions!: Sessions;

  constructor(options: BenchOptions = {}) {
    this.#options = options;
    this.#directory = tempDir();
    this.home = join(this.#directory.path, "home");
    this.workspace = join(this.#directory.path, "work");
    mkdirSync(this.workspace);
    this.#random = options.random ?? seededRandom();
    this.ids = createIds(this.clock, this.#random);
    this.#open();
  }

  /** Entries of the log that should not be there when nothing is wrong. */
  get errors(): readonly LogEntry[] {
    return this.log.filter(({ level }) => level === "error");
  }

  /** As if the process had been killed: what was asked for is on disk, nothing is ended, and it starts again. */
  async crash(): Promise<void> {
    this.#instances += 1;
    await this.store.close();
    this.#open();
    await this.sessions.recover();
  }

  /** An orderly stop and a new start. */
  async restart(): Promise<void> {
    await this.stopAndClose();
    this.#open();
    await this.sessions.recover();
  }

  async stopAndClose(): Promise<void> {
    const stopped = this.sessions.stop(4000);
    // A turn that does not listen is left behind after its grace.
    for (let waited = 0; waited < 5000; waited += 500) {
      await settle();
      await this.clock.advance(500);
    }
    await stopped;
    await this.store.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopAndClose();
    this.#directory[Symbol.dispose]();
  }

  async create(fields: Partial<Creation> = {}): Promise<string> {
    const reply = await this.sessions.create({
      operationId: this.ids.uuidv7(),
      workspace: this.workspace,
      title: null,
      model: null,
      parentId: null,
      settings: {},
      ...fields,
    });
    if (reply.status !== 201) throw new Error(`A creation was refused: ${reply.body}`);
    return (JSON.parse(reply.body) as { sessionId: string }).sessionId;
  }

  submit(
    sessionId: string,
    action: SubmissionAction,
    fields: Partial<Submission> = {},
  ): Promise<Reply> {
    return this.sessions.submit({
      operationId: this.ids.uuidv7(),
      sessionId,
      action,
      clientId: null,
      submissionId: null,
      ...fields,
    });
  }

  /** Sends a message and returns its id once it is accepted. */
  async send(sessionId: string, text: string, fields: Partial<Submission> = {}): Promise<string> {
    const operationId = fields.operationId ?? this.ids.uuidv7();
    const action = { kind: "message", text, images: [] } as const;
    const reply = await this.submit(sessionId, action, { ...fields, operationId });
    if (reply.status !== 202) throw new Error(`A message was refused: ${reply.body}`);
    return operationId;
  }

  input(sessionId: string, inputId: string): Input {
    return this.sessions.input(sessionId, inputId);
  }

  resource(sessionId: string): SessionResource {
    return this.sessions.resource(sessionId, 0).resource;
  }

  /** Waits until the input's turn has a terminal state. */
  settled(sessionId: string, inputId: string): Promise<Input> {
    return until("an input to settle", () => {
      const input = this.input(sessionId, inputId);
      return input.turn !== undefined && input.turn.state !== "running" ? input : null;
    });
  }

  /** Waits until the session is in the phase. */
  async phase(sessionId: string, phase: string): Promise<void> {
    await until(`phase ${phase}`, () => this.resource(sessionId).phase === phase);
  }

  watch(sessionId: string): Watch {
    return new Watch(this.sessions.subscribe(sessionId, null));
  }

  /** History as `role: text`. */
  history(sessionId: string): string[] {
    const { items } = this.sessions.historyPage(sessionId, {
      before: null,
      after: null,
      limit: 200,
      direction: "forward",
    });
    return items.map(({ role, text, display_text, tool_status }) =>
      [role, tool_status, display_text ?? text].filter((part) => part !== undefined).join(": "),
    );
  }

  #open(): void {
    this.#instances += 1;
    const log = this.#logger();
    this.store = openStore({ home: this.home, clock: this.clock, ids: this.ids, log });
    this.sessions = new Sessions({
      store: this.store,
      models: this.models,
      skills: new Skills({ home: this.home }),
      tools: this.#options.tools ?? [],
      clock: this.clock,
      ids: this.ids,
      random: this.#random,
      log,
      home: this.home,
      instanceId: `instance-${this.#instances}`,
      unloadSeconds: this.#options.unloadSeconds ?? 3600,
      defaultWorkspace: this.workspace,
    });
  }

  /** What an instance that crashed still says is not heard. */
  #logger(): Log {
    const instance = this.#instances;
    const write =
      (level: string) =>
      (message: string, fields?: unknown): void => {
        if (instance === this.#instances) this.log.push({ level, message, fields });
      };
    return {
      debug: write("debug"),
      info: write("info"),
      warn: write("warn"),
      error: write("error"),
    };
  }
}

/** A reader that keeps all it was given. */
export class Watch {
  readonly subscription: Subscription;
  readonly events: StreamEvent[] = [];
  generation = "";
  cursor = 0;

  constructor(subscription: Subscription) {
    this.subscription = subscription;
  }

  /** Pulls all there is now. */
  drain(): this {
    for (;;) {
      const frame = this.subscription.next();
      if (frame === null) return this;
      const batch = JSON.parse(frame.data) as {
        generation: string;
        cursor: number;
        events: StreamEvent[];
      };
      this.generation = batch.generation;
      this.cursor = batch.cursor;
      this.events.push(...batch.events);
    }
  }

  /** Pulls until an event satisfies the condition, and gives it. */
  until<K extends StreamEvent["kind"]>(
    kind: K,
    condition: (event: Extract<StreamEvent, { kind: K }>) => boolean = () => true,
  ): Promise<Extract<StreamEvent, { kind: K }>> {
    const isWanted = (event: StreamEvent): event is Extract<StreamEvent, { kind: K }> =>
      event.kind === kind && condition(event as Extract<StreamEvent, { kind: K }>);
    return until(`an event '${kind}'`, () => this.drain().events.find(isWanted));
  }

  /** Kinds of the events so far, without the first reset. */
  get kinds(): string[] {
    return this.drain()
      .events.map(({ kind }) => kind)
      .filter((kind) => kind !== "reset");
  }
}

export async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "none";
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
}
