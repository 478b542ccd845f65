import { assert } from "../base/assert.ts";
import type { Turn, TurnState } from "../wire/input.ts";
import type { Database } from "./database.ts";
import type { TurnEnd } from "./rows.ts";

/**
 * Owns turns and their members (contract.md, Pending inputs, turns and cancellation). At most one turn of a session
 * runs; an ended turn never changes again. What writes runs inside of a transaction of `conversation.ts`.
 */
export interface RunningTurn {
  /** The row's key. */
  readonly turn: number;
  readonly turnId: string;
  readonly sessionId: string;
  /** The session's newest row id when the turn began. */
  readonly rowFloor: number;
}

interface TurnRow {
  readonly turn: number;
  readonly id: string;
  readonly state: TurnState;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly errorCode: string | null;
  readonly errorMessage: string | null;
}

const COLUMNS = `turns.turn AS turn, turns.turn_id AS id, turns.state AS state, turns.started_at AS startedAt,
  turns.ended_at AS endedAt, turns.error_code AS errorCode, turns.error_message AS errorMessage`;
const GET = `SELECT ${COLUMNS} FROM turns WHERE turn_id = ?1`;
const LATEST = `SELECT ${COLUMNS} FROM turns WHERE session_id = ?1 ORDER BY turn DESC LIMIT 1`;
const OF_INPUT = `
  SELECT ${COLUMNS} FROM turn_members JOIN turns ON turns.turn = turn_members.turn
  WHERE turn_members.operation_id = ?1`;
const MEMBERS =
  "SELECT operation_id AS operationId FROM turn_members WHERE turn = ?1 ORDER BY position";
const RUNNING_COLUMNS = "turn, turn_id AS turnId, session_id AS sessionId, row_floor AS rowFloor";
const RUNNING = `SELECT ${RUNNING_COLUMNS} FROM turns WHERE session_id = ?1 AND state = 'running'`;
/** The plus keeps the planner from walking all turns in their order instead of the few that run. */
const ALL_RUNNING = `SELECT ${RUNNING_COLUMNS} FROM turns WHERE state = 'running' ORDER BY +turn`;
const START = `
  INSERT INTO turns (turn_id, session_id, state, row_floor, started_at) VALUES (?1, ?2, 'running', ?3, ?4)`;
const JOIN = `
  INSERT INTO turn_members (turn, position, operation_id)
  VALUES (?1, (SELECT count(*) FROM turn_members WHERE turn = ?1), ?2)`;
const END = `
  UPDATE turns SET state = ?2, ended_at = ?3, error_code = ?4, error_message = ?5
  WHERE turn = ?1 AND state = 'running'`;

export class Turns {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get(turnId: string): Turn | null {
    return this.#render(this.#database.query<TurnRow>(GET).get(turnId));
  }

  /** The session's newest turn. */
  latest(sessionId: string): Turn | null {
    return this.#render(this.#database.query<TurnRow>(LATEST).get(sessionId));
  }

  /** The turn that an input is a member of. */
  ofInput(operationId: string): Turn | null {
    return this.#render(this.#database.query<TurnRow>(OF_INPUT).get(operationId));
  }

  running(sessionId: string): RunningTurn | null {
    return this.#database.query<RunningTurn>(RUNNING).get(sessionId);
  }

  allRunning(): RunningTurn[] {
    return this.#database.query<RunningTurn>(ALL_RUNNING).all();
  }

  members(turn: number): string[] {
    return this.#database
      .query<{ operationId: string }>(MEMBERS)
      .all(turn)
      .map(({ operationId }) => operationId);
  }

  start(turnId: string, sessionId: string, rowFloor: number, now: number): RunningTurn {
    const done = this.#database.query(START).run(turnId, sessionId, rowFloor, now);
    return { turn: Number(done.lastInsertRowid), turnId, sessionId, rowFloor };
  }

  join(turn: RunningTurn, operationId: string): void {
    this.#database.query(JOIN).run(turn.turn, operationId);
  }

  end(turn: RunningTurn, end: TurnEnd, now: number): void {
    const { changes } = this.#database
      .query(END)
      .run(
        turn.turn,
        end.state,
        now,
        end.error?.code.toWellFormed() ?? null,
        end.error?.message.toWellFormed() ?? null,
      );
    assert(changes === 1, "A turn that ends must have been running");
  }

  #render(row: TurnRow | null): Turn | null {
    if (row === null) return null;
    return {
      id: row.id,
      state: row.state,
      members: this.members(row.turn),
      started_at: row.startedAt,
      ...(row.endedAt === null ? {} : { ended_at: row.endedAt }),
      ...(row.errorCode === null
        ? {}
        : { error: { code: row.errorCode, message: row.errorMessage ?? "" } }),
    };
  }
}
