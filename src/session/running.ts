/**
 * Owns the running cache: which sessions have an active turn, known without asking a busy session (sessions.md,
 * Running observations).
 *
 * I1 Only active turns have a record; an idle or removed session leaves none behind.
 * I2 A record goes only with the very owner that made it: late clean-up cannot remove a replacement's mark.
 * I3 No record, or an owner that has ended, reads as idle.
 */
export interface RunningOwner {
  /** The owner was closed; whatever it still holds counts no more. */
  readonly closed: boolean;
}

export class Running {
  readonly #owners = new Map<string, RunningOwner>();

  /** The owner's turn is active. */
  mark(sessionId: string, owner: RunningOwner): void {
    this.#owners.set(sessionId, owner);
  }

  /** The owner's turn is over, or the owner is; another owner's mark stays. */
  clear(sessionId: string, owner: RunningOwner): void {
    if (this.#owners.get(sessionId) === owner) this.#owners.delete(sessionId);
  }

  has(sessionId: string): boolean {
    const owner = this.#owners.get(sessionId);
    return owner !== undefined && !owner.closed;
  }

  /** The sessions with an active turn. */
  *sessions(): Generator<string> {
    for (const [sessionId, owner] of this.#owners) if (!owner.closed) yield sessionId;
  }

  get size(): number {
    return this.#owners.size;
  }
}
