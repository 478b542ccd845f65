import type { Ids } from "../../src/base/ids.ts";
import type { Input } from "../../src/wire/input.ts";
import type { Receipt } from "../../src/wire/operation.ts";
import type { SessionResource } from "../../src/wire/session.ts";
import { EventReader } from "./event_reader.ts";
import { until } from "./until.ts";

/** An answer, read whole. */
export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * The daemon's HTTP interface as bare requests: what goes out is written here and nowhere else, so that a mistake in
 * the client library cannot hide one in the daemon.
 */
export abstract class Api {
  readonly ids: Ids;

  constructor(ids: Ids) {
    this.ids = ids;
  }

  abstract get url(): string;
  abstract get token(): string;

  request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (!headers.has("authorization")) headers.set("authorization", `Bearer ${this.token}`);
    return fetch(this.url + path, { ...init, headers });
  }

  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    const response = await this.request(path, {
      method,
      ...(body === undefined
        ? { headers }
        : {
            body: typeof body === "string" ? body : JSON.stringify(body),
            headers: { "content-type": "application/json", ...headers },
          }),
    });
    return { status: response.status, text: await response.text(), headers: response.headers };
  }

  /** @throws where the answer is no 2xx */
  async json<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await this.send(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return JSON.parse(answer.text) as T;
  }

  create(fields: Fields): Promise<Answer> {
    return this.send("POST", "/sessions", fields);
  }

  /** The id of a new session. */
  async created(fields: Fields): Promise<string> {
    const body = { operationId: this.ids.uuidv7(), ...fields };
    return (await this.json<{ sessionId: string }>("POST", "/sessions", body)).sessionId;
  }

  /** Through the door of operations.md. */
  event(sessionId: string, fields: Fields): Promise<Answer> {
    return this.send("POST", `/sessions/${sessionId}/events`, fields);
  }

  /** Through the door of sessions.md. */
  put(sessionId: string, inputId: string, fields: Fields): Promise<Answer> {
    return this.send("PUT", `/sessions/${sessionId}/inputs/${inputId}`, fields);
  }

  /** Admits a message and gives back its id. */
  async say(sessionId: string, text: string, fields: Fields = {}): Promise<string> {
    const operationId = this.ids.uuidv7();
    const answer = await this.event(sessionId, { operationId, text, ...fields });
    if (answer.status !== 202) throw new Error(`Not accepted: ${answer.status} ${answer.text}`);
    return operationId;
  }

  receipt(operationId: string): Promise<Receipt> {
    return this.json("GET", `/operations/${operationId}`);
  }

  input(sessionId: string, inputId: string): Promise<Input> {
    return this.json("GET", `/sessions/${sessionId}/inputs/${inputId}`);
  }

  resource(sessionId: string, tail = 50): Promise<SessionResource> {
    return this.json("GET", `/sessions/${sessionId}?tail=${tail}`);
  }

  /** Waits until the turn of an input has ended. */
  ended(sessionId: string, inputId: string): Promise<Input> {
    return until(`the turn of ${inputId} to end`, async () => {
      const input = await this.input(sessionId, inputId);
      return input.turn?.ended_at === undefined ? null : input;
    });
  }

  async stream(
    sessionId: string,
    options: { readonly query?: string; readonly headers?: Record<string, string> } = {},
  ): Promise<EventReader> {
    const response = await this.request(`/sessions/${sessionId}/events${options.query ?? ""}`, {
      headers: { "accept-encoding": "identity", ...options.headers },
    });
    if (response.status !== 200) throw new Error(`No stream: ${response.status}`);
    return new EventReader(response);
  }
}
