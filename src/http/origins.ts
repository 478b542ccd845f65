import { Problem } from "../wire/problem.ts";
import { empty } from "./answers.ts";

/**
 * Owns who may speak to the daemon at all, before a token is looked at (contract.md, Files, process, safety): a web
 * page must not reach it, neither through a name that was bound to 127.0.0.1 afterwards (`Host`) nor from its own
 * origin (`Origin`). Pages of origins that a person named may: they get CORS answers.
 */

const LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"];

const ALLOWED_HEADERS = "authorization, content-type, if-match, last-event-id";
const EXPOSED_HEADERS = "albedo-replayed, allow, etag, location, retry-after";
const PREFLIGHT_SECONDS = "600";

export interface OriginRules {
  /** The names the daemon answers to, in lower case. */
  readonly hosts: ReadonlySet<string>;
  /** Origins of web pages that may use the daemon, as browsers write them. */
  readonly origins: ReadonlySet<string>;
}

/** @param bindHost the address the daemon listens on, a name it is then known by too */
export function originRules(bindHost: string, origins: readonly string[]): OriginRules {
  const bound = bindHost.includes(":") ? `[${bindHost}]` : bindHost;
  return {
    hosts: new Set([...LOOPBACK_HOSTS, bound.toLowerCase()]),
    origins: new Set(origins),
  };
}

/**
 * Refuses what no program of this machine's user sends.
 *
 * @throws {Problem} forbidden_host, forbidden_origin
 */
export function checkOrigin(rules: OriginRules, headers: Headers): void {
  const host = headers.get("host")?.toLowerCase() ?? "";
  if (!rules.hosts.has(withoutPort(host))) throw new Problem("forbidden_host");
  const origin = headers.get("origin");
  if (origin !== null) {
    if (!isAllowed(rules, origin, host)) throw new Problem("forbidden_origin");
    return;
  }
  // A page that loads an image or follows a link sends no origin, but browsers say where it comes from.
  const site = headers.get("sec-fetch-site");
  if (site === "cross-site" || site === "same-site") throw new Problem("forbidden_origin");
}

/** A page that the daemon itself served has its host; what a page of another name sends has not. */
function isAllowed(rules: OriginRules, origin: string, host: string): boolean {
  return rules.origins.has(origin) || origin === `http://${host}`;
}

/** `[::1]:80` is `[::1]`; what is no host and port stays as it is and is then unknown. */
function withoutPort(host: string): string {
  return host.replace(/:\d{1,5}$/, "");
}

/** Whether a browser asks for a page if it may send a request; it never sends the token along (Fetch §4.8). */
export function isPreflight(headers: Headers): boolean {
  return headers.has("origin") && headers.has("access-control-request-method");
}

/** Answers a preflight of an origin that was let in. */
export function preflight(headers: Headers, methods: readonly string[]): Response {
  return empty(204, {
    "access-control-allow-methods": methods.join(", "),
    "access-control-allow-headers": ALLOWED_HEADERS,
    "access-control-max-age": PREFLIGHT_SECONDS,
    ...(headers.get("access-control-request-private-network") === "true"
      ? { "access-control-allow-private-network": "true" }
      : {}),
  });
}

/** Lets the page of an allowed origin read the answer. */
export function allowReading(rules: OriginRules, request: Request, response: Response): Response {
  const origin = request.headers.get("origin");
  const host = request.headers.get("host")?.toLowerCase() ?? "";
  if (origin === null || !isAllowed(rules, origin, host)) return response;
  response.headers.set("access-control-allow-origin", origin);
  response.headers.set("access-control-expose-headers", EXPOSED_HEADERS);
  response.headers.append("vary", "Origin");
  return response;
}
