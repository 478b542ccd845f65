import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { isDirectory } from "./consumption.ts";
import type { BlockingReason } from "./session_state.ts";

/**
 * Owns the waiting of a queue that is blocked: when it is tried again, whether what blocks it has changed, and that
 * the store knows why it waits (contract.md, Pending inputs, turns and cancellation). What is decided is decided in
 * `session_state.ts`.
 *
 * I1 At most one try is planned.
 * I2 A reason that could not be stored is stored with the next plan.
 */
export interface BlockedQueueOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Why the queue waits now; `null` where nothing holds it up. */
  readonly reason: () => BlockingReason | null;
  readonly workspace: () => string;
  readonly store: (reason: BlockingReason | null) => Promise<void>;
  readonly onRetryDue: () => void;
  readonly onWorkspaceBack: () => void;
}

/** How often a workspace that is missing is looked for. Looking is no try: nothing is prepared. */
const WORKSPACE_LOOK_MS = 500;

export class BlockedQueue {
  readonly #options: BlockedQueueOptions;
  #retry: Timer | null = null;
  #look: Timer | null = null;
  #isUnstored = false;

  constructor(options: BlockedQueueOptions) {
    this.#options = options;
  }

  /** Plans the next try, in place of an earlier one. @param at monotonic milliseconds */
  plan(at: number): void {
    const { clock, onRetryDue } = this.#options;
    this.cancel();
    this.#retry = clock.timer(Math.max(0, at - clock.monotonic()), onRetryDue);
    this.#planLook();
    if (this.#isUnstored) this.tell();
  }

  /** No try is planned any more. */
  cancel(): void {
    this.#retry?.cancel();
    this.#look?.cancel();
    this.#retry = null;
    this.#look = null;
  }

  /** Stores why the queue waits. */
  tell(): void {
    void this.#tell();
  }

  async #tell(): Promise<void> {
    this.#isUnstored = false;
    try {
      await this.#options.store(this.#options.reason());
    } catch (error) {
      // The queue waits all the same.
      this.#isUnstored = true;
      this.#options.log.warn("Why a queue waits could not be stored", { error });
    }
  }

  #planLook(): void {
    if (this.#options.reason() !== "workspace_missing") return;
    this.#look = this.#options.clock.timer(WORKSPACE_LOOK_MS, () => void this.#lookForWorkspace());
  }

  async #lookForWorkspace(): Promise<void> {
    const isBack = await isDirectory(this.#options.workspace());
    // Meanwhile there may be another plan, or none.
    if (this.#retry === null) return;
    if (isBack) this.#options.onWorkspaceBack();
    else {
      this.#look?.cancel();
      this.#planLook();
    }
  }
}
