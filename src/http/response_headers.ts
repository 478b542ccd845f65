/**
 * Owns how response headers are described to readers of the OpenAPI document.
 */
const text = { type: "string" as const };

/** Of an answer to an admission that may be given again. */
export const ADMISSION_HEADERS = {
  "Albedo-Replayed": {
    description: "`true` where this is the stored answer of an earlier request.",
    schema: { ...text, enum: ["true"] },
  },
};

/** Of an answer that made a session. */
export const CREATION_HEADERS = {
  ...ADMISSION_HEADERS,
  Location: { description: "The path of the session.", schema: text },
};

/** Of an answer that holds the session resource. */
export const RESOURCE_HEADERS = {
  ETag: { description: "Names the writable part; send it as `If-Match`.", schema: text },
};
