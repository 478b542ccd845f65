import { V7Generator } from "uuidv7";

/**
 * Owns identity: UUIDv7 in lowercase canonical form (contract.md, Identity and time).
 */
export interface Ids {
  /**
   * A new UUIDv7 stamped with the source's clock.
   *
   * @throws when the random source fails; nothing may be submitted under an id that is not random
   */
  uuidv7(): string;
}

/** Fills an array with random bytes; throws when it cannot. */
export type RandomSource = (bytes: Uint8Array<ArrayBuffer>) => void;

export const systemRandom: RandomSource = (bytes) => {
  crypto.getRandomValues(bytes);
};

/** How far the clock may go back before a monotonic id is given up, in milliseconds (RFC 9562 §6.2). */
const ROLLBACK_ALLOWANCE_MS = 10_000;

/**
 * Ids from a clock and a random source. Ids made in one millisecond, or while the clock runs slightly back,
 * still increase.
 */
export function createIds(clock: { now(): number }, random: RandomSource = systemRandom): Ids {
  const word = new Uint8Array(4);
  const generator = new V7Generator({
    nextUint32() {
      random(word);
      return new DataView(word.buffer).getUint32(0);
    },
  });
  return {
    uuidv7: () =>
      generator
        .generateOrResetCore(Math.max(1, Math.floor(clock.now())), ROLLBACK_ALLOWANCE_MS)
        .toString(),
  };
}

export const UUIDV7_REGEXP =
  /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Whether the text is a UUIDv7 in lowercase canonical form. */
export function isUuidv7(text: string): boolean {
  return UUIDV7_REGEXP.test(text);
}

/** The millisecond timestamp a UUIDv7 carries (RFC 9562 §5.7). */
export function uuidv7Timestamp(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}
