import { Elysia } from "elysia";
import type { Sessions } from "../session/sessions.ts";
import { ImagePathSchema, ImageQuerySchema } from "../wire/query.ts";
import { refusals } from "./refusals.ts";
import { inPath, inQuery } from "./request_schema.ts";

/** Owns the route of uploads. */
export function images(floor: Sessions) {
  return new Elysia({ name: "images" }).get(
    "/sessions/:id/images/:image_id",
    ({ params, query }) => {
      const { mimeType, bytes } = floor.image(params.id, params.image_id, query.variant);
      return new Response(new Uint8Array(bytes), { headers: headersOf(mimeType) });
    },
    {
      params: inPath(ImagePathSchema),
      query: inQuery(ImageQuerySchema),
      response: refusals("session_not_found", "image_not_found"),
      detail: {
        operationId: "getImage",
        summary: "An upload, original or fitted for the model",
        tags: ["history"],
        responses: {
          200: {
            description: "The image.",
            content: { "image/*": { schema: { type: "string", format: "binary" } } },
          },
        },
      },
    },
  );
}

/** An upload is shown, never run: a browser that opens it gets no script and guesses no type. */
function headersOf(mimeType: string): Record<string, string> {
  return {
    "content-type": mimeType,
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
  };
}
