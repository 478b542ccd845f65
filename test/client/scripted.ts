import type { Fetch } from "../../src/client/transport.ts";

/** What one request gets: an answer, a lost connection, or nothing until it is aborted. */
export type Reply = Response | "lost" | "hang" | (() => Response | "lost" | "hang");

export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: Headers;
  readonly body: string | null;
}

/** A fetch that answers by script, in order, and notes every request. One request too many is an error. */
export class ScriptedFetch {
  readonly requests: SeenRequest[] = [];
  readonly #replies: Reply[];

  constructor(...replies: Reply[]) {
    this.#replies = replies;
  }

  /** `METHOD path` of each request. */
  get lines(): string[] {
    return this.requests.map(({ method, path }) => `${method} ${path}`);
  }

  readonly fetch: Fetch = async (url, init) => {
    const { pathname, search } = new URL(url);
    this.requests.push({
      method: init.method ?? "GET",
      url,
      path: `${pathname}${search}`,
      headers: new Headers(init.headers),
      body: init.body instanceof Uint8Array ? new TextDecoder().decode(init.body) : null,
    });
    const scripted = this.#replies.shift();
    const reply = typeof scripted === "function" ? scripted() : scripted;
    if (reply === undefined) throw new Error(`A request too many: '${init.method} ${pathname}'`);
    if (reply === "lost") throw new TypeError("fetch failed");
    if (reply !== "hang") return reply;
    const { signal } = init;
    return new Promise((_resolve, reject) => {
      const onAbort = (): void => reject(signal?.reason);
      if (signal?.aborted === true) onAbort();
      else signal?.addEventListener("abort", onAbort);
    });
  };
}
