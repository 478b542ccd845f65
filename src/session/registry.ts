import type { Log } from "../base/log.ts";
import type { Store } from "../store/store.ts";
import { Problem } from "../wire/problem.ts";
import { Running } from "./running.ts";
import { Session, type SessionDependencies } from "./session.ts";
import type { BlockingReason, StopReason, View } from "./session_state.ts";

/**
 * Owns which sessions are loaded (sessions.md, Loaded sessions and unloading).
 *
 * I1 A session is loaded at most once at a time, and whoever loads it starts what waits in it.
 * I2 Asking what a session looks like (`viewOf`) never loads it and never waits for it.
 * I3 A session that works, is watched, or has a child that works is not unloaded.
 */
export class Registry {
  readonly running = new Running();
  readonly #store: Store;
  readonly #log: Log;
  readonly #dependencies: Omit<SessionDependencies, "running">;
  readonly #loaded = new Map<string, Session>();
  #closing = false;
  #lifetimes = 0;

  constructor(dependencies: Omit<SessionDependencies, "running">) {
    this.#dependencies = dependencies;
    this.#store = dependencies.store;
    this.#log = dependencies.log;
  }

  get size(): number {
    return this.#loaded.size;
  }

  /** Sessions that were ever loaded or unloaded. */
  get lifetimes(): number {
    return this.#lifetimes;
  }

  /** The session, loaded now if it was not. @throws {Problem} session_not_found, daemon_stopping */
  load(sessionId: string): Session {
    const loaded = this.#loaded.get(sessionId);
    if (loaded !== undefined) return loaded;
    const record = this.#store.sessions.require(sessionId);
    if (this.#closing) throw new Problem("daemon_stopping");
    const session = new Session({ ...this.#dependencies, running: this.running }, record);
    this.#loaded.set(sessionId, session);
    this.#lifetimes += 1;
    session.wake();
    return session;
  }

  find(sessionId: string): Session | null {
    return this.#loaded.get(sessionId) ?? null;
  }

  /** How a loaded session looks; `null` for any other. */
  viewOf(sessionId: string): View | null {
    return this.#loaded.get(sessionId)?.view ?? null;
  }

  /** What may have blocked sessions has changed. */
  unblock(reason: BlockingReason): void {
    for (const session of this.#loaded.values()) session.unblock(reason);
  }

  /** Loads every session that has waiting input. */
  loadWaiting(): void {
    if (this.#closing) return;
    for (const sessionId of this.#store.operations.sessionsWithPending()) {
      try {
        this.load(sessionId);
      } catch (error) {
        this.#log.error("A session with waiting input could not be loaded", {
          session_id: sessionId,
          error,
        });
      }
    }
  }

  /** Ends the session's lifetime. */
  drop(sessionId: string, reason: StopReason): void {
    const session = this.#loaded.get(sessionId);
    if (this.#loaded.delete(sessionId)) this.#lifetimes += 1;
    session?.close(reason);
  }

  /**
   * Unloads what has been idle; the others let go of what they can do without.
   *
   * @param before sessions whose last turn is older than this (wall clock) are unloaded
   * @param isHeld whether something else needs the session to stay
   */
  unloadIdle(before: number, isHeld: (sessionId: string) => boolean): number {
    const kept = this.#familiesAtWork();
    let unloaded = 0;
    for (const session of this.#loaded.values()) {
      session.rest();
      if (!session.quiet || session.watched || kept.has(session.id) || isHeld(session.id)) continue;
      const record = this.#store.sessions.get(session.id);
      if (record !== null && record.activityAt >= before) continue;
      this.drop(session.id, "shutdown");
      unloaded += 1;
    }
    return unloaded;
  }

  /** Tells every session to stop; nothing is loaded any more. */
  beginClosing(): Promise<void>[] {
    this.#closing = true;
    const stopped: Promise<void>[] = [];
    for (const session of this.#loaded.values()) {
      session.beginClosing("shutdown");
      stopped.push(session.whenStopped());
    }
    return stopped;
  }

  closeAll(): void {
    for (const sessionId of this.#loaded.keys()) this.drop(sessionId, "shutdown");
  }

  /** Sessions that work, and everything above them. */
  #familiesAtWork(): ReadonlySet<string> {
    const kept = new Set<string>();
    for (const session of this.#loaded.values()) {
      if (session.quiet) continue;
      kept.add(session.id);
      let parentId = session.parentId;
      while (parentId !== null && !kept.has(parentId)) {
        kept.add(parentId);
        parentId = this.#store.sessions.get(parentId)?.parentId ?? null;
      }
    }
    return kept;
  }
}
