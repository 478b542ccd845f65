import type { Ids } from "../base/ids.ts";
import type { ImageReference } from "../wire/history.ts";
import type { Database } from "./database.ts";
import type { PendingImage } from "./rows.ts";

/**
 * Owns uploads: the original bytes, stored once at admission, and the fitted version that the model gets where the
 * original is too large. An image belongs to its input, waits with it and goes with its session.
 */
export interface StoredImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

export interface NewImage {
  readonly mimeType: string;
  readonly width: number;
  readonly height: number;
  readonly bytes: Uint8Array;
}

const INSERT = `
  INSERT INTO images (image_id, session_id, operation_id, position, row_id, mime_type, width, height, byte_count)
  VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6, ?7, ?8)`;
const INSERT_CONTENT =
  "INSERT INTO image_contents (image_id, variant, mime_type, bytes) VALUES (?1, ?2, ?3, ?4)";
const OF_OPERATION = `
  SELECT image_id AS imageId, mime_type AS mimeType, width, height, byte_count AS byteCount
  FROM images WHERE operation_id = ?1 ORDER BY position`;
const OF_ROW = `
  SELECT image_id, mime_type, width, height, byte_count AS bytes
  FROM images WHERE session_id = ?1 AND row_id = ?2 ORDER BY position`;
const ATTACH = "UPDATE images SET row_id = ?2 WHERE operation_id = ?1";
const REMOVE = "DELETE FROM images WHERE operation_id = ?1";
const CONTENT = `
  SELECT image_contents.mime_type AS mimeType, image_contents.bytes AS bytes
  FROM images JOIN image_contents ON image_contents.image_id = images.image_id
  WHERE images.image_id = ?2 AND images.session_id = ?1 AND image_contents.variant = ?3`;

export class Images {
  readonly #database: Database;
  readonly #ids: Ids;

  constructor(database: Database, ids: Ids) {
    this.#database = database;
    this.#ids = ids;
  }

  /** `fitted` is what the model gets; the original where no fitted version was needed. */
  get(
    sessionId: string,
    imageId: string,
    variant: "original" | "fitted" = "original",
  ): StoredImage | null {
    const content = this.#database.query<StoredImage>(CONTENT);
    const found = content.get(sessionId, imageId, variant);
    if (found !== null || variant === "original") return found;
    return content.get(sessionId, imageId, "original");
  }

  /** Stores the uploads of an input that begins to wait. In a transaction. */
  add(sessionId: string, operationId: string, images: readonly NewImage[]): PendingImage[] {
    return images.map((image, position) => {
      const imageId = this.#ids.uuidv7();
      const { mimeType, width, height, bytes } = image;
      this.#database
        .query(INSERT)
        .run(imageId, sessionId, operationId, position, mimeType, width, height, bytes.byteLength);
      this.#database.query(INSERT_CONTENT).run(imageId, "original", mimeType, bytes);
      return { imageId, mimeType, width, height, byteCount: bytes.byteLength };
    });
  }

  /** The uploads of an input, in their order. */
  ofInput(operationId: string): PendingImage[] {
    return this.#database.query<PendingImage>(OF_OPERATION).all(operationId);
  }

  /** The uploads of a committed row, in their order. */
  ofRow(sessionId: string, rowId: number): ImageReference[] {
    return this.#database.query<ImageReference>(OF_ROW).all(sessionId, rowId);
  }

  /** Ties the uploads of a consumed input to its row and keeps their fitted versions. In a transaction. */
  attach(
    operationId: string,
    rowId: number,
    images: readonly PendingImage[],
    fittings: readonly (StoredImage | null)[],
  ): void {
    if (images.length === 0) return;
    this.#database.query(ATTACH).run(operationId, rowId);
    images.forEach(({ imageId }, position) => {
      const fitted = fittings[position];
      if (fitted === undefined || fitted === null) return;
      this.#database.query(INSERT_CONTENT).run(imageId, "fitted", fitted.mimeType, fitted.bytes);
    });
  }

  /** Forgets the uploads of a cancelled input. In a transaction. */
  remove(operationId: string): void {
    this.#database.query(REMOVE).run(operationId);
  }
}
