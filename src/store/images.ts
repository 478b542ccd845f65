export interface StoredImage {
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}

export declare class Images {
  /** `fitted` is what the model gets; the original where no fitted version was needed. */
  get(sessionId: string, imageId: string, variant?: "original" | "fitted"): StoredImage | null;
}
