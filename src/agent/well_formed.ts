/**
 * Owns that no lone surrogate gets in or out: JSON with one is refused by many servers, and what is stored once is
 * sent with every later request (contract.md, What others' users ran into).
 */

/** The value with every text in it made well-formed. */
export function wellFormed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map((item) => wellFormed(item));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key.toWellFormed(), wellFormed(item)]),
  );
}

/** Joins surrogate pairs that were split over two pieces of one text. */
export class SurrogateJoiner {
  #held = "";

  /** The piece with what was held back in front, without a first half that may still find its second. */
  push(piece: string): string {
    if (piece === "") return "";
    let text = this.#held + piece;
    this.#held = "";
    const last = text.charCodeAt(text.length - 1);
    if (last >= 0xd800 && last <= 0xdbff) {
      this.#held = text.slice(-1);
      text = text.slice(0, -1);
    }
    return text.toWellFormed();
  }

  /** What is left when no piece follows. */
  end(): string {
    const text = this.#held.toWellFormed();
    this.#held = "";
    return text;
  }
}
