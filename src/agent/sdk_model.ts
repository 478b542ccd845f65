import type { Clock } from "../base/clock.ts";
import type { Fetch } from "./fetch.ts";
import type { Provider } from "./model_providers.ts";
import type { Model, ModelPart, ModelRequest } from "./provider.ts";
import type { SdkModel, SdkStream } from "./sdk_prompt.ts";
import { SdkFetch, streamSdkAnswer } from "./sdk_stream.ts";

/** Owns what the adapters over an SDK have in common: when its model is made, and how an answer is streamed. */

/** What an adapter needs to know of a model. */
export interface AdapterOptions {
  /** `provider/model`. */
  readonly id: string;
  /** The model's name at its provider. */
  readonly name: string;
  readonly provider: Provider;
  readonly clock: Clock;
  readonly fetch: Fetch;
}

/** What is one provider's own. */
export interface SdkAdapter {
  /** Loads the SDK and makes its model. Called at the first request, so that a start does not pay for it. */
  load(fetch: typeof globalThis.fetch): Promise<SdkModel>;
  /** Asks the model once. */
  open(model: SdkModel, request: ModelRequest, signal: AbortSignal): Promise<SdkStream>;
}

export function createSdkModel(options: AdapterOptions, adapter: SdkAdapter): Model {
  const sdkFetch = new SdkFetch();
  // Kept, since making one builds its schemas anew: a millisecond there and another at the first chunks.
  let model: Promise<SdkModel> | null = null;
  const open = async (request: ModelRequest, signal: AbortSignal): Promise<SdkStream> => {
    model ??= adapter.load(sdkFetch.send as typeof fetch);
    return adapter.open(await model, request, signal);
  };
  return {
    id: options.id,
    stream: (request): AsyncIterable<ModelPart> =>
      streamSdkAnswer({ ...options, sdkFetch, open }, request),
  };
}
