import type { Daemon } from "./daemon.ts";
import { MODEL } from "./daemon.ts";

/** Owns what a client of the daemon does over and over in a bench. */
export async function createSession(daemon: Daemon): Promise<string> {
  const admission = (await daemon.request({
    method: "POST",
    path: "/sessions",
    body: creationBody(daemon.workspace),
  })) as { sessionId: string };
  return admission.sessionId;
}

export function creationBody(workspace: string): string {
  return JSON.stringify({ operationId: Bun.randomUUIDv7(), workspace, model: MODEL });
}

export function putMessage(daemon: Daemon, sessionId: string, text: string): Uint8Array {
  return daemon.encode({
    method: "PUT",
    path: `/sessions/${sessionId}/inputs/${Bun.randomUUIDv7()}`,
    body: JSON.stringify({ kind: "message", text }),
  });
}

/** Sends a message and returns its id. */
export async function sendMessage(
  daemon: Daemon,
  sessionId: string,
  text: string,
): Promise<string> {
  const id = Bun.randomUUIDv7();
  await daemon.request({
    method: "PUT",
    path: `/sessions/${sessionId}/inputs/${id}`,
    body: JSON.stringify({ kind: "message", text }),
  });
  return id;
}

interface InputLike {
  readonly state: string;
  readonly turn?: { readonly state: string };
}

/** Waits until the turn of an input has ended, asking every few milliseconds; returns the turn's state. */
export async function turnEnded(daemon: Daemon, sessionId: string, id: string): Promise<string> {
  const deadline = performance.now() + 60_000;
  while (performance.now() < deadline) {
    const input = (await daemon.request({
      method: "GET",
      path: `/sessions/${sessionId}/inputs/${id}`,
    })) as InputLike;
    if (input.turn !== undefined && input.turn.state !== "running") return input.turn.state;
    await Bun.sleep(3);
  }
  throw new Error("A turn did not end in a minute");
}

/** Waits until an input has become part of a turn. */
export async function committed(daemon: Daemon, sessionId: string, id: string): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (performance.now() < deadline) {
    const input = (await daemon.request({
      method: "GET",
      path: `/sessions/${sessionId}/inputs/${id}`,
    })) as InputLike;
    if (input.state === "committed") return;
    await Bun.sleep(3);
  }
  throw new Error("An input was not consumed in half a minute");
}

/** Does something for each item, so many at once. */
export async function forEachOf<T>(
  items: readonly T[],
  atOnce: number,
  run: (item: T) => Promise<void>,
): Promise<void> {
  const queue = items.values();
  const work = async (): Promise<void> => {
    for (const item of queue) await run(item);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}
