import * as limits from "../base/limits.ts";
import { VERSION } from "../base/version.ts";
import { PROTOCOL_VERSION, SESSION_REPLAY_VERSION, type ServerInfo } from "../wire/server.ts";

/** Owns what `GET /server` says: who answers, what it can do, and the numbers in force. */
export interface Identity {
  readonly instanceId: string;
  readonly pid: number;
  readonly startedAt: number;
}

/** The settings that a person can change. */
export interface Tunables {
  readonly idleSeconds: number;
  readonly unloadSeconds: number;
}

export function serverInfo(identity: Identity, tunables: Tunables): ServerInfo {
  return {
    name: "albedo",
    version: VERSION,
    protocol: PROTOCOL_VERSION,
    instance_id: identity.instanceId,
    pid: identity.pid,
    started_at: identity.startedAt,
    capabilities: { session_replay: SESSION_REPLAY_VERSION, operations: 1, active_output: 1 },
    limits: {
      ...LIMITS,
      idle_seconds: tunables.idleSeconds,
      unload_seconds: tunables.unloadSeconds,
    },
  };
}

const LIMITS = {
  admission_body_bytes_max: limits.ADMISSION_BODY_BYTES_MAX,
  body_bytes_max: limits.BODY_BYTES_MAX,
  text_bytes_max: limits.TEXT_BYTES_MAX,
  images_max: limits.IMAGES_MAX,
  image_bytes_max: limits.IMAGE_BYTES_MAX,
  waiting_inputs_max: limits.WAITING_INPUTS_MAX,
  consume_retry_ms: limits.CONSUME_RETRY_MS,
  operation_age_ms_max: limits.OPERATION_AGE_MS_MAX,
  operation_future_ms_max: limits.OPERATION_FUTURE_MS_MAX,
  receipt_retention_ms: limits.RECEIPT_RETENTION_MS,
  history_rows_max: limits.HISTORY_ROWS_MAX,
  sessions_page_max: limits.SESSIONS_PAGE_MAX,
  page_bytes_max: limits.PAGE_BYTES_MAX,
  keepalive_ms: limits.KEEPALIVE_MS,
  write_stall_ms: limits.WRITE_STALL_MS,
  frame_ms: limits.FRAME_MS,
  response_bytes_max: limits.RESPONSE_BYTES_MAX,
  ring_events_max: limits.RING_EVENTS_MAX,
  active_inline_bytes_max: limits.ACTIVE_INLINE_BYTES_MAX,
  active_segments_max: limits.ACTIVE_SEGMENTS_MAX,
  spill_page_bytes_max: limits.SPILL_PAGE_BYTES_MAX,
  spill_reference_ms: limits.SPILL_REFERENCE_MS,
  shutdown_ms_max: limits.SHUTDOWN_MS_MAX,
} as const;
