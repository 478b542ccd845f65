import * as v from "valibot";
import {
  CLIENT_ID_CHARS_MAX,
  IMAGES_MAX,
  NAME_CHARS_MAX,
  TITLE_CHARS_MAX,
  WORKSPACE_CHARS_MAX,
} from "../base/limits.ts";
import { UuidSchema } from "./ids.ts";

/**
 * Owns what a client may ask for: the two forms of one submission, and a creation (contract.md, One admission,
 * two doors). Both doors normalize into the same `Submission`, so that the same action has the same fingerprint
 * through either.
 *
 * The schemas state shape alone; the byte limits of text and images, which a schema cannot say in characters,
 * are held in `session/admission.ts`.
 */

const Text = v.string();
const ClientId = v.pipe(v.string(), v.maxLength(CLIENT_ID_CHARS_MAX));
const Name = v.pipe(v.string(), v.minLength(1), v.maxLength(NAME_CHARS_MAX));
const Arguments = v.optional(v.string());

const EventsImageSchema = v.strictObject({ mimeType: v.string(), data: v.string() });
const InputsImageSchema = v.strictObject({ mime_type: v.string(), data: v.string() });

const eventsCommon = {
  operationId: UuidSchema,
  clientId: v.optional(ClientId),
  submissionId: v.optional(UuidSchema),
};

const EventsUserSchema = v.strictObject({
  ...eventsCommon,
  type: v.optional(v.literal("user")),
  text: v.optional(Text),
  images: v.optional(v.pipe(v.array(EventsImageSchema), v.maxLength(IMAGES_MAX))),
});
const EventsContinueSchema = v.strictObject({ ...eventsCommon, type: v.literal("continue") });
const EventsSkillSchema = v.strictObject({
  ...eventsCommon,
  type: v.literal("skill"),
  name: Name,
  arguments: Arguments,
});

/** The body of `POST /sessions/{id}/events` (operations.md, Requests and duplicate detection). */
export const EventsSubmissionSchema = v.variant("type", [
  EventsUserSchema,
  EventsContinueSchema,
  EventsSkillSchema,
]);
export type EventsSubmission = v.InferOutput<typeof EventsSubmissionSchema>;

const inputsCommon = {
  client_id: v.optional(ClientId),
  submission_id: v.optional(UuidSchema),
};

/** The body of `PUT /sessions/{id}/inputs/{input_id}` (sessions.md, Prompt ownership and cancellation). */
export const InputsSubmissionSchema = v.variant("kind", [
  v.strictObject({
    ...inputsCommon,
    kind: v.literal("message"),
    text: v.optional(Text),
    images: v.optional(v.pipe(v.array(InputsImageSchema), v.maxLength(IMAGES_MAX))),
  }),
  v.strictObject({ ...inputsCommon, kind: v.literal("continuation") }),
  v.strictObject({ ...inputsCommon, kind: v.literal("skill"), name: Name, arguments: Arguments }),
  v.strictObject({ ...inputsCommon, kind: v.literal("command"), name: Name, arguments: Arguments }),
]);
export type InputsSubmission = v.InferOutput<typeof InputsSubmissionSchema>;

/** An upload as it was sent: the declared type is only a label, the content decides. */
export interface SubmittedImage {
  readonly mimeType: string;
  /** Base64 (RFC 4648 §4). */
  readonly data: string;
}

/** What a submission does, whichever door it came through. */
export type SubmissionAction =
  | { readonly kind: "message"; readonly text: string; readonly images: readonly SubmittedImage[] }
  | { readonly kind: "continue" }
  | { readonly kind: "skill"; readonly name: string; readonly arguments: string }
  | { readonly kind: "command"; readonly name: string; readonly arguments: string };

export type SubmissionKind = SubmissionAction["kind"];

export interface Submission {
  readonly operationId: string;
  readonly sessionId: string;
  readonly action: SubmissionAction;
  /** Echo only: never part of the fingerprint. */
  readonly clientId: string | null;
  /** The explicit owner, part of the fingerprint; `null` means that the operation owns itself. */
  readonly submissionId: string | null;
}

/** Normalizes the body of the events door. Text is made well-formed before anything else sees it. */
export function fromEvents(sessionId: string, body: EventsSubmission): Submission {
  return {
    operationId: body.operationId,
    sessionId,
    clientId: body.clientId?.toWellFormed() ?? null,
    submissionId: ownerOf(body.operationId, body.submissionId),
    action: eventsAction(body),
  };
}

/** An owner that was written out and is the default is the default (operations.md, Requests and duplicate detection). */
function ownerOf(operationId: string, submissionId: string | undefined): string | null {
  return submissionId === undefined || submissionId === operationId ? null : submissionId;
}

function eventsAction(body: EventsSubmission): SubmissionAction {
  switch (body.type) {
    case "continue":
      return { kind: "continue" };
    case "skill":
      return skillLike("skill", body.name, body.arguments);
    case "user":
    case undefined:
      return {
        kind: "message",
        text: (body.text ?? "").toWellFormed(),
        images: (body.images ?? []).map(({ mimeType, data }) => ({ mimeType, data })),
      };
  }
}

/** Normalizes the body of the inputs door. */
export function fromInputs(
  sessionId: string,
  operationId: string,
  body: InputsSubmission,
): Submission {
  return {
    operationId,
    sessionId,
    clientId: body.client_id?.toWellFormed() ?? null,
    submissionId: ownerOf(operationId, body.submission_id),
    action: inputsAction(body),
  };
}

function inputsAction(body: InputsSubmission): SubmissionAction {
  switch (body.kind) {
    case "continuation":
      return { kind: "continue" };
    case "skill":
    case "command":
      return skillLike(body.kind, body.name, body.arguments);
    case "message":
      return {
        kind: "message",
        text: (body.text ?? "").toWellFormed(),
        images: (body.images ?? []).map((image) => ({
          mimeType: image.mime_type,
          data: image.data,
        })),
      };
  }
}

function skillLike<K extends "skill" | "command">(
  kind: K,
  name: string,
  args: string | undefined,
): { kind: K; name: string; arguments: string } {
  return { kind, name: name.toWellFormed(), arguments: (args ?? "").toWellFormed() };
}

/** What a session may be told about its turns; every field has a default that is resolved at use. */
export const SettingsSchema = v.strictObject({
  /** Put in front of the built-in instructions. */
  instructions: v.optional(v.pipe(v.string(), v.maxLength(32_768))),
  thinking: v.optional(v.picklist(["off", "low", "medium", "high"])),
  max_output_tokens: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))),
});
export type Settings = v.InferOutput<typeof SettingsSchema>;

const Title = v.pipe(v.string(), v.maxLength(TITLE_CHARS_MAX));
const ModelName = v.pipe(v.string(), v.minLength(1), v.maxLength(300));

/** The body of `POST /sessions`. */
export const CreationSchema = v.strictObject({
  operationId: UuidSchema,
  /** An absolute path to a directory; the user's home directory when left out. */
  workspace: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(WORKSPACE_CHARS_MAX))),
  title: v.optional(Title),
  /** `provider/model`; the configured default when left out. */
  model: v.optional(ModelName),
  parent_id: v.optional(v.nullable(UuidSchema)),
  settings: v.optional(SettingsSchema),
});
export type CreationBody = v.InferOutput<typeof CreationSchema>;

export interface Creation {
  readonly operationId: string;
  readonly workspace: string | null;
  readonly title: string | null;
  readonly model: string | null;
  readonly parentId: string | null;
  readonly settings: Settings;
}

/** Normalizes a creation; a default that was written out and one that was left out are the same. */
export function fromCreation(body: CreationBody): Creation {
  return {
    operationId: body.operationId,
    workspace: body.workspace?.toWellFormed() ?? null,
    title: body.title?.toWellFormed() ?? null,
    model: body.model ?? null,
    parentId: body.parent_id ?? null,
    settings: body.settings ?? {},
  };
}

/** The body of `PATCH /sessions/{id}`: the writable part of the session resource. */
export const SessionPatchSchema = v.strictObject({
  title: v.optional(v.nullable(Title)),
  model: v.optional(ModelName),
  settings: v.optional(SettingsSchema),
});
export type SessionPatch = v.InferOutput<typeof SessionPatchSchema>;

/** The body of `POST /sessions/{id}/commands`. */
export const CommandSchema = v.strictObject({
  name: Name,
  arguments: Arguments,
});
export type CommandBody = v.InferOutput<typeof CommandSchema>;
