import type { Creation, Submission } from "../wire/submission.ts";

/** SHA-256 in hex. */
export declare function sha256Hex(content: string | Uint8Array): string;

/** `imageHashes`: the SHA-256 in hex of each image's decoded bytes, in order. */
export declare function submissionFingerprint(
  submission: Submission,
  imageHashes: readonly string[],
): string;

export declare function creationFingerprint(creation: Creation): string;
