import type { StoredRow } from "../../src/store/rows.ts";

/** A row with what a test does not care about filled in. */
export function storedRow(given: Partial<StoredRow> & Pick<StoredRow, "role">): StoredRow {
  return {
    sessionId: "01900000-0000-7000-8000-000000000001",
    rowId: 1,
    turnId: "01900000-0000-7000-8000-000000000002",
    messageId: null,
    liveId: null,
    text: null,
    display: null,
    operationId: null,
    clientId: null,
    toolCallId: null,
    toolName: null,
    toolStatus: null,
    toolInput: undefined,
    metadata: undefined,
    createdAt: 0,
    ...given,
  };
}
