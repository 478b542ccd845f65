/**
 * Writing bytes to many readers with nothing else around it: `GET /` opens a stream, `POST /play` writes frames of
 * the given sizes at the given times to every open one. Prints its port.
 */
const readers = new Set<ReadableStreamDefaultController<Uint8Array>>();

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    if (request.method === "GET") return open();
    void play((await request.json()) as [number, number][]);
    return new Response("playing");
  },
});
console.log(server.port);

function open(): Response {
  let mine: ReadableStreamDefaultController<Uint8Array> | null = null;
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      mine = controller;
      readers.add(controller);
      controller.enqueue(new TextEncoder().encode(":\n\n"));
    },
    cancel() {
      if (mine !== null) readers.delete(mine);
    },
  });
  return new Response(stream, { headers: { "content-type": "text/event-stream" } });
}

async function play(frames: readonly (readonly [number, number])[]): Promise<void> {
  const began = performance.now();
  for (const [atMs, size] of frames) {
    const wait = began + atMs - performance.now();
    if (wait > 0) await Bun.sleep(wait);
    const frame = new Uint8Array(size).fill(120);
    frame.set([10, 10], size - 2);
    for (const reader of readers) reader.enqueue(frame);
  }
  for (const reader of readers) reader.close();
  readers.clear();
}
