import * as v from "valibot";
import { HistoryRowSchema, RowId } from "./history.ts";
import { UuidSchema } from "./ids.ts";
import { PendingInputSchema, TurnSchema } from "./input.ts";
import { PhaseSchema } from "./session.ts";

/**
 * Owns the stream's vocabulary (contract.md, The stream). A transcript row reaches a client in exactly these
 * places: `row` of `input_committed`, `assistant`, `thinking`, `tool_finished` and `note`, `rows` of `committed`
 * (those no earlier event carried), and `history` of a `reset`. A client that stores rows by id and applies events
 * in order ends with the transcript.
 */
const Seq = v.pipe(v.number(), v.integer(), v.minValue(0));
const seq = { seq: Seq };

/** Where the rest of a spilled segment is read: `GET …/active-output/{content_id}?snapshot={snapshot}`. */
export const ContentReferenceSchema = v.object({
  content_id: v.string(),
  snapshot: v.string(),
  /** UTF-8 bytes up to the cutoff that was fixed at capture. */
  bytes: v.number(),
  /** Milliseconds since the epoch after which the reference answers 410. */
  expires_at: v.number(),
});
export type ContentReference = v.InferOutput<typeof ContentReferenceSchema>;

/**
 * One provisional chunk of unfinished output. Exactly one of `text`, `content` and `unavailable` holds its whole
 * content so far.
 */
export const ActiveSegmentSchema = v.object({
  live_id: v.string(),
  message_id: v.string(),
  kind: v.picklist(["text", "thinking"]),
  text: v.optional(v.string()),
  content: v.optional(ContentReferenceSchema),
  /** The content could not be kept; it arrives with the commit. */
  unavailable: v.optional(v.literal(true)),
});
export type ActiveSegment = v.InferOutput<typeof ActiveSegmentSchema>;

export const ActiveOutputSchema = v.object({
  segments: v.array(ActiveSegmentSchema),
  /** Some output is in no segment (storage failed, or there were too many segments). */
  incomplete: v.boolean(),
});
export type ActiveOutput = v.InferOutput<typeof ActiveOutputSchema>;

export const ToolProgressSchema = v.object({
  tool_call_id: v.string(),
  tool_name: v.string(),
  phase: v.picklist(["preparing", "running", "finishing"]),
  /** A bounded look at the arguments or the newest output. */
  preview: v.string(),
  started_at: v.number(),
});
export type ToolProgress = v.InferOutput<typeof ToolProgressSchema>;

/** The tools that work right now, in the order they were called. */
export const CurrentProgressSchema = v.object({ tools: v.array(ToolProgressSchema) });
export type CurrentProgress = v.InferOutput<typeof CurrentProgressSchema>;

/** `seq` of a reset is the batch's cursor: it takes no number of its own. */
export const ResetEventSchema = v.object({
  ...seq,
  kind: v.literal("reset"),
  history: v.array(HistoryRowSchema),
  /** Older rows exist: page `GET …/history?before={history[0].id}`. */
  history_more: v.boolean(),
  history_watermark: RowId,
  active_output: ActiveOutputSchema,
  current_progress: v.nullable(CurrentProgressSchema),
  pending_inputs: v.array(PendingInputSchema),
  phase: PhaseSchema,
  blocking_reason: v.optional(v.string()),
  turn: v.nullable(TurnSchema),
});
export type ResetEvent = v.InferOutput<typeof ResetEventSchema>;

const delta = { ...seq, message_id: v.string(), live_id: v.string(), text: v.string() };

export const KNOWN_EVENT_SCHEMAS = {
  reset: ResetEventSchema,
  status: v.object({
    ...seq,
    kind: v.literal("status"),
    phase: PhaseSchema,
    running: v.boolean(),
    blocking_reason: v.optional(v.string()),
  }),
  input_accepted: v.object({
    ...seq,
    kind: v.literal("input_accepted"),
    input: PendingInputSchema,
  }),
  input_committed: v.object({
    ...seq,
    kind: v.literal("input_committed"),
    input_id: UuidSchema,
    turn_id: UuidSchema,
    row: HistoryRowSchema,
  }),
  input_cancelled: v.object({
    ...seq,
    kind: v.literal("input_cancelled"),
    input_id: UuidSchema,
  }),
  turn_started: v.object({ ...seq, kind: v.literal("turn_started"), turn: TurnSchema }),
  turn_members: v.object({
    ...seq,
    kind: v.literal("turn_members"),
    turn_id: UuidSchema,
    members: v.array(UuidSchema),
  }),
  text_delta: v.object({ ...delta, kind: v.literal("text_delta") }),
  thinking_delta: v.object({ ...delta, kind: v.literal("thinking_delta") }),
  assistant: v.object({
    ...seq,
    kind: v.literal("assistant"),
    message_id: v.string(),
    row: HistoryRowSchema,
  }),
  thinking: v.object({
    ...seq,
    kind: v.literal("thinking"),
    message_id: v.string(),
    row: HistoryRowSchema,
  }),
  tool_started: v.object({
    ...seq,
    kind: v.literal("tool_started"),
    turn_id: UuidSchema,
    tool: ToolProgressSchema,
  }),
  tool_progress: v.object({
    ...seq,
    kind: v.literal("tool_progress"),
    turn_id: UuidSchema,
    tool: ToolProgressSchema,
  }),
  tool_finished: v.object({
    ...seq,
    kind: v.literal("tool_finished"),
    turn_id: UuidSchema,
    tool_call_id: v.string(),
    row: HistoryRowSchema,
  }),
  committed: v.object({
    ...seq,
    kind: v.literal("committed"),
    turn_id: UuidSchema,
    row_ids: v.array(RowId),
    rows: v.array(HistoryRowSchema),
    history_watermark: RowId,
    replaces_live_ids: v.array(v.string()),
    replaces_all_live: v.boolean(),
  }),
  retry: v.object({
    ...seq,
    kind: v.literal("retry"),
    turn_id: UuidSchema,
    /** The attempt that failed; all it wrote is retired. */
    message_id: v.string(),
    attempt: v.number(),
    delay_ms: v.number(),
    code: v.string(),
    message: v.string(),
    replaces_live_ids: v.array(v.string()),
    replaces_all_live: v.literal(true),
  }),
  note: v.object({ ...seq, kind: v.literal("note"), row: HistoryRowSchema }),
  session: v.object({
    ...seq,
    kind: v.literal("session"),
    title: v.nullable(v.string()),
    model: v.string(),
  }),
  turn_finished: v.object({
    ...seq,
    kind: v.literal("turn_finished"),
    turn: TurnSchema,
    /** What live output is left belongs to nothing durable. */
    replaces_all_live: v.literal(true),
  }),
} as const;

export type EventKind = keyof typeof KNOWN_EVENT_SCHEMAS;
export type StreamEvent = {
  [K in EventKind]: v.InferOutput<(typeof KNOWN_EVENT_SCHEMAS)[K]>;
}[EventKind];

/** An event before it has its number. */
export type EventBody = StreamEvent extends infer E
  ? E extends unknown
    ? Omit<E, "seq">
    : never
  : never;

/** One frame's data. Events stay unparsed here: their kinds are validated one by one, unknown kinds are ignored. */
export const BatchSchema = v.object({
  generation: v.pipe(v.string(), v.minLength(1)),
  cursor: Seq,
  events: v.array(v.unknown()),
});
export type RawBatch = v.InferOutput<typeof BatchSchema>;

export interface Batch {
  readonly generation: string;
  readonly cursor: number;
  readonly events: readonly StreamEvent[];
}

/** The body of `GET …/active-output/{content_id}`. */
export const ActiveOutputPageSchema = v.object({
  content_id: v.string(),
  snapshot: v.string(),
  text: v.string(),
  /** Opaque; pass it as `next` together with the same `snapshot`. `null` at the captured cutoff. */
  next: v.nullable(v.string()),
});
export type ActiveOutputPage = v.InferOutput<typeof ActiveOutputPageSchema>;
