import { encodeRequest } from "./http_client.ts";
import { ChunkedBody, preciseNow } from "./event_stream.ts";
import { stampsIn } from "./model_plan.ts";

/**
 * Reads a stream of stamped deltas from a server that hands on what a provider sends, and tells how long each was
 * on its way.
 */
export async function readStamped(port: number, body: string): Promise<number[]> {
  const delaysMs: number[] = [];
  const chunked = new ChunkedBody();
  let headless = false;
  let pending = "";
  const done = Promise.withResolvers<void>();
  const request = encodeRequest({ method: "POST", path: "/", port, body });
  const take = (data: Buffer): void => {
    const at = preciseNow();
    chunked.feed(data, (bytes) => {
      pending += bytes.toString();
      const end = pending.lastIndexOf("\n\n");
      if (end === -1) return;
      for (const stamp of stampsIn(pending.slice(0, end))) delaysMs.push(at - stamp);
      pending = pending.slice(end + 2);
    });
    if (chunked.ended) done.resolve();
  };
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (opened) => {
        opened.write(request);
      },
      data: (_socket, data) => {
        if (headless) {
          take(data);
          return;
        }
        const end = data.indexOf("\r\n\r\n");
        if (end === -1) return;
        headless = true;
        if (data.length > end + 4) take(data.subarray(end + 4));
      },
      close: () => done.resolve(),
    },
  });
  await done.promise;
  socket.terminate();
  return delaysMs;
}
