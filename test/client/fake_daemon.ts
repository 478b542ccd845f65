import type { Server } from "bun";
import { problemBody } from "../../src/wire/problem.ts";
import type { ProblemCode } from "../../src/wire/problem.ts";

/**
 * A daemon of nothing but the admission contract, in memory: what it has decided survives `stop` and `start`, as
 * on a disk, and it comes back on another port. `actions` counts what was done by what was meant (the text), so that
 * one action under two ids is seen as two.
 */
export interface FakeDecision {
  readonly operationId: string;
  readonly kind: string;
  readonly target: string;
  readonly status: number;
  readonly body: string;
  /** The request's own body, for the conflict check. */
  readonly request: string;
}

export const FAKE_TOKEN = "fake-token-of-the-fake-daemon";

/** What the next submission runs into: `before`: 500, and nothing was decided; `after`: decided, then 500. */
export type Breakdown = "before" | "after" | null;

export class FakeDaemon {
  readonly decisions = new Map<string, FakeDecision>();
  /** How often each text was accepted as an action of its own. */
  readonly actions = new Map<string, number>();
  /** Breakdowns of the submissions to come. */
  readonly breakdowns: Breakdown[] = [];
  /** Submissions that reached it whole, however they ended. */
  submissions = 0;
  /** Texts that are refused for good, with the refusal recorded. */
  readonly refused = new Set<string>();
  #server: Server<undefined> | null = null;

  get port(): number | null {
    return this.#server?.port ?? null;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  start(): void {
    this.#server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      fetch: (request) => this.#answer(request),
    });
  }

  /** As a SIGKILL: connections break, decisions stay. */
  async kill(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    await server?.stop(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #answer(request: Request): Promise<Response> {
    if (request.headers.get("authorization") !== `Bearer ${FAKE_TOKEN}`) {
      return problem("unauthorized");
    }
    const [, resource, id, part, inputId] = new URL(request.url).pathname.split("/");
    if (resource === "operations" && id !== undefined) return this.#receipt(id);
    if (resource === "sessions" && request.method !== "GET") {
      const body = await request.text();
      return this.#admit({ sessionId: id ?? null, isInput: part === "inputs", inputId, body });
    }
    return problem("not_found");
  }

  #admit(request: {
    sessionId: string | null;
    isInput: boolean;
    inputId: string | undefined;
    body: string;
  }): Response {
    this.submissions += 1;
    const breakdown = this.breakdowns.shift() ?? null;
    if (breakdown === "before") return problem("internal");
    const fields = JSON.parse(request.body) as Record<string, string>;
    const operationId = request.isInput ? request.inputId : fields["operationId"];
    if (operationId === undefined) return problem("invalid_request");
    const known = this.decisions.get(operationId);
    if (known !== undefined && known.request !== request.body) return problem("operation_conflict");
    const decision = known ?? this.#decide(operationId, request.sessionId, fields, request.body);
    if (breakdown === "after") return problem("internal");
    const contentType = decision.status < 300 ? "application/json" : "application/problem+json";
    return new Response(decision.body, {
      status: decision.status,
      headers: {
        "content-type": contentType,
        ...(known === undefined ? {} : { "albedo-replayed": "true" }),
      },
    });
  }

  #decide(
    operationId: string,
    sessionId: string | null,
    fields: Record<string, string>,
    request: string,
  ): FakeDecision {
    const text = fields["text"] ?? fields["title"] ?? fields["name"] ?? "";
    const kind = sessionId === null ? "session_create" : kindOf(fields);
    const target = sessionId ?? operationId;
    const accepted = { operationId, sessionId: target, status: "accepted", acceptedAt: 1 };
    const decision: FakeDecision = this.refused.has(text)
      ? {
          operationId,
          kind,
          target,
          status: 429,
          body: JSON.stringify(problemBody("queue_full")),
          request,
        }
      : {
          operationId,
          kind,
          target,
          status: sessionId === null ? 201 : 202,
          body: JSON.stringify(accepted),
          request,
        };
    this.decisions.set(operationId, decision);
    if (decision.status < 300) this.actions.set(text, (this.actions.get(text) ?? 0) + 1);
    return decision;
  }

  #receipt(operationId: string): Response {
    const decision = this.decisions.get(operationId);
    if (decision === undefined) return problem("operation_unknown");
    const isAccepted = decision.status < 300;
    const body: unknown = JSON.parse(decision.body);
    return Response.json({
      operationId,
      fingerprint: "0".repeat(64),
      kind: decision.kind,
      target: decision.target,
      createdAt: 1,
      admission: isAccepted ? "accepted" : "rejected",
      httpStatus: decision.status,
      ...(isAccepted ? { result: body } : { error: body }),
    });
  }
}

function kindOf(fields: Record<string, string>): string {
  const kind = fields["kind"] ?? fields["type"] ?? "message";
  if (kind === "continuation") return "continue";
  return kind === "user" ? "message" : kind;
}

export function problem(code: ProblemCode, detail?: string): Response {
  const body = problemBody(code, detail);
  return new Response(JSON.stringify(body), {
    status: body.status,
    headers: { "content-type": "application/problem+json" },
  });
}
