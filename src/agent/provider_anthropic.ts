import type { Clock } from "../base/clock.ts";
import type { Fetch } from "./model_listing.ts";
import type { Provider } from "./model_providers.ts";
import { type Model, ProviderError } from "./provider.ts";

export function createAnthropicModel(options: {
  readonly id: string;
  readonly name: string;
  readonly provider: Provider;
  readonly clock: Clock;
  readonly fetch: Fetch;
}): Model {
  throw new ProviderError("model_unavailable", `In the making: '${options.id}'`, {
    retryable: false,
  });
}
