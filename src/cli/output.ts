import { fstatSync, writeSync } from "node:fs";
import { errorText, EXIT, hasCode } from "./exit.ts";
import { safeForTerminal } from "./terminal_text.ts";

/**
 * Owns what leaves the program: the answer on stdout, everything else on stderr.
 *
 * I1 Colour only on a terminal, unless `FORCE_COLOR` says so; never where `NO_COLOR` is set (no-color.org).
 * I2 Nothing a model, a tool or another client wrote reaches a terminal with its control characters.
 * I3 The process leaves only after `flush`, since a terminal may take its time.
 * I4 An answer that cannot be written is a failure, never a success with something missing: a reader that went away
 *    ends the program as SIGPIPE would, anything else, a full disk for one, with a word on stderr. What stderr does
 *    not take is let go, since there is nobody left to tell.
 */
export type Style = "bold" | "faint" | "red" | "green" | "yellow" | "cyan";

/** A part of a line: plain, or with a style. */
export type Piece = string | readonly [Style, string];

const STYLES: Record<Style, readonly [number, number]> = {
  bold: [1, 22],
  faint: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
};

/** What a sink needs of `process.stdout`. */
export interface Writable {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  write(text: string, done: () => void): boolean;
}

/** How long to wait where the other end of a pipe that does not block is full. */
const FULL_PIPE_MS = 2;

/**
 * A standard stream of this process. A pipe or a file is written to at once: `process.stdout` would do the same, and
 * takes as long to load as a short verb to run.
 */
export function standardStream(name: "stdout" | "stderr"): Writable {
  const descriptor = name === "stdout" ? 1 : 2;
  const onFailed = name === "stdout" ? answerFailed : () => {};
  if (!mayBeTerminal(descriptor)) return descriptorStream(descriptor, onFailed);
  const stream = process[name];
  stream.on("error", onFailed);
  return {
    isTTY: stream.isTTY,
    get columns() {
      return stream.columns;
    },
    write: (text, done) =>
      stream.write(text, (error) => {
        if (error) onFailed(error);
        done();
      }),
  };
}

/** Ends the program: what it was asked for cannot be handed over. */
function answerFailed(error: unknown): never {
  if (hasCode(error, "EPIPE")) process.exit(EXIT.brokenPipe);
  descriptorStream(2, () => {}).write(
    `albedo: Cannot write to stdout: ${errorText(error)}\n`,
    () => {},
  );
  process.exit(EXIT.failed);
}

/**
 * A descriptor that is no terminal.
 *
 * @param onFailed called when what was written is not taken
 */
export function descriptorStream(descriptor: number, onFailed: (error: unknown) => void): Writable {
  return {
    isTTY: false,
    write(text, done) {
      try {
        writeWhole(descriptor, new TextEncoder().encode(text));
      } catch (error) {
        onFailed(error);
      }
      done();
      return true;
    },
  };
}

function writeWhole(descriptor: number, bytes: Uint8Array): void {
  let written = 0;
  while (written < bytes.length) {
    try {
      written += writeSync(descriptor, bytes, written);
    } catch (error) {
      if (!hasCode(error, "EAGAIN")) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_MS);
    }
  }
}

/** Whether the descriptor may be a terminal: all terminals are character devices, and so is the null device. */
function mayBeTerminal(descriptor: number): boolean {
  try {
    return fstatSync(descriptor).isCharacterDevice();
  } catch {
    return true;
  }
}

type Variables = Readonly<Record<string, string | undefined>>;

const COLUMNS_DEFAULT = 80;

export class Sink {
  readonly isTerminal: boolean;
  readonly #stream: Writable;
  readonly #colour: boolean;
  #unwritten = 0;
  #onFlushed: (() => void)[] = [];
  #atLineStart = true;

  constructor(stream: Writable, variables: Variables) {
    this.#stream = stream;
    this.isTerminal = stream.isTTY === true;
    this.#colour = wantsColour(variables, this.isTerminal);
  }

  /** Terminal columns; 80 where there is no terminal. */
  get columns(): number {
    return this.#stream.columns ?? COLUMNS_DEFAULT;
  }

  /** Whether the next character starts a line. */
  get atLineStart(): boolean {
    return this.#atLineStart;
  }

  put(...pieces: readonly Piece[]): void {
    const text = pieces.map((piece) => this.#render(piece)).join("");
    if (text === "") return;
    const last = pieces.findLast((piece) => plain(piece) !== "");
    if (last !== undefined) this.#atLineStart = plain(last).endsWith("\n");
    this.#send(text);
  }

  line(...pieces: readonly Piece[]): void {
    this.put(...pieces, "\n");
  }

  /** Ends the line that was begun, if one was. */
  endLine(): void {
    if (!this.#atLineStart) this.put("\n");
  }

  /** The same, only where the other stream shares the screen. */
  endLineOnTerminal(): void {
    if (this.isTerminal) this.endLine();
  }

  /** One JSON object, one line. */
  json(value: unknown): void {
    const text = JSON.stringify(value);
    // Escapes JSON leaves alone but a terminal obeys.
    this.put(this.isTerminal ? text.replaceAll(/[\u007f-\u009f]/g, escapeUnit) : text, "\n");
  }

  /** Resolves when everything so far is with the kernel. */
  flush(): Promise<void> {
    if (this.#unwritten === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onFlushed.push(resolve));
  }

  #render(piece: Piece): string {
    const text = this.isTerminal ? safeForTerminal(plain(piece)) : plain(piece);
    if (typeof piece === "string" || !this.#colour || text === "") return text;
    const [on, off] = STYLES[piece[0]];
    return `\u001b[${on}m${text}\u001b[${off}m`;
  }

  #send(text: string): void {
    this.#unwritten += 1;
    this.#stream.write(text, () => {
      this.#unwritten -= 1;
      if (this.#unwritten > 0) return;
      const waiting = this.#onFlushed;
      this.#onFlushed = [];
      for (const resolve of waiting) resolve();
    });
  }
}

export interface Output {
  readonly stdout: Sink;
  readonly stderr: Sink;
}

function plain(piece: Piece): string {
  return typeof piece === "string" ? piece : piece[1];
}

function escapeUnit(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function wantsColour(variables: Variables, isTerminal: boolean): boolean {
  if ((variables.NO_COLOR ?? "") !== "") return false;
  const force = variables.FORCE_COLOR;
  if (force !== undefined && force !== "") return force !== "0" && force !== "false";
  return isTerminal && variables.TERM !== "dumb";
}
