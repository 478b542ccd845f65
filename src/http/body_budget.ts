/**
 * Owns how much of large request bodies is held at once. Forty unfinished admissions of 9 MiB took 350 MB and more
 * while nothing bounded them; a body that has to wait stays with its sender, since nobody reads it.
 *
 * I1. What was granted never exceeds the total.
 * I2. Bodies are granted in the order they asked, so that a large one is not passed for ever by smaller ones.
 */
export class BodyBudget {
  #left: number;
  readonly #total: number;
  readonly #waiting: { readonly bytes: number; readonly grant: () => void }[] = [];

  constructor(totalBytes: number) {
    this.#total = totalBytes;
    this.#left = totalBytes;
  }

  /** Resolves once so many bytes may be held; never more than the total is asked. */
  acquire(bytes: number): Promise<Disposable> {
    const wanted = Math.min(bytes, this.#total);
    return new Promise((resolve) => {
      this.#waiting.push({
        bytes: wanted,
        grant: () => resolve({ [Symbol.dispose]: () => this.#release(wanted) }),
      });
      this.#grantWaiting();
    });
  }

  #release(bytes: number): void {
    this.#left += bytes;
    this.#grantWaiting();
  }

  #grantWaiting(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (next.bytes > this.#left) return;
      this.#left -= next.bytes;
      this.#waiting.shift();
      next.grant();
    }
  }
}
