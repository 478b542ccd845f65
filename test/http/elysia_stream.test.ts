import { expect, test } from "bun:test";
import Stream from "@elysiajs/stream";
import { until } from "../support/until.ts";

/**
 * Goal: show why frames are carried by a `ReadableStream` that is pulled, and not by `@elysiajs/stream` 1.1.0, which
 * contract.md section 5 would have carry them if it held the stream's rules.
 * Method: the same source through both. The source counts what is asked of it and knows when it is let go. When one of
 * the first two tests fails, the library has changed and deserves another look.
 */
const FRAME_BYTES = 64 * 1024;
const FRAMES_MAX = 128;

interface Source extends AsyncIterable<Uint8Array> {
  readonly pulled: number;
  readonly returned: boolean;
}

/** Frames that are made when they are asked for. After `frames` of them it has nothing, and waits. */
function createSource(frames: number): Source {
  let pulled = 0;
  let returned = false;
  return {
    get pulled() {
      return pulled;
    },
    get returned() {
      return returned;
    },
    [Symbol.asyncIterator]: () => ({
      async next() {
        if (pulled >= frames) await new Promise(() => {});
        pulled += 1;
        await new Promise((resolve) => setImmediate(resolve));
        return { done: false, value: new Uint8Array(FRAME_BYTES) };
      },
      async return() {
        returned = true;
        return { done: true, value: undefined };
      },
    }),
  };
}

function throughLibrary(source: Source): ReadableStream<Uint8Array> {
  // Its types ask for a generator; it reads whatever can be iterated.
  return new Stream(source as unknown as AsyncGenerator<Uint8Array>)
    .value as ReadableStream<Uint8Array>;
}

function pulled(source: Source): ReadableStream<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { value } = await iterator.next();
        controller.enqueue(value);
      },
      async cancel() {
        await iterator.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

/** Whether the source goes on being asked although nobody reads. */
async function isDrained(source: Source): Promise<boolean> {
  for (let round = 0; round < 2000 && source.pulled < FRAMES_MAX; round += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  return source.pulled >= FRAMES_MAX;
}

test("@elysiajs/stream drains its source although nobody reads", async () => {
  const source = createSource(FRAMES_MAX);
  const stream = throughLibrary(source);
  expect(await isDrained(source)).toBe(true);
  await stream.cancel().catch(() => {});
});

test("@elysiajs/stream does not tell its source that the reader has gone", async () => {
  const source = createSource(1);
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response(throughLibrary(source)),
  });
  await readOneAndGo(server.url);
  await until("the server to be idle", () => server.pendingRequests === 0);
  expect(source.returned).toBe(false);
  await server.stop(true);
});

test("a stream that is pulled asks for nothing that nobody reads", async () => {
  const source = createSource(FRAMES_MAX);
  const stream = pulled(source);
  expect(await isDrained(source)).toBe(false);
  expect(source.pulled).toBe(0);
  const reader = stream.getReader();
  await reader.read();
  expect(source.pulled).toBe(1);
  await reader.cancel();
});

test("a stream that is pulled tells its source that the reader has gone", async () => {
  const source = createSource(1);
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response(pulled(source)),
  });
  await readOneAndGo(server.url);
  await until("the source to be let go", () => source.returned);
  await server.stop(true);
});

async function readOneAndGo(url: URL): Promise<void> {
  const aborter = new AbortController();
  const response = await fetch(url, { signal: aborter.signal });
  await response.body?.getReader().read();
  aborter.abort();
}
