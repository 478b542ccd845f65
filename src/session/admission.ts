import { isAbsolute, resolve } from "node:path";
import { decodeImage, inspectImage } from "../agent/images.ts";
import type { ModelDirectory } from "../agent/models.ts";
import type { Skills } from "../agent/skills.ts";
import type { Clock } from "../base/clock.ts";
import type { Ids } from "../base/ids.ts";
import { TEXT_BYTES_MAX } from "../base/limits.ts";
import type { CreationRequest } from "../store/conversation.ts";
import { creationFingerprint, sha256Hex, submissionFingerprint } from "../store/fingerprint.ts";
import type { NewImage } from "../store/images.ts";
import type { AdmissionRequest, PreparedInput, Rejection, Reply } from "../store/operations.ts";
import type { SessionRecord } from "../store/rows.ts";
import type { Store } from "../store/store.ts";
import { Problem } from "../wire/problem.ts";
import type { Creation, Submission, SubmissionAction } from "../wire/submission.ts";
import { COMMANDS, isDirectory } from "./consumption.ts";

/**
 * Owns what is checked of a request before it is decided, and in which order (contract.md, Identity and time): size
 * and shape, the receipt by its id, the id's age, then what may change: session, workspace, model, skill. The queue
 * is checked where it is decided, in the store's transaction.
 *
 * I1 A retry is answered from its receipt before anything mutable is looked at, and costs no write.
 * I2 Refusals of shape are thrown and leave no trace; refusals of what was asked for are recorded and replay.
 */
export type Examined<Request> =
  | { readonly kind: "replay"; readonly reply: Reply }
  | { readonly kind: "new"; readonly request: Request };

export interface AdmissionDependencies {
  readonly store: Store;
  readonly models: ModelDirectory;
  readonly skills: Skills;
  readonly clock: Clock;
  readonly ids: Ids;
  /** Where a session works that names no workspace and has no parent. */
  readonly defaultWorkspace: string;
}

type Prepared =
  | { readonly prepared: PreparedInput; readonly rejection: null }
  | { readonly prepared: null; readonly rejection: Rejection };

export class Admission {
  readonly #deps: AdmissionDependencies;

  constructor(dependencies: AdmissionDependencies) {
    this.#deps = dependencies;
  }

  /**
   * @throws {Problem} invalid_request, payload_too_large, operation_conflict, operation_expired, operation_future
   */
  async submission(submission: Submission): Promise<Examined<AdmissionRequest>> {
    const { action, operationId, sessionId, submissionId, clientId } = submission;
    assertText(action);
    const images = decodeImages(action);
    const fingerprint = submissionFingerprint(submission, images.map(sha256Hex));
    const known = this.#known(operationId, fingerprint);
    if (known !== null) return { kind: "replay", reply: known };
    const { prepared, rejection } = await this.#prepare(sessionId, action, images);
    return {
      kind: "new",
      request: {
        submission: { operationId, sessionId, kind: action.kind, submissionId, clientId },
        fingerprint,
        prepared,
        rejection,
      },
    };
  }

  /** @throws {Problem} operation_conflict, operation_expired, operation_future */
  async creation(creation: Creation): Promise<Examined<CreationRequest>> {
    const fingerprint = creationFingerprint(creation);
    const known = this.#known(creation.operationId, fingerprint);
    if (known !== null) return { kind: "replay", reply: known };
    const decision = await this.#decideCreation(creation);
    return { kind: "new", request: { creation, fingerprint, decision } };
  }

  #known(operationId: string, fingerprint: string): Reply | null {
    const { store, clock } = this.#deps;
    const reply = store.operations.replay(operationId, fingerprint);
    if (reply === null) store.operations.assertAge(operationId, clock.now());
    return reply;
  }

  /** The store's transaction looks for the session in any case; here it does where it is needed. */
  async #prepare(
    sessionId: string,
    action: SubmissionAction,
    images: readonly Uint8Array[],
  ): Promise<Prepared> {
    const { sessions } = this.#deps.store;
    switch (action.kind) {
      case "message": {
        if (images.length > 0 && !sessions.has(sessionId)) return rejected("session_not_found");
        const inspected: NewImage[] = [];
        for (const [index, bytes] of images.entries()) {
          const info = await inspectImage(bytes, `/images/${index}/data`);
          inspected.push({ ...info, bytes });
        }
        const { text } = action;
        return accepted({ displayText: text, modelText: text, images: inspected });
      }
      case "continue":
        return accepted({ displayText: "", modelText: null, images: [] });
      case "skill": {
        const session = sessions.get(sessionId);
        if (session === null) return rejected("session_not_found");
        return this.#prepareSkill(session, action.name, action.arguments);
      }
      case "command":
        return prepareCommand(action.name, action.arguments);
    }
  }

  async #prepareSkill(session: SessionRecord, name: string, args: string): Promise<Prepared> {
    const skill = await this.#deps.skills.prepare(session.workspace, name, args);
    if (skill === null) return rejected("skill_unknown", `There is no skill named '${name}'`);
    return accepted({ ...skill, images: [], name, arguments: args });
  }

  async #decideCreation(creation: Creation): Promise<CreationRequest["decision"]> {
    const { store, models, ids, defaultWorkspace } = this.#deps;
    const { parentId } = creation;
    const parent = parentId === null ? null : store.sessions.get(parentId);
    if (parentId !== null && parent === null) {
      return rejection("parent_invalid", "There is no session with the id of the parent");
    }
    // A child works where its parent works, and with its model, unless it says otherwise.
    const workspace = creation.workspace ?? parent?.workspace ?? defaultWorkspace;
    if (!isAbsolute(workspace) || workspace.includes("\0") || !(await isDirectory(workspace))) {
      return rejection("workspace_invalid", "A workspace is an absolute path to a directory");
    }
    const model = creation.model ?? parent?.model ?? (await models.defaultId());
    if (!(await models.known(model))) {
      return rejection("model_unknown", `There is no model named '${model}'`);
    }
    return { sessionId: ids.uuidv7(), workspace: resolve(workspace), model };
  }
}

function prepareCommand(name: string, args: string): Prepared {
  if (!COMMANDS.some((known) => known === name)) {
    return rejected("command_unknown", `There is no command named '${name}'`);
  }
  const displayText = args === "" ? `/${name}` : `/${name} ${args}`;
  return accepted({ displayText, modelText: null, images: [], name, arguments: args });
}

/**
 * Refuses text that is too long, and a message that says nothing.
 *
 * @throws {Problem} payload_too_large, invalid_request
 */
function assertText(action: SubmissionAction): void {
  if (action.kind === "continue") return;
  const [text, pointer] =
    action.kind === "message" ? [action.text, "/text"] : [action.arguments, "/arguments"];
  if (Buffer.byteLength(text) > TEXT_BYTES_MAX) {
    const detail = `Must have at most ${TEXT_BYTES_MAX} bytes of UTF-8`;
    throw new Problem("payload_too_large", "The text is too large", {
      fields: [{ pointer, detail }],
    });
  }
  if (action.kind === "message" && text.trim() === "" && action.images.length === 0) {
    throw new Problem("invalid_request", "A message has text or at least one image", {
      fields: [{ pointer, detail: "Must not be blank where there is no image" }],
    });
  }
}

function decodeImages(action: SubmissionAction): Uint8Array[] {
  if (action.kind !== "message") return [];
  return action.images.map(({ data }, index) => decodeImage(data, `/images/${index}/data`));
}

function accepted(prepared: PreparedInput): Prepared {
  return { prepared, rejection: null };
}

function rejected(code: Rejection["code"], detail?: string): Prepared {
  return { prepared: null, ...rejection(code, detail) };
}

function rejection(code: Rejection["code"], detail?: string): { readonly rejection: Rejection } {
  return { rejection: detail === undefined ? { code } : { code, detail } };
}
