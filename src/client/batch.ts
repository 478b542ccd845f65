import * as v from "valibot";
import { BatchSchema, KNOWN_EVENT_SCHEMAS } from "../wire/event.ts";
import type { ActiveSegment, EventKind, ResetEvent, StreamEvent } from "../wire/event.ts";
import { ProtocolError } from "./errors.ts";
import { explain } from "./transport.ts";

/**
 * Owns the rules that one frame has to keep before anything of it is consumed (sessions.md, Stream failures and
 * recovery):
 *
 * B1. Where no pair is saved and where the generation changed, a reset leads.
 * B2. Within one generation the cursor does not go back, unless a reset leads.
 * B3. A reset leads or is not there. Events carry increasing numbers, each past what was consumed and none past
 *     the cursor. That every number is there is not provable from here: a reader may be spared some.
 * B4. Known kinds are what `wire/event.ts` says; unknown kinds are ignored; an event without a kind is malformed.
 */

/** What has been consumed: both values together, as a reconnect sends them. */
export interface Position {
  readonly generation: string;
  readonly seq: number;
}

export type LiveEvent = Exclude<StreamEvent, { kind: "reset" }>;

export interface CheckedBatch {
  readonly generation: string;
  readonly cursor: number;
  readonly reset: ResetEvent | null;
  /** The events after the reset, unknown kinds left out. */
  readonly events: readonly LiveEvent[];
}

/**
 * The batch of one frame's data.
 *
 * @param saved what was consumed; `null` asks for a leading reset
 * @throws {ProtocolError}
 */
export function parseBatch(data: string, saved: Position | null): CheckedBatch {
  const raw = v.safeParse(BatchSchema, parseJson(data));
  if (!raw.success) throw new ProtocolError(`Malformed batch: ${explain(raw.issues)}`);
  const { generation, cursor } = raw.output;
  const known = raw.output.events.map(parseEvent).filter((event) => event !== null);
  const [first] = known;
  const reset = first?.kind === "reset" ? first : null;
  const events: LiveEvent[] = [];
  for (const event of reset === null ? known : known.slice(1)) {
    if (event.kind === "reset") throw new ProtocolError("A reset that does not lead its batch");
    events.push(event);
  }
  if (reset === null) checkContinuation(generation, cursor, saved);
  else checkReset(reset, cursor, raw.output.events[0]);
  checkNumbers(events, reset?.seq ?? saved?.seq ?? 0, cursor);
  return { generation, cursor, reset, events };
}

function checkContinuation(generation: string, cursor: number, saved: Position | null): void {
  if (saved === null) throw new ProtocolError("The stream does not begin with a reset");
  if (generation !== saved.generation) {
    throw new ProtocolError("The generation changed without a reset");
  }
  if (cursor < saved.seq) {
    throw new ProtocolError(`The cursor went back from ${saved.seq} to ${cursor} without a reset`);
  }
}

function checkReset(reset: ResetEvent, cursor: number, leading: unknown): void {
  if (!isRecord(leading) || leading["kind"] !== "reset") {
    throw new ProtocolError("A reset that does not lead its batch");
  }
  if (reset.seq > cursor) throw new ProtocolError("A reset past its cursor");
  for (const segment of reset.active_output.segments) checkSegment(segment);
}

/** Exactly one place holds a segment's content. */
function checkSegment({ text, content, unavailable }: ActiveSegment): void {
  const places = [text, content, unavailable].filter((place) => place !== undefined);
  if (places.length !== 1) throw new ProtocolError("A segment with no content or several");
}

function checkNumbers(events: readonly LiveEvent[], consumed: number, cursor: number): void {
  let last = consumed;
  for (const { seq } of events) {
    if (seq <= last) throw new ProtocolError(`Event ${seq} comes after ${last}`);
    if (seq > cursor) throw new ProtocolError(`Event ${seq} lies past the cursor ${cursor}`);
    last = seq;
  }
}

/** `null` for an unknown kind. */
function parseEvent(raw: unknown): StreamEvent | null {
  if (!isRecord(raw) || typeof raw["kind"] !== "string" || raw["kind"] === "") {
    throw new ProtocolError("An event without a kind");
  }
  const { kind } = raw;
  if (!isKnown(kind)) return null;
  const parsed = v.safeParse(KNOWN_EVENT_SCHEMAS[kind], raw);
  if (!parsed.success) {
    throw new ProtocolError(`Malformed event '${kind}': ${explain(parsed.issues)}`);
  }
  return parsed.output;
}

function isKnown(kind: string): kind is EventKind {
  return Object.hasOwn(KNOWN_EVENT_SCHEMAS, kind);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parseJson(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new ProtocolError("A frame that is not JSON", error);
  }
}
