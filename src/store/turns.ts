import type { Turn } from "../wire/input.ts";

export declare class Turns {
  /** The session's newest turn. */
  latest(sessionId: string): Turn | null;
  get(turnId: string): Turn | null;
  /** The turn that an input is a member of. */
  ofInput(operationId: string): Turn | null;
}
