/**
 * Names every number of the contract once, with its unit. Where two limits depend on one another the relation is
 * stated here, so that one cannot be changed without the other.
 */

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;
const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;

// Identity and retention (operations.md, Query and retention; contract.md, Identity and time).
export const RECEIPT_RETENTION_MS = 7 * DAY_MS;
export const OPERATION_AGE_MS_MAX = 7 * DAY_MS;
export const OPERATION_FUTURE_MS_MAX = 5 * MINUTE_MS;
export const RECEIPT_SWEEP_BATCH_MAX = 128;
export const SWEEP_INTERVAL_MS = 60 * SECOND_MS;

// Admission (operations.md, Requests and duplicate detection; contract.md, Admission and receipts).
export const WAITING_INPUTS_MAX = 32;
export const ADMISSION_BODY_BYTES_MAX = 9 * MIB;
export const BODY_BYTES_MAX = 64 * KIB;
export const TEXT_BYTES_MAX = 1 * MIB;
export const IMAGES_MAX = 8;
export const IMAGE_BYTES_MAX = 5 * MIB;
export const TITLE_CHARS_MAX = 200;
export const NAME_CHARS_MAX = 100;
export const CLIENT_ID_CHARS_MAX = 200;
export const WORKSPACE_CHARS_MAX = 4096;
export const CONSUME_RETRY_MS = 15 * SECOND_MS;

// Pages (contract.md, Pending inputs, turns and cancellation).
export const HISTORY_ROWS_DEFAULT = 50;
export const HISTORY_ROWS_MAX = 200;
export const PAGE_BYTES_MAX = 1 * MIB;
export const SESSIONS_PAGE_DEFAULT = 50;
export const SESSIONS_PAGE_MAX = 200;

// The stream (sessions.md, Stream failures and recovery; contract.md, The stream).
export const FRAME_MS = 16;
export const RING_EVENTS_MAX = 256;
export const RESPONSE_BYTES_MAX = 1 * MIB;
/** What an event's own text may take, so that a frame always has room for the event and its envelope. */
export const EVENT_TEXT_BYTES_MAX = 256 * KIB;
/** All events of the ring together; a replay then fits one response with room for its envelope. */
export const RING_BYTES_MAX = RESPONSE_BYTES_MAX - 16 * KIB;
export const KEEPALIVE_MS = 15 * SECOND_MS;
/** A write that finds no taker for this long lets the reader go (contract.md, What others' users ran into). */
export const WRITE_STALL_MS = 60 * SECOND_MS;

// Active output (sessions.md, Stream failures and recovery).
export const ACTIVE_INLINE_BYTES_MAX = 64 * KIB;
export const SPILL_WRITE_BYTES = 16 * KIB;
export const SPILL_PAGE_BYTES_MAX = 64 * KIB;
export const SPILL_REFERENCE_MS = 15 * MINUTE_MS;
export const SPILL_RUN_BYTES_MAX = 64 * MIB;
export const SPILL_TOTAL_BYTES_MAX = 1 * GIB;
export const SPILL_FILES_MAX = 4096;
export const ACTIVE_SEGMENTS_MAX = 256;

// Loading (sessions.md, Loaded sessions and unloading).
export const IDLE_SECONDS_DEFAULT = 600;
export const UNLOAD_SECONDS_DEFAULT = 3600;
export const ACTIVE_SESSION_MS = 60 * MINUTE_MS;

// Process (contract.md, Files, process, safety).
export const SHUTDOWN_MS_MAX = 5 * SECOND_MS;
export const BUSY_TIMEOUT_MS = 5 * SECOND_MS;

// Client (sessions.md, Stream failures and recovery, Prompt ownership and cancellation).
export const RECONNECT_MS_MIN = 500;
export const RECONNECT_MS_MAX = 5 * SECOND_MS;
export const CANCEL_CLEANUP_MS = 5 * SECOND_MS;
/** The deadline of a client's call, recovery included, where the caller names none. */
export const CALL_MS_DEFAULT = 30 * SECOND_MS;
/** A client that hears nothing for this long reconnects: two keepalive intervals. */
export const SILENCE_MS_MAX = 2 * KEEPALIVE_MS;
