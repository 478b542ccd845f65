import type { ResetEvent } from "../../src/wire/event.ts";

/** The reset of a session in which nothing has happened, with what a test cares about put in. */
export function resetEvent(given: Partial<ResetEvent> = {}): ResetEvent {
  return {
    seq: 1,
    kind: "reset",
    history: [],
    history_more: false,
    history_watermark: 0,
    active_output: { segments: [], incomplete: false },
    current_progress: null,
    pending_inputs: [],
    phase: "idle",
    turn: null,
    ...given,
  };
}
