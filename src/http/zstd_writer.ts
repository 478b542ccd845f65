import type * as Zlib from "node:zlib";
import type { FrameCoder } from "./sse_writer.ts";

/**
 * Owns the zstd coding of one connection (RFC 8878; contract.md, The stream): one context, flushed after each frame,
 * so that a reader decodes every event as it comes, and ended before a deliberate stop. The context is made with the
 * first frame and given back with the last.
 */

/**
 * Loaded with the first stream that is coded. The module alone takes about as long to load as Elysia, which a daemon
 * that starts does not have to wait for.
 */
function zlib(): typeof Zlib {
  loaded ??= process.getBuiltinModule("node:zlib");
  return loaded;
}
let loaded: typeof Zlib | null = null;

/**
 * Chosen by measurement on transcripts of small deltas with resets between them: about 150 KiB and 12 µs a frame, five
 * times fewer bytes on deltas and nearly seven with resets. Level 3 as it comes gives the same ratio for 0.9 MiB, level 1
 * less for 0.2 MiB. The window is what costs: 16 KiB hold a few hundred deltas.
 */
function parameters(): Record<number, number> {
  const { constants } = zlib();
  return {
    [constants.ZSTD_c_compressionLevel]: 3,
    [constants.ZSTD_c_windowLog]: 14,
    [constants.ZSTD_c_hashLog]: 13,
    [constants.ZSTD_c_chainLog]: 13,
    [constants.ZSTD_c_searchLog]: 4,
    [constants.ZSTD_c_minMatch]: 4,
    [constants.ZSTD_c_strategy]: constants.ZSTD_btlazy2,
  };
}

const NOTHING = new Uint8Array();

/** A coder for one connection. */
export function createZstdCoder(): FrameCoder {
  return new LazyCoder(() => HandleCoder.tryCreate() ?? new StreamCoder());
}

/** A coder that goes through the public interface alone; what `createZstdCoder` falls back to. */
export function createZstdStreamCoder(): FrameCoder {
  return new LazyCoder(() => new StreamCoder());
}

/** Makes its context when there is something to code: a refused or abandoned stream costs none. */
class LazyCoder implements FrameCoder {
  readonly #create: () => FrameCoder;
  #coder: FrameCoder | null = null;
  #closed = false;

  constructor(create: () => FrameCoder) {
    this.#create = create;
  }

  encode(frame: Uint8Array): Uint8Array | Promise<Uint8Array> {
    if (this.#closed) return NOTHING;
    this.#coder ??= this.#create();
    return this.#coder.encode(frame);
  }

  end(): Uint8Array | Promise<Uint8Array> {
    if (this.#closed || this.#coder === null) return NOTHING;
    return this.#coder.end();
  }

  close(): void {
    this.#closed = true;
    this.#coder?.close();
    this.#coder = null;
  }
}

/** What is below a zlib stream: it codes in place, without a thread and without a queue. */
interface ZlibHandle {
  writeSync(
    operation: number,
    input: Uint8Array,
    inputOffset: number,
    inputLength: number,
    output: Uint8Array,
    outputOffset: number,
    outputLength: number,
  ): void;
}

/** All connections write through it in turn: coding is synchronous. */
const scratch = Buffer.allocUnsafeSlow(64 * 1024);
/** The stream around the handle is never written to; this is the least it can be made with. */
const STREAM_BUFFER_BYTES = 64;

/**
 * Codes on the spot. A flush through the stream costs a thread and a callback, about 80 µs a frame instead of 12. The
 * handle is no public interface, so it is used only where it has the expected form.
 */
class HandleCoder implements FrameCoder {
  readonly #stream: Zlib.ZstdCompress;
  readonly #handle: ZlibHandle;
  /** After a write: the room left in the output, and the input left over. */
  readonly #state: Uint32Array;

  private constructor(stream: Zlib.ZstdCompress, handle: ZlibHandle, state: Uint32Array) {
    this.#stream = stream;
    this.#handle = handle;
    this.#state = state;
  }

  static tryCreate(): HandleCoder | null {
    const stream = zlib().createZstdCompress({
      params: parameters(),
      chunkSize: STREAM_BUFFER_BYTES,
    });
    const { _handle: handle, _writeState: state } = stream as unknown as {
      readonly _handle?: Partial<ZlibHandle>;
      readonly _writeState?: unknown;
    };
    if (typeof handle?.writeSync === "function" && state instanceof Uint32Array) {
      return new HandleCoder(stream, handle as ZlibHandle, state);
    }
    stream.close();
    return null;
  }

  encode(frame: Uint8Array): Uint8Array {
    return this.#run(zlib().constants.ZSTD_e_flush, frame);
  }

  end(): Uint8Array {
    return this.#run(zlib().constants.ZSTD_e_end, NOTHING);
  }

  close(): void {
    this.#stream.close();
  }

  #run(operation: number, input: Uint8Array): Uint8Array {
    const parts: Uint8Array[] = [];
    let offset = 0;
    for (;;) {
      const length = input.length - offset;
      this.#handle.writeSync(operation, input, offset, length, scratch, 0, scratch.length);
      const [room = 0, left = 0] = this.#state;
      if (room < scratch.length)
        parts.push(new Uint8Array(scratch.subarray(0, scratch.length - room)));
      offset = input.length - left;
      // Room in the output means that everything has been written.
      if (room > 0) return parts.length === 1 ? (parts[0] ?? NOTHING) : Buffer.concat(parts);
    }
  }
}

class StreamCoder implements FrameCoder {
  readonly #stream = zlib().createZstdCompress({ params: parameters() });
  #parts: Buffer[] = [];

  constructor() {
    this.#stream.on("data", (part: Buffer) => this.#parts.push(part));
    // An error reaches the callback of the write or flush that met it.
    this.#stream.on("error", () => {});
  }

  encode(frame: Uint8Array): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.#stream.write(frame, (error) => {
        if (error) reject(error);
      });
      this.#stream.flush(zlib().constants.ZSTD_e_flush, () => resolve(this.#take()));
    });
  }

  end(): Promise<Uint8Array> {
    return new Promise((resolve) => {
      this.#stream.once("end", () => resolve(this.#take()));
      this.#stream.end();
    });
  }

  close(): void {
    this.#stream.close();
  }

  #take(): Uint8Array {
    const bytes = Buffer.concat(this.#parts);
    this.#parts = [];
    return bytes;
  }
}
