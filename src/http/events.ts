import { Elysia } from "elysia";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { Sessions, StreamPosition } from "../session/sessions.ts";
import { Problem } from "../wire/problem.ts";
import { type EventsQuery, EventsQuerySchema, SessionPathSchema } from "../wire/query.ts";
import { admitsEventStream, admitsZstd } from "./accept.ts";
import { empty } from "./answers.ts";
import { refusals } from "./refusals.ts";
import { inPath, inQuery } from "./request_schema.ts";
import { type FrameCoder, createEventStream, identityCoder } from "./sse_writer.ts";
import { createZstdCoder } from "./zstd_writer.ts";

/** Owns the stream's route: where a reader stands, and in which coding it reads (contract.md, The stream). */
export interface EventsDependencies {
  readonly sessions: Sessions;
  readonly clock: Clock;
  readonly log: Log;
}

/** What keeps a proxy from holding events back, and a cache from keeping them. */
const STREAM_HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-store, no-transform",
  "x-accel-buffering": "no",
  vary: "Accept-Encoding",
} as const;

const LAST_EVENT_ID_REGEXP = /^(?<generation>.{1,1024}):(?<seq>0|[1-9]\d{0,15})$/;

export function events({ sessions, clock, log }: EventsDependencies) {
  return new Elysia({ name: "events" }).get(
    "/sessions/:id/events",
    async ({ params, query, request }) => {
      const { headers, method, signal } = request;
      await nextTurn();
      if (!admitsEventStream(headers.get("accept"))) throw new Problem("not_acceptable");
      const position = positionOf(headers.get("last-event-id"), query);
      if (method === "HEAD") return headOf(sessions, params.id);
      const subscription = sessions.subscribe(params.id, position);
      const zstd = admitsZstd(headers.get("accept-encoding"));
      const coder: FrameCoder = zstd ? createZstdCoder() : identityCoder;
      const onFailure = (): void => log.error("A session could not be read for its stream");
      const stream = createEventStream({ subscription, coder, clock, signal, onFailure });
      return new Response(stream, {
        headers: { ...STREAM_HEADERS, ...(zstd ? { "content-encoding": "zstd" } : {}) },
      });
    },
    {
      params: inPath(SessionPathSchema),
      query: inQuery(EventsQuerySchema),
      response: refusals("session_not_found", "not_acceptable", "daemon_stopping"),
      detail: {
        operationId: "streamEvents",
        summary:
          "The session's events as server-sent events, from a position or with a reset first",
        tags: ["stream"],
        parameters: [
          {
            name: "Last-Event-ID",
            in: "header",
            description: "`after_generation` and `after_seq` joined by a colon; goes before them.",
            schema: { type: "string" },
          },
        ],
        responses: {
          200: {
            description:
              "Frames `id: generation:cursor`, `event: batch`, and `data` with one Batch each. " +
              "Coded with zstd where `Accept-Encoding` admits it.",
            content: {
              "text/event-stream": { schema: { $ref: "#/components/schemas/Batch" } },
            },
          },
        },
      },
    },
  );
}

/**
 * Where the reader left off. A browser that reconnects repeats the address it began with and adds the header, so
 * the header is the newer one.
 */
function positionOf(lastEventId: string | null, query: EventsQuery): StreamPosition | null {
  if (lastEventId !== null && lastEventId !== "") {
    const { generation, seq } = LAST_EVENT_ID_REGEXP.exec(lastEventId)?.groups ?? {};
    if (generation === undefined || !Number.isSafeInteger(Number(seq))) {
      throw new Problem("invalid_request", "The header 'Last-Event-ID' must be 'generation:seq'");
    }
    return { generation, seq: Number(seq) };
  }
  if (query.after_generation === undefined || query.after_seq === undefined) return null;
  return { generation: query.after_generation, seq: query.after_seq };
}

/**
 * Bun reads and answers a connection while it still takes the next one, so that clients which come as fast as they
 * are answered would keep it from hearing of those that left. This answers after all that came together are taken.
 */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** The head of a stream, without watching the session or loading it. */
function headOf(sessions: Sessions, sessionId: string): Response {
  sessions.historyPage(sessionId, { before: null, after: null, limit: 1, direction: "backward" });
  return empty(200, STREAM_HEADERS);
}
