/**
 * Owns Ctrl-C and the signal that asks a program to end. A verb that has something to put in order first listens;
 * without a listener the signal ends the process as it always does.
 */
export type EndSignal = "SIGINT" | "SIGTERM";

interface SignalSource {
  on(signal: EndSignal, listener: () => void): unknown;
  off(signal: EndSignal, listener: () => void): unknown;
}

export class Signals {
  readonly #source: SignalSource;

  constructor(source: SignalSource) {
    this.#source = source;
  }

  /**
   * Calls `first` once, and `again` for every signal after it.
   *
   * @returns a function that stops listening
   */
  listen(first: () => void, again: () => void): () => void {
    let seen = false;
    const onSignal = (): void => {
      if (seen) {
        again();
        return;
      }
      seen = true;
      first();
    };
    this.#source.on("SIGINT", onSignal);
    this.#source.on("SIGTERM", onSignal);
    return () => {
      this.#source.off("SIGINT", onSignal);
      this.#source.off("SIGTERM", onSignal);
    };
  }
}
