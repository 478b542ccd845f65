import { describe, expect, test } from "bun:test";
import * as limits from "../../src/base/limits.ts";

// Goal: the numbers are those of the contract, and those that depend on one another keep to it.

describe("limits", () => {
  test("are the numbers of the contract and the specs", () => {
    expect(limits).toMatchObject({
      RECEIPT_RETENTION_MS: 7 * 24 * 3600 * 1000,
      OPERATION_AGE_MS_MAX: 7 * 24 * 3600 * 1000,
      OPERATION_FUTURE_MS_MAX: 5 * 60 * 1000,
      RECEIPT_SWEEP_BATCH_MAX: 128,
      WAITING_INPUTS_MAX: 32,
      ADMISSION_BODY_BYTES_MAX: 9 * 1024 * 1024,
      BODY_BYTES_MAX: 64 * 1024,
      TEXT_BYTES_MAX: 1024 * 1024,
      IMAGES_MAX: 8,
      IMAGE_BYTES_MAX: 5 * 1024 * 1024,
      CONSUME_RETRY_MS: 15_000,
      HISTORY_ROWS_DEFAULT: 50,
      HISTORY_ROWS_MAX: 200,
      PAGE_BYTES_MAX: 1024 * 1024,
      FRAME_MS: 16,
      RING_EVENTS_MAX: 256,
      RESPONSE_BYTES_MAX: 1024 * 1024,
      KEEPALIVE_MS: 15_000,
      ACTIVE_INLINE_BYTES_MAX: 64 * 1024,
      SPILL_WRITE_BYTES: 16 * 1024,
      SPILL_PAGE_BYTES_MAX: 64 * 1024,
      SPILL_REFERENCE_MS: 15 * 60 * 1000,
      SPILL_RUN_BYTES_MAX: 64 * 1024 * 1024,
      SPILL_TOTAL_BYTES_MAX: 1024 * 1024 * 1024,
      SPILL_FILES_MAX: 4096,
      ACTIVE_SEGMENTS_MAX: 256,
      IDLE_SECONDS_DEFAULT: 600,
      UNLOAD_SECONDS_DEFAULT: 3600,
      ACTIVE_SESSION_MS: 60 * 60 * 1000,
      SHUTDOWN_MS_MAX: 5_000,
      RECONNECT_MS_MIN: 500,
      RECONNECT_MS_MAX: 5_000,
      CANCEL_CLEANUP_MS: 5_000,
    });
  });

  test("a receipt outlives every id that could still be new to us", () => {
    // Else an id up to five minutes ahead could execute twice (contract.md, Identity and time).
    expect(limits.RECEIPT_RETENTION_MS).toBeGreaterThanOrEqual(limits.OPERATION_AGE_MS_MAX);
  });

  test("any replay fits one response, and so does the largest event", () => {
    expect(limits.RING_BYTES_MAX).toBeLessThan(limits.RESPONSE_BYTES_MAX);
    expect(limits.EVENT_TEXT_BYTES_MAX).toBeLessThan(limits.RING_BYTES_MAX);
  });

  test("one upload of the largest size fits a body, in base64", () => {
    expect(Math.ceil(limits.IMAGE_BYTES_MAX / 3) * 4).toBeLessThan(limits.ADMISSION_BODY_BYTES_MAX);
    expect(limits.TEXT_BYTES_MAX).toBeLessThan(limits.ADMISSION_BODY_BYTES_MAX);
  });

  test("a client gives up on silence only when two keepalives are missing", () => {
    expect(limits.SILENCE_MS_MAX).toBe(2 * limits.KEEPALIVE_MS);
  });
});
