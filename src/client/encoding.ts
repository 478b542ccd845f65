import * as v from "valibot";
import { UuidSchema } from "../wire/ids.ts";
import { OperationKindSchema } from "../wire/operation.ts";
import type { OperationKind } from "../wire/operation.ts";
import type { CreationBody, Settings } from "../wire/submission.ts";
import { eventsPath, inputPath } from "./paths.ts";
import { encodeJson } from "./transport.ts";

/**
 * Owns the bytes of an operation: what a person meant, encoded once, sent again only as the same bytes
 * (operations.md, Client recovery boundaries; contract.md, One admission, two doors).
 *
 * Submissions go through `PUT /sessions/{id}/inputs/{input_id}` unless the events door is asked for; both decide
 * the same action under the same identity, and only the inputs door takes commands.
 */

/** Which of the two doors a submission goes through. @default "inputs" */
export type Door = "inputs" | "events";

export interface Upload {
  /** The declared type, only a label: the daemon looks at the content. */
  readonly mimeType: string;
  /** The file's bytes, or their base64 (RFC 4648 §4). */
  readonly data: Uint8Array | string;
}

/** What every submission may say beside its content. */
export interface SubmissionFields {
  /** Comes back with the input's events and history row; never part of the action. */
  readonly clientId?: string;
  /** Who owns the input, for targeted cancellation: a UUIDv7. @default the operation id */
  readonly submissionId?: string;
  readonly door?: Door;
}

export interface MessageFields extends SubmissionFields {
  readonly text?: string;
  readonly images?: readonly Upload[];
}

export interface InvocationFields extends SubmissionFields {
  readonly name: string;
  /** The raw argument text. */
  readonly arguments?: string;
}

/** Commands are admitted through the inputs door alone. */
export type CommandFields = Omit<InvocationFields, "door">;

/** What a new session is made of; everything has a default. */
export interface CreationFields {
  /** An absolute path of a directory. @default the user's home directory */
  readonly workspace?: string;
  readonly title?: string;
  /** `provider/model`. @default the configured one */
  readonly model?: string;
  readonly parentId?: string | null;
  readonly settings?: Settings;
}

/** An operation as it goes over the wire and as it is kept. */
export interface EncodedOperation {
  readonly operationId: string;
  readonly kind: OperationKind;
  /** The session it is sent to; `null` for a creation. */
  readonly sessionId: string | null;
  readonly method: "POST" | "PUT";
  readonly path: string;
  readonly body: Uint8Array<ArrayBuffer>;
}

export function encodeCreation(operationId: string, fields: CreationFields): EncodedOperation {
  const body: CreationBody = {
    operationId,
    ...(fields.workspace === undefined ? {} : { workspace: fields.workspace }),
    ...(fields.title === undefined ? {} : { title: fields.title }),
    ...(fields.model === undefined ? {} : { model: fields.model }),
    ...(fields.parentId === undefined ? {} : { parent_id: fields.parentId }),
    ...(fields.settings === undefined ? {} : { settings: fields.settings }),
  };
  return {
    operationId,
    kind: "session_create",
    sessionId: null,
    method: "POST",
    path: "/sessions",
    body: encodeJson(body),
  };
}

export function encodeMessage(
  sessionId: string,
  operationId: string,
  fields: MessageFields,
): EncodedOperation {
  const images = (fields.images ?? []).map(({ mimeType, data }) => ({
    mimeType,
    data: typeof data === "string" ? data : toBase64(data),
  }));
  const text = fields.text === undefined ? {} : { text: fields.text };
  if (fields.door === "events") {
    const content = { ...text, ...(images.length === 0 ? {} : { images }) };
    return throughEvents(sessionId, operationId, "message", fields, { type: "user", ...content });
  }
  const uploads = images.map(({ mimeType, data }) => ({ mime_type: mimeType, data }));
  const content = { ...text, ...(images.length === 0 ? {} : { images: uploads }) };
  return throughInputs(sessionId, operationId, "message", fields, { kind: "message", ...content });
}

export function encodeContinuation(
  sessionId: string,
  operationId: string,
  fields: SubmissionFields,
): EncodedOperation {
  return fields.door === "events"
    ? throughEvents(sessionId, operationId, "continue", fields, { type: "continue" })
    : throughInputs(sessionId, operationId, "continue", fields, { kind: "continuation" });
}

export function encodeSkill(
  sessionId: string,
  operationId: string,
  fields: InvocationFields,
): EncodedOperation {
  return fields.door === "events"
    ? throughEvents(sessionId, operationId, "skill", fields, {
        type: "skill",
        ...invocation(fields),
      })
    : throughInputs(sessionId, operationId, "skill", fields, {
        kind: "skill",
        ...invocation(fields),
      });
}

export function encodeCommand(
  sessionId: string,
  operationId: string,
  fields: CommandFields,
): EncodedOperation {
  const content = { kind: "command", ...invocation(fields) };
  return throughInputs(sessionId, operationId, "command", fields, content);
}

function invocation(fields: CommandFields): { name: string; arguments?: string } {
  return {
    name: fields.name,
    ...(fields.arguments === undefined ? {} : { arguments: fields.arguments }),
  };
}

function throughEvents(
  sessionId: string,
  operationId: string,
  kind: OperationKind,
  fields: SubmissionFields,
  content: object,
): EncodedOperation {
  const body = encodeJson({
    operationId,
    ...content,
    ...(fields.clientId === undefined ? {} : { clientId: fields.clientId }),
    ...(fields.submissionId === undefined ? {} : { submissionId: fields.submissionId }),
  });
  const path = eventsPath(sessionId);
  return { operationId, kind, sessionId, method: "POST", path, body };
}

function throughInputs(
  sessionId: string,
  operationId: string,
  kind: OperationKind,
  fields: SubmissionFields,
  content: object,
): EncodedOperation {
  const body = encodeJson({
    ...content,
    ...(fields.clientId === undefined ? {} : { client_id: fields.clientId }),
    ...(fields.submissionId === undefined ? {} : { submission_id: fields.submissionId }),
  });
  const path = inputPath(sessionId, operationId);
  return { operationId, kind, sessionId, method: "PUT", path, body };
}

/** How many bytes go through one call of `String.fromCharCode`: engines bound the number of arguments. */
const BASE64_SLICE_BYTES = 0x6000;

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += BASE64_SLICE_BYTES) {
    binary += String.fromCharCode(...bytes.subarray(start, start + BASE64_SLICE_BYTES));
  }
  return btoa(binary);
}

/**
 * A kept operation, as `OperationHandle.toJSON` gives it and a program may store it. It holds what was meant, so
 * it is as private as that; it holds neither the daemon's address nor its token.
 */
export const HandleRecordSchema = v.object({
  version: v.literal(1),
  operationId: UuidSchema,
  kind: OperationKindSchema,
  sessionId: v.nullable(UuidSchema),
  method: v.picklist(["POST", "PUT"]),
  path: v.string(),
  /** The body's text; its UTF-8 is what was sent. */
  body: v.string(),
  /** The daemon has said that the operation is too old to be decided. */
  expired: v.boolean(),
});
export type HandleRecord = v.InferOutput<typeof HandleRecordSchema>;

/** Whether the request of a kept operation is one that this module makes. */
export function isCoherent(operation: EncodedOperation): boolean {
  const { kind, sessionId, operationId, method, path } = operation;
  if (kind === "session_create") {
    return sessionId === null && method === "POST" && path === "/sessions";
  }
  if (sessionId === null) return false;
  if (method === "PUT") return path === inputPath(sessionId, operationId);
  return kind !== "command" && path === eventsPath(sessionId);
}
