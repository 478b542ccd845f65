import { stat } from "node:fs/promises";
import { type FittedImage, fitImage } from "../agent/images.ts";
import type { ModelDirectory } from "../agent/models.ts";
import { ProviderError } from "../agent/provider.ts";
import { TITLE_CHARS_MAX } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import type { ConsumedInput, SessionChange } from "../store/conversation.ts";
import type { Images } from "../store/images.ts";
import type { NewRow, SessionRecord } from "../store/rows.ts";
import type { BlockingReason, Waiting } from "./session_state.ts";

/**
 * Owns what happens to waiting input before it is consumed: which of it is taken, whether it can be used now, images
 * made fit for the model, commands carried out (operations.md, Ownership and atomicity; contract.md, Pending inputs,
 * turns and cancellation). It writes nothing: a preparation that fails leaves everything as it was.
 */
export interface Batch {
  readonly inputs: readonly ConsumedInput[];
  /** What a command had to say. */
  readonly rows: readonly NewRow[];
  readonly session: SessionChange | null;
  /** What the turn has to do because of it. */
  readonly work: "answer" | "compact" | "none";
}

export type Preparation =
  | { readonly kind: "ready"; readonly batch: Batch }
  | { readonly kind: "blocked"; readonly reason: BlockingReason };

/** Commands that a session understands; the same by both doors. */
export const COMMANDS = ["compact", "model", "rename"] as const;
export type CommandName = (typeof COMMANDS)[number];

export interface ConsumptionDependencies {
  readonly models: ModelDirectory;
  readonly images: Images;
  readonly log: Log;
}

/** Stands in for an upload that cannot be fitted any more: one transparent pixel. */
const BLANK_PNG: FittedImage = {
  mimeType: "image/png",
  bytes: Uint8Array.fromBase64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==",
  ),
};

export class Consumption {
  readonly #models: ModelDirectory;
  readonly #images: Images;
  readonly #log: Log;

  constructor(dependencies: ConsumptionDependencies) {
    this.#models = dependencies.models;
    this.#images = dependencies.images;
    this.#log = dependencies.log;
  }

  /**
   * Makes the head of the queue ready.
   *
   * @param waiting the queue in acceptance order, not empty
   */
  async prepare(session: SessionRecord, waiting: readonly Waiting[]): Promise<Preparation> {
    const taken = headOf(waiting);
    const [first] = taken;
    if (first?.kind === "command") return this.#command(first);
    const reason = await this.#blockedBy(session);
    if (reason !== null) return { kind: "blocked", reason };
    const inputs: ConsumedInput[] = [];
    for (const input of taken) inputs.push(await this.#fit(session.id, input));
    return { kind: "ready", batch: { inputs, rows: [], session: null, work: "answer" } };
  }

  /** Commands need nothing that could be missing; what is wrong with them is said in a note. */
  async #command(input: Waiting): Promise<Preparation> {
    const inputs = [{ operationId: input.id, fittings: [] }];
    const outcome = await this.command(input.name ?? "", input.arguments ?? "");
    const rows: NewRow[] =
      outcome.kind === "refused" ? [{ role: "note", text: outcome.detail }] : [];
    const session = outcome.kind === "change" ? outcome.change : null;
    const work = outcome.kind === "compact" ? "compact" : "none";
    return { kind: "ready", batch: { inputs, rows, session, work } };
  }

  /** What a command comes down to. */
  async command(name: string, args: string): Promise<CommandOutcome> {
    switch (name) {
      case "compact":
        return { kind: "compact" };
      case "rename": {
        const title = args.trim();
        if (title.length > TITLE_CHARS_MAX) {
          const detail = `A title has at most ${TITLE_CHARS_MAX} characters`;
          return { kind: "refused", code: "invalid_request", detail };
        }
        return { kind: "change", change: { title: title === "" ? null : title } };
      }
      case "model": {
        const model = args.trim();
        if (model !== "" && (await this.#models.known(model))) {
          return { kind: "change", change: { model } };
        }
        return { kind: "refused", code: "model_unknown", detail: "The model is not known" };
      }
      default:
        return { kind: "refused", code: "command_unknown", detail: "The command is not known" };
    }
  }

  async #blockedBy(session: SessionRecord): Promise<BlockingReason | null> {
    if (!(await isDirectory(session.workspace))) return "workspace_missing";
    try {
      this.#models.resolve(session.model);
    } catch (error) {
      if (error instanceof ProviderError) return "model_unavailable";
      throw error;
    }
    return null;
  }

  async #fit(sessionId: string, input: Waiting): Promise<ConsumedInput> {
    const fittings: (FittedImage | null)[] = [];
    for (const { imageId } of input.images) {
      const original = this.#images.get(sessionId, imageId);
      if (original === null) continue;
      try {
        fittings.push(await fitImage(original.bytes));
      } catch (error) {
        // It was looked at when it was admitted. A request with it in would fail, and so would every later one.
        this.#log.warn("An upload could not be made fit for the model", { error });
        fittings.push(BLANK_PNG);
      }
    }
    return { operationId: input.id, fittings };
  }
}

export type CommandOutcome =
  | { readonly kind: "compact" }
  | { readonly kind: "change"; readonly change: SessionChange }
  | {
      readonly kind: "refused";
      readonly code: "invalid_request" | "model_unknown" | "command_unknown";
      readonly detail: string;
    };

/** All that waits up to the first command; a command at the head goes alone, so that it happens at its place. */
export function headOf(waiting: readonly Waiting[]): readonly Waiting[] {
  const command = waiting.findIndex(({ kind }) => kind === "command");
  if (command === -1) return waiting;
  return waiting.slice(0, Math.max(1, command));
}

/** Looks that began in this turn of the event loop, by path. */
const looks = new Map<string, Promise<boolean>>();

/**
 * Whether a path can be worked in: a directory that is there now. Who asks in the same turn of the event loop shares
 * the look, which goes through another thread: requests that arrive together often name the same workspace.
 */
export function isDirectory(path: string): Promise<boolean> {
  let look = looks.get(path);
  if (look === undefined) {
    look = lookAt(path);
    looks.set(path, look);
    setImmediate(() => looks.delete(path));
  }
  return look;
}

async function lookAt(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}
