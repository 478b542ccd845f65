import type { WireRequest } from "./transport.ts";

/** Owns the routes' paths (contract.md, One admission, two doors). */

export function sessionPath(sessionId: string): string {
  return `/sessions/${encodeURIComponent(sessionId)}`;
}

export function eventsPath(sessionId: string): string {
  return `${sessionPath(sessionId)}/events`;
}

export function inputPath(sessionId: string, inputId: string): string {
  return `${sessionPath(sessionId)}/inputs/${encodeURIComponent(inputId)}`;
}

export function operationPath(operationId: string): string {
  return `/operations/${encodeURIComponent(operationId)}`;
}

export function activeOutputPath(
  sessionId: string,
  contentId: string,
  page: { readonly snapshot: string; readonly next?: string | null },
): string {
  const path = `${sessionPath(sessionId)}/active-output/${encodeURIComponent(contentId)}`;
  return `${path}${query({ snapshot: page.snapshot, next: page.next })}`;
}

export function get(path: string): WireRequest {
  return { method: "GET", path };
}

/** A query string with its leading `?`; absent parameters are left out. */
export function query(
  parameters: Readonly<Record<string, string | number | boolean | null | undefined>>,
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null) search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
}
