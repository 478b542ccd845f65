import type { ModelDirectory } from "../agent/models.ts";
import type { Skills } from "../agent/skills.ts";
import type { Tool } from "../agent/tool.ts";
import { type Clock, sleep } from "../base/clock.ts";
import type { Ids, RandomSource } from "../base/ids.ts";
import { RECEIPT_SWEEP_BATCH_MAX } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { HistoryQuery } from "../store/history.ts";
import type { StoredImage } from "../store/images.ts";
import type { Reply } from "../store/operations.ts";
import type { Store } from "../store/store.ts";
import type { ActiveOutputPage } from "../wire/event.ts";
import type { HistoryPage, HistoryRow } from "../wire/history.ts";
import type { CancelResult, Cancellation, Input, Interruption } from "../wire/input.ts";
import type { Receipt } from "../wire/operation.ts";
import { Problem } from "../wire/problem.ts";
import type { ImageVariant } from "../wire/query.ts";
import type { CommandResult } from "../wire/server.ts";
import type { SessionPage, SessionResource } from "../wire/session.ts";
import type { CommandBody, Creation, SessionPatch, Submission } from "../wire/submission.ts";
import { Admission } from "./admission.ts";
import { Consumption } from "./consumption.ts";
import { Flood } from "./flood.ts";
import { Overflow } from "./overflow.ts";
import { Registry } from "./registry.ts";
import { readCursor, writeCursor } from "./session_cursor.ts";
import { sessionSummary } from "./snapshot.ts";
import { Spill } from "./spill.ts";
import type { StreamPosition, Subscription } from "./subscription.ts";

export type { HistoryQuery } from "../store/history.ts";
export type { Reply } from "../store/operations.ts";
export type { Frame, StreamPosition, Subscription } from "./subscription.ts";

export interface SessionsOptions {
  readonly store: Store;
  readonly models: ModelDirectory;
  readonly skills: Skills;
  readonly tools: readonly Tool[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly random: RandomSource;
  readonly log: Log;
  /** The data directory. */
  readonly home: string;
  readonly instanceId: string;
  readonly unloadSeconds: number;
  /** Where a session works that names no workspace and has no parent. */
  readonly defaultWorkspace: string;
}

/** An admission between its arrival and its decision. */
interface Arriving {
  readonly sessionId: string;
  readonly ids: readonly string[];
  readonly decided: Promise<unknown>;
}

/** Batches of receipts that one sweep removes, so that a long absence is not made up for at a stretch. */
const RECEIPT_BATCHES_MAX = 64;
/** Rounds that look for children that came while their family was stopped. */
const FAMILY_ROUNDS_MAX = 16;

/**
 * Owns what can be asked of sessions: it is everything the HTTP floor calls, and knows no HTTP. Whatever is not
 * there is thrown as a `Problem`.
 *
 * I1 Memory follows the store: sessions hear of a change in the commit's effect, in the order of the commits.
 * I2 Interrupting or deleting a session reaches everything below it, also what begins while it stops.
 */
export class Sessions {
  readonly #options: SessionsOptions;
  readonly #store: Store;
  readonly #admission: Admission;
  readonly #consumption: Consumption;
  readonly #registry: Registry;
  readonly #spill: Spill;
  readonly #overflow: Overflow;
  readonly #arriving = new Set<Arriving>();
  readonly #endWatch: () => void;
  #stopping = false;
  #activity = 0;

  constructor(options: SessionsOptions) {
    const { store, models, clock, ids, log } = options;
    this.#options = options;
    this.#store = store;
    this.#spill = new Spill(options);
    this.#overflow = new Overflow(options);
    this.#admission = new Admission(options);
    this.#consumption = new Consumption({ models, images: store.images, log });
    this.#registry = new Registry({
      store,
      consumption: this.#consumption,
      turn: {
        ...options,
        overflow: this.#overflow,
        flood: new Flood(() => Bun.gc(true)),
      },
      spill: this.#spill,
      clock,
      ids,
      log,
      onInterrupted: (sessionId) => void this.#stopLateDescendants(sessionId),
    });
    this.#endWatch = models.onChange(() => this.#registry.unblock("model_unavailable"));
  }

  /** Whether admissions are refused because the daemon stops. */
  get stopping(): boolean {
    return this.#stopping;
  }

  /** How many sessions are loaded. */
  get loadedCount(): number {
    return this.#registry.size;
  }

  /** Whether any turn is active. */
  get busy(): boolean {
    return this.#registry.running.size > 0;
  }

  /** Grows with every admission and every lifetime of a session: with what may have left garbage. */
  get activity(): number {
    return this.#activity + this.#registry.lifetimes;
  }

  /** @throws {Problem} daemon_stopping, operation_conflict, operation_expired, operation_future */
  async create(creation: Creation): Promise<Reply> {
    this.#assertAdmitting();
    const examined = await this.#admission.creation(creation);
    if (examined.kind === "replay") return examined.reply;
    this.#assertAdmitting();
    return this.#store.conversation.create(examined.request);
  }

  /**
   * @throws {Problem} daemon_stopping, invalid_request, payload_too_large, operation_conflict, operation_expired,
   *   operation_future, storage_unavailable
   */
  async submit(submission: Submission): Promise<Reply> {
    this.#assertAdmitting();
    this.#activity += 1;
    const { operationId, sessionId, submissionId } = submission;
    const decided = this.#admit(submission);
    const ids = submissionId === null ? [operationId] : [operationId, submissionId];
    const arriving = { sessionId, ids, decided };
    this.#arriving.add(arriving);
    try {
      return await decided;
    } finally {
      this.#arriving.delete(arriving);
    }
  }

  /** @throws {Problem} session_not_found, input_not_found */
  input(sessionId: string, inputId: string): Input {
    this.#store.sessions.require(sessionId);
    const input = this.#store.operations.input(sessionId, inputId);
    if (input === null) throw new Problem("input_not_found");
    return input;
  }

  /**
   * Takes waiting inputs back, or tells a turn to stop that works for them alone.
   *
   * @param id an input id, or a `submissionId` that speaks for every input it owns
   * @throws {Problem} session_not_found, input_not_found, storage_unavailable
   */
  async cancel(sessionId: string, id: string): Promise<Cancellation> {
    await this.#decidedBefore(sessionId, id);
    this.#store.sessions.require(sessionId);
    const owned = this.#store.operations.ownedBy(sessionId, id);
    const newest = owned.at(-1);
    if (newest === undefined) throw new Problem("input_not_found");
    // What a consumption on its way takes shares the turn: the answer waits behind it.
    const waits =
      this.#registry.find(sessionId)?.consuming === true ||
      owned.some((inputId) => this.input(sessionId, inputId).state === "pending");
    let result: CancelResult = "not_pending";
    if (waits) {
      await this.#store.operations.cancelWaiting(sessionId, owned, (cancelled) => {
        this.#registry.find(sessionId)?.cancelled(cancelled);
        const told = this.#tellTurn(sessionId, owned);
        result = told ?? (cancelled.length > 0 ? "cancelled" : "not_pending");
      });
    } else {
      result = this.#tellTurn(sessionId, owned) ?? "not_pending";
    }
    return { result, input: this.input(sessionId, newest) };
  }

  /**
   * Stops the active turn and cancels every waiting input, here and in everything below.
   *
   * @throws {Problem} session_not_found, storage_unavailable
   */
  async interrupt(sessionId: string): Promise<Interruption> {
    this.#store.sessions.require(sessionId);
    const interruptions = new Map<string, Interruption>();
    for (let round = 0; round < FAMILY_ROUNDS_MAX; round += 1) {
      const family = this.#store.sessions.family(sessionId);
      const fresh = family.filter((member) => !interruptions.has(member));
      if (fresh.length === 0) break;
      await this.#interruptAll(fresh, interruptions);
    }
    return interruptions.get(sessionId) ?? { turn_id: null, cancelled: [] };
  }

  /** @throws {Problem} session_not_found, session_has_children, storage_unavailable */
  async remove(sessionId: string, options: { readonly recursive: boolean }): Promise<void> {
    const removed = await this.#store.conversation.remove(sessionId, options, (members) => {
      for (const { sessionId: member, cancelled } of members) {
        this.#registry.find(member)?.cancelled(cancelled);
        this.#registry.drop(member, "removed");
        this.#spill.revoke(member);
      }
    });
    for (const { sessionId: member } of removed) void this.#overflow.remove(member);
  }

  /**
   * @param ifMatch the request's `If-Match`, or `null` without one
   * @throws {Problem} session_not_found, precondition_failed, model_unknown, storage_unavailable
   */
  async patch(
    sessionId: string,
    patch: SessionPatch,
    ifMatch: string | null,
  ): Promise<{ readonly resource: SessionResource; readonly etag: string }> {
    this.#store.sessions.require(sessionId);
    if (patch.model !== undefined && !(await this.#options.models.known(patch.model))) {
      throw new Problem("model_unknown", "The model is not known", {
        fields: [{ pointer: "/model", detail: "Must be the id of a model that can be chosen" }],
      });
    }
    await this.#store.sessions.patch(sessionId, patch, ifMatch, (record) =>
      this.#registry.find(sessionId)?.patched(record),
    );
    return this.resource(sessionId, 0);
  }

  /**
   * Carries a command out now.
   *
   * @throws {Problem} session_not_found, session_busy, command_unknown, command_refused, model_unknown,
   *   invalid_request, daemon_stopping
   */
  async command(sessionId: string, body: CommandBody): Promise<CommandResult> {
    const session = this.#store.sessions.require(sessionId);
    const { name } = body;
    const args = body.arguments ?? "";
    await this.#refuseSkill(session.workspace, name);
    const outcome = await this.#consumption.command(name, args);
    if (outcome.kind === "refused") throw new Problem(outcome.code, outcome.detail);
    if (outcome.kind === "compact") {
      this.#assertAdmitting();
      await this.#registry.load(sessionId).compact();
      return { name, status: "started" };
    }
    await this.#store.sessions.patch(sessionId, outcome.change, null, (record) =>
      this.#registry.find(sessionId)?.patched(record),
    );
    return { name, status: "done" };
  }

  /**
   * The session resource; loads the session.
   *
   * @param tail how many history rows to show; `0` shows none
   * @throws {Problem} session_not_found, daemon_stopping
   */
  resource(
    sessionId: string,
    tail: number,
  ): { readonly resource: SessionResource; readonly etag: string } {
    const resource = this.#registry.load(sessionId).resource(tail);
    return { resource, etag: this.#store.sessions.etag(this.#store.sessions.require(sessionId)) };
  }

  /**
   * A page of summaries, newest activity first; never loads a session.
   *
   * @param query.cursor `next` of the page before, or `null`
   * @throws {Problem} invalid_request for a cursor that was not given out
   */
  list(query: { readonly cursor: string | null; readonly limit: number }): SessionPage {
    const before = query.cursor === null ? null : readCursor(query.cursor);
    const records = this.#store.sessions.list({ before, limit: query.limit + 1 });
    const shown = records.slice(0, query.limit);
    const now = this.#options.clock.now();
    const last = records.length > query.limit ? shown.at(-1) : undefined;
    return {
      items: shown.map((record) => sessionSummary(record, this.#registry.viewOf(record.id), now)),
      next: last === undefined ? null : writeCursor(last),
    };
  }

  /** Reads the store alone, never loads. @throws {Problem} session_not_found */
  historyPage(sessionId: string, query: HistoryQuery): HistoryPage {
    return this.#store.history.page(sessionId, query);
  }

  /** @throws {Problem} session_not_found, history_row_not_found */
  historyRow(sessionId: string, rowId: number): HistoryRow {
    return this.#store.history.row(sessionId, rowId);
  }

  /**
   * @param variant what was uploaded, or what the model gets; the same where nothing had to be fitted
   * @throws {Problem} session_not_found, image_not_found
   */
  image(sessionId: string, imageId: string, variant: ImageVariant = "original"): StoredImage {
    this.#store.sessions.require(sessionId);
    const image = this.#store.images.get(sessionId, imageId, variant);
    if (image === null) throw new Problem("image_not_found");
    return image;
  }

  /** @throws {Problem} operation_unknown, operation_expired, operation_future */
  receipt(operationId: string): Receipt {
    return this.#store.operations.receipt(operationId);
  }

  /**
   * A watch on a session's stream; loads the session.
   *
   * @throws {Problem} session_not_found, daemon_stopping
   */
  subscribe(sessionId: string, position: StreamPosition | null): Subscription {
    return this.#registry.load(sessionId).subscribe(position);
  }

  /**
   * One page of spilled output.
   *
   * @throws {Problem} session_not_found, active_output_not_found, active_output_expired,
   *   active_output_unavailable, invalid_request
   */
  async activeOutput(
    sessionId: string,
    contentId: string,
    query: { readonly snapshot: string; readonly next: string | null },
  ): Promise<ActiveOutputPage> {
    this.#store.sessions.require(sessionId);
    return this.#spill.page(sessionId, contentId, query);
  }

  /** Ends what a daemon that died left open, then opens the sessions that have waiting input. */
  async recover(): Promise<void> {
    this.#spill.removeOrphans();
    const { interrupted } = this.#store.conversation.recover();
    if (interrupted.length > 0) {
      this.#options.log.info("Turns that a daemon left behind were ended", {
        count: interrupted.length,
      });
    }
    this.#registry.loadWaiting();
  }

  /** Unloads what is idle, removes expired receipts and expired output. */
  async sweep(): Promise<{ readonly unloaded: number; readonly receipts: number }> {
    const { clock, unloadSeconds } = this.#options;
    const now = clock.now();
    this.#spill.sweep();
    await this.#overflow.sweep();
    const held = new Set([...this.#arriving].map(({ sessionId }) => sessionId));
    const unloaded = this.#registry.unloadIdle(now - unloadSeconds * 1000, (id) => held.has(id));
    // Should one ever have been left behind, its input waits no longer than this.
    this.#registry.loadWaiting();
    let receipts = 0;
    for (let batch = 0; batch < RECEIPT_BATCHES_MAX; batch += 1) {
      const removed = await this.#store.operations.sweep(now);
      receipts += removed;
      if (removed < RECEIPT_SWEEP_BATCH_MAX) break;
    }
    return { unloaded, receipts };
  }

  /** Refuses admissions, stops turns and closes sessions, within `deadlineMs`. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#endWatch();
    const stopped = this.#registry.beginClosing();
    const arriving = [...this.#arriving].map(({ decided }) => decided);
    const limit = new AbortController();
    await Promise.race([
      Promise.allSettled([...stopped, ...arriving]),
      sleep(this.#options.clock, deadlineMs, limit.signal).catch(() => undefined),
    ]);
    limit.abort();
    this.#registry.closeAll();
    this.#spill.close();
  }

  async #admit(submission: Submission): Promise<Reply> {
    const examined = await this.#admission.submission(submission);
    if (examined.kind === "replay") return examined.reply;
    this.#assertAdmitting();
    return this.#store.operations.admit(examined.request, (pending) => {
      // While the daemon stops nothing is loaded any more; the input waits for the next start.
      const session = this.#registry.find(pending.sessionId);
      if (session !== null) session.accept(pending);
      else if (!this.#stopping) this.#registry.load(pending.sessionId);
    });
  }

  /** A cancellation that comes at once with the submission waits for its decision. */
  async #decidedBefore(sessionId: string, id: string): Promise<void> {
    const decisions = [...this.#arriving]
      .filter((arriving) => arriving.sessionId === sessionId && arriving.ids.includes(id))
      .map(({ decided }) => decided);
    await Promise.allSettled(decisions);
  }

  /** What a cancellation does to the running turn; `null` where it has nothing to do with these inputs. */
  #tellTurn(
    sessionId: string,
    owned: readonly string[],
  ): "interrupt_requested" | "shared_running" | null {
    const session = this.#registry.find(sessionId);
    const members = session?.turn?.turn.members ?? [];
    if (!members.some((member) => owned.includes(member))) return null;
    if (!members.every((member) => owned.includes(member))) return "shared_running";
    session?.stop("cancel");
    return "interrupt_requested";
  }

  /** One transaction for all of them; each is told in its effect. */
  async #interruptAll(
    sessionIds: readonly string[],
    interruptions: Map<string, Interruption>,
  ): Promise<void> {
    await this.#store.conversation.interrupt(sessionIds, (members) => {
      for (const { sessionId, cancelled } of members) {
        const session = this.#registry.find(sessionId);
        session?.cancelled(cancelled);
        const turnId = session?.stop("interrupt") ?? null;
        interruptions.set(sessionId, { turn_id: turnId, cancelled: [...cancelled] });
      }
    });
  }

  /** An interrupted turn has ended: what began below it meanwhile is stopped too. */
  async #stopLateDescendants(sessionId: string): Promise<void> {
    try {
      const below = this.#store.sessions.family(sessionId).slice(1);
      if (below.length > 0) await this.#interruptAll(below, new Map());
    } catch (error) {
      this.#options.log.error("Children of an interrupted session could not be stopped", {
        session_id: sessionId,
        error,
      });
    }
  }

  /** @throws {Problem} command_refused: a skill is activated by a submission */
  async #refuseSkill(workspace: string, name: string): Promise<void> {
    const isSkill =
      name === "skill" || (await this.#options.skills.prepare(workspace, name, "")) !== null;
    if (!isSkill) return;
    throw new Problem("command_refused", "A skill is activated by a submission of its own kind");
  }

  #assertAdmitting(): void {
    if (this.#stopping) throw new Problem("daemon_stopping");
  }
}
