import canonicalize from "canonicalize";
import { unreachable } from "../base/assert.ts";
import type { OperationKind } from "../wire/operation.ts";
import type { Creation, Submission } from "../wire/submission.ts";
import { fromJson, toJson } from "./json.ts";

/**
 * Owns what makes two requests the same action: SHA-256 over the canonical JSON (RFC 8785) of version, kind, target
 * and normalized fields (contract.md, Admission and receipts). Key order and omitted defaults do not tell actions
 * apart; neither do authentication and the echo-only client id, which are not in here.
 */
const VERSION = 1;

/** SHA-256 in hex. */
export function sha256Hex(content: string | Uint8Array): string {
  return new Bun.CryptoHasher("sha256").update(content).digest("hex");
}

/** @param imageHashes the SHA-256 in hex of each image's decoded bytes, in order */
export function submissionFingerprint(
  submission: Submission,
  imageHashes: readonly string[],
): string {
  const { action } = submission;
  // An explicit owner is part of the action; the default owner is the operation itself.
  const owner = submission.submissionId === null ? {} : { submissionId: submission.submissionId };
  switch (action.kind) {
    case "message":
      return fingerprint(action.kind, submission.sessionId, {
        text: action.text,
        images: imageHashes,
        ...owner,
      });
    case "continue":
      return fingerprint(action.kind, submission.sessionId, owner);
    case "skill":
    case "command":
      return fingerprint(action.kind, submission.sessionId, {
        name: action.name,
        arguments: action.arguments,
        ...owner,
      });
    default:
      return unreachable(action);
  }
}

export function creationFingerprint(creation: Creation): string {
  const given = {
    workspace: creation.workspace,
    title: creation.title,
    model: creation.model,
    parent_id: creation.parentId,
    settings: Object.keys(creation.settings).length === 0 ? null : creation.settings,
  };
  return fingerprint(
    "session_create",
    null,
    Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
  );
}

function fingerprint(
  kind: OperationKind,
  target: string | null,
  fields: Record<string, unknown>,
): string {
  // RFC 8785 knows no lone surrogate, so neither may a string in here.
  const wellFormed = fromJson(toJson(fields));
  const canonical = canonicalize({ version: VERSION, kind, target, fields: wellFormed });
  if (canonical === undefined) throw new TypeError("Cannot fingerprint what is not JSON");
  return sha256Hex(canonical);
}
