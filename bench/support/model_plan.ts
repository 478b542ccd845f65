import { preciseNow } from "./event_stream.ts";

/**
 * Owns how a bench tells the local model server what to answer: the plan stands as JSON in the text of the request's
 * last user message. A text without a plan gets the short answer that is given at once.
 */
export interface ModelPlan {
  /** Never answers, until the connection goes. */
  readonly hold?: boolean;
  readonly deltas?: number;
  /** Time from delta to delta; 0 sends them all at once. */
  readonly everyMs?: number;
  /** What a delta is filled up to. */
  readonly bytes?: number;
  /** Words of a long text instead of stamps, so that the text is like a real answer. */
  readonly prose?: boolean;
}

const PLAN_REGEXP = /\{"plan":(\{[^}]*\})\}/;

export function promptFor(plan: ModelPlan): string {
  return JSON.stringify({ plan });
}

export function planIn(text: string): ModelPlan {
  const found = PLAN_REGEXP.exec(text)?.[1];
  return found === undefined
    ? { deltas: 5, everyMs: 0, bytes: 20 }
    : (JSON.parse(found) as ModelPlan);
}

/** A delta that says when it was sent. */
export function stamped(bytes: number): string {
  return `@${preciseNow().toFixed(3)};`.padEnd(bytes, ".");
}

const STAMP_REGEXP = /@(\d+\.\d+);/g;

/** When the deltas that a text is made of were sent. */
export function stampsIn(text: string): number[] {
  return [...text.matchAll(STAMP_REGEXP)].map((match) => Number(match[1]));
}
