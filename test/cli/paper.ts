import { Sink } from "../../src/cli/output.ts";
import type { Writable } from "../../src/cli/output.ts";

/** A stream that remembers what was written, and a sink over it. */
export class Paper implements Writable {
  text = "";
  readonly isTTY: boolean;
  readonly columns: number | undefined;
  readonly sink: Sink;
  readonly #held: (() => void)[] = [];
  readonly #holds: boolean;

  /** @param options.holds writes are done only when they are released */
  constructor(
    options: {
      readonly isTTY?: boolean;
      readonly columns?: number;
      readonly holds?: boolean;
      readonly variables?: Readonly<Record<string, string>>;
    } = {},
  ) {
    this.isTTY = options.isTTY ?? false;
    this.columns = options.columns;
    this.#holds = options.holds ?? false;
    this.sink = new Sink(this, options.variables ?? {});
  }

  write(text: string, done: () => void): boolean {
    this.text += text;
    if (this.#holds) this.#held.push(done);
    else done();
    return true;
  }

  release(): void {
    for (const done of this.#held.splice(0)) done();
  }
}
