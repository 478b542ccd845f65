import { equalInConstantTime } from "../base/constant_time.ts";
import type { RandomSource } from "../base/ids.ts";

/**
 * Owns the `snapshot` of a spill reference: it names the cutoff and the time of its capture and is signed, so that
 * any number of captures costs the daemon no memory (contract.md, Active output).
 *
 * The form is `{instance}.{cutoff}.{issued}.{signature}`, numbers in base 36.
 */
export interface SpillCapture {
  readonly sessionId: string;
  readonly contentId: string;
  /** Bytes of the content that the reference covers. */
  readonly cutoff: number;
  /** Milliseconds since the epoch. */
  readonly issuedAt: number;
}

export type SpillTokenReading =
  | { readonly kind: "good"; readonly cutoff: number; readonly issuedAt: number }
  /** Not of the form. */
  | { readonly kind: "malformed" }
  /** Of another daemon instance, whose files are gone. */
  | { readonly kind: "foreign" }
  /** Of this instance, but not given out for this content. */
  | { readonly kind: "forged" };

const TOKEN_REGEXP = /^([0-9a-f]{12})\.([0-9a-z]{1,10})\.([0-9a-z]{1,10})\.([0-9A-Za-z_-]{22})$/;
const SIGNATURE_BYTES = 16;

export class SpillTokens {
  readonly #instance: string;
  readonly #key = new Uint8Array(32);

  constructor(instanceId: string, random: RandomSource) {
    random(this.#key);
    this.#instance = new Bun.CryptoHasher("sha256", "instance")
      .update(instanceId)
      .digest("hex")
      .slice(0, 12);
  }

  issue(capture: SpillCapture): string {
    const head = `${this.#instance}.${capture.cutoff.toString(36)}.${capture.issuedAt.toString(36)}`;
    return `${head}.${this.#sign(capture.sessionId, capture.contentId, head).toString("base64url")}`;
  }

  read(sessionId: string, contentId: string, token: string): SpillTokenReading {
    const [, instance, cutoff, issuedAt, signature] = TOKEN_REGEXP.exec(token) ?? [];
    if (cutoff === undefined || issuedAt === undefined || signature === undefined) {
      return { kind: "malformed" };
    }
    if (instance !== this.#instance) return { kind: "foreign" };
    const head = token.slice(0, -(signature.length + 1));
    const given = Buffer.from(signature, "base64url");
    const wanted = this.#sign(sessionId, contentId, head);
    if (!equalInConstantTime(given, wanted)) return { kind: "forged" };
    return {
      kind: "good",
      cutoff: Number.parseInt(cutoff, 36),
      issuedAt: Number.parseInt(issuedAt, 36),
    };
  }

  #sign(sessionId: string, contentId: string, head: string): Buffer {
    return new Bun.CryptoHasher("sha256", this.#key)
      .update(`${sessionId}/${contentId}/${head}`)
      .digest()
      .subarray(0, SIGNATURE_BYTES);
  }
}
