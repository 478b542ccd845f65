import type { App } from "./app.ts";

/**
 * Owns the socket the daemon listens on.
 *
 * Elysia's own `listen` is not used: it shares the port with whoever asks (`reusePort`), shows an error page with
 * the source in development, and leaves a process listener behind for each daemon.
 */
export interface Listener {
  readonly port: number;
  /** `http://host:port`, without a trailing slash. */
  readonly url: string;
  /** Takes no more connections and resolves when the last request is answered. */
  drain(): Promise<void>;
  /** Cuts what is still open. */
  close(): Promise<void>;
}

/** The daemon cannot listen; the message says why and what to do. */
export class ListenError extends Error {
  override readonly name = "ListenError";
}

/**
 * The server would answer a larger body by itself, without a problem document. Bodies are bounded where they are
 * read, and what is not read is passed over without being kept.
 */
const SERVER_BODY_BYTES_MAX = Number.MAX_SAFE_INTEGER;

/**
 * @param options.port `0` means a free one
 * @throws {ListenError}
 */
export function listen(
  app: App,
  options: { readonly host: string; readonly port: number },
): Listener {
  const { host, port } = options;
  let server: Bun.Server<undefined>;
  try {
    server = Bun.serve({
      hostname: host,
      port,
      // A quiet stream is no idle connection (contract.md, What others' users ran into).
      idleTimeout: 0,
      reusePort: false,
      development: false,
      maxRequestBodySize: SERVER_BODY_BYTES_MAX,
      fetch: (request) => app.fetch(request),
      error: (error) => app.failure(error),
    });
  } catch (error) {
    throw new ListenError(reasonFor(error, host, port), { cause: error });
  }
  const bound = server.port ?? port;
  return {
    port: bound,
    url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`,
    drain: () => server.stop(false),
    close: () => server.stop(true),
  };
}

function reasonFor(error: unknown, host: string, port: number): string {
  const { code } = error as { readonly code?: unknown };
  const where = `${host}:${port}`;
  if (code === "EADDRINUSE") {
    return `Port ${port} is in use: stop what listens on ${where}, or choose another port`;
  }
  if (code === "EACCES") {
    return `Port ${port} needs more rights: choose one above 1023`;
  }
  return `Cannot listen on ${where}: ${typeof code === "string" ? code : "unknown error"}`;
}
