import type { Clock, Timer } from "../base/clock.ts";
import { FRAME_MS, KIB } from "../base/limits.ts";

/**
 * Owns the rhythm of text and thinking deltas: at most one publication a frame (sessions.md, Stream failures and
 * recovery).
 *
 * I1 A delta after a quiet frame is published at once; later ones are held until the frame ends.
 * I2 Held neighbours of one block are merged; the order of deltas never changes, and nothing is merged across
 *    blocks, so no delta crosses a message.
 * I3 `flush` publishes what is held; whoever publishes another event calls it first.
 * I4 What is published is well-formed text: a surrogate pair that was split over two deltas is joined.
 * I5 What is held is bounded: past `HELD_CHARS_MAX` it is published before the frame ends.
 */
export interface Delta {
  readonly kind: "text" | "thinking";
  readonly messageId: string;
  readonly liveId: string;
  readonly text: string;
}

/**
 * The longest text of one event, in UTF-16 units. JSON takes at most 6 bytes for one (a control character), so
 * that the event stays below `EVENT_TEXT_BYTES_MAX`.
 */
export const DELTA_CHARS_MAX = 32 * KIB;
const HELD_CHARS_MAX = 256 * KIB;
const REPLACEMENT = "\uFFFD";

export class DeltaFrame {
  readonly #clock: Clock;
  readonly #publish: (delta: Delta) => void;
  #held: Delta[] = [];
  #heldChars = 0;
  /** A delta that is one high surrogate: the first half of a pair whose second half has not come yet. */
  #half: Delta | null = null;
  #timer: Timer | null = null;

  /** @param publish takes one merged delta, in order; its text is never empty */
  constructor(clock: Clock, publish: (delta: Delta) => void) {
    this.#clock = clock;
    this.#publish = publish;
  }

  push(delta: Delta): void {
    const whole = this.#join(delta);
    if (whole === null) return;
    this.#hold(whole);
    if (this.#timer === null) {
      this.flush();
      this.#startFrame();
    } else if (this.#heldChars > HELD_CHARS_MAX) {
      this.flush();
    }
  }

  /** Publishes what is held. The frame goes on: the next delta waits for its end. */
  flush(): void {
    const held = this.#held;
    if (held.length === 0) return;
    this.#held = [];
    this.#heldChars = 0;
    for (const delta of held) this.#publishCut(delta);
  }

  /** No delta of the block comes any more. */
  endBlock(liveId: string): void {
    if (this.#half?.liveId !== liveId) return;
    this.#giveUpHalf();
    if (this.#timer === null) {
      this.flush();
      this.#startFrame();
    }
  }

  /** Publishes what is held, and half a pair as what it is without its other half: U+FFFD. */
  finish(): void {
    this.#giveUpHalf();
    this.flush();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#held = [];
    this.#heldChars = 0;
    this.#half = null;
  }

  #startFrame(): void {
    this.#timer = this.#clock.timer(FRAME_MS, () => {
      this.#timer = null;
      if (this.#held.length === 0) return;
      this.flush();
      this.#startFrame();
    });
  }

  /** The delta with the half that was kept in front, and without the half it ends in. */
  #join(delta: Delta): Delta | null {
    let { text } = delta;
    if (this.#half !== null && text !== "") {
      if (isSameBlock(this.#half, delta)) {
        text = this.#half.text + text;
        this.#half = null;
      } else {
        this.#giveUpHalf();
      }
    }
    if (endsInHighSurrogate(text)) {
      this.#half = { ...delta, text: text.slice(-1) };
      text = text.slice(0, -1);
    }
    return text === "" ? null : { ...delta, text: text.toWellFormed() };
  }

  #giveUpHalf(): void {
    if (this.#half === null) return;
    const half = this.#half;
    this.#half = null;
    this.#hold({ ...half, text: REPLACEMENT });
  }

  #hold(delta: Delta): void {
    const last = this.#held.at(-1);
    this.#heldChars += delta.text.length;
    if (last !== undefined && isSameBlock(last, delta)) {
      this.#held[this.#held.length - 1] = { ...last, text: last.text + delta.text };
    } else {
      this.#held.push(delta);
    }
  }

  #publishCut(delta: Delta): void {
    const { text } = delta;
    if (text.length <= DELTA_CHARS_MAX) {
      this.#publish(delta);
      return;
    }
    for (let start = 0; start < text.length;) {
      let end = Math.min(text.length, start + DELTA_CHARS_MAX);
      if (end < text.length && endsInHighSurrogate(text.slice(start, end))) end -= 1;
      this.#publish({ ...delta, text: text.slice(start, end) });
      start = end;
    }
  }
}

function isSameBlock(a: Delta, b: Delta): boolean {
  return a.liveId === b.liveId && a.messageId === b.messageId && a.kind === b.kind;
}

function endsInHighSurrogate(text: string): boolean {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff;
}
