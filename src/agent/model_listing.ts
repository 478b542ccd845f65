import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { MIB } from "../base/limits.ts";
import type { Log } from "../base/log.ts";
import { type Fetch, requestOptions } from "./fetch.ts";
import type { Provider } from "./model_providers.ts";

/**
 * Owns what endpoints say of their own models (`GET /models`): asked for when needed, bounded in time and size,
 * kept for a while. An old answer is given at once and renewed behind it.
 */
const TIMEOUT_MS = 2_000;
/** A server on this machine answers at once or not at all. */
const LOCAL_TIMEOUT_MS = 400;
const FRESH_MS = 30_000;
const BODY_BYTES_MAX = 4 * MIB;
const MODELS_MAX = 2_000;

/** Both kinds of service answer in this form. */
const ListingSchema = v.object({ data: v.array(v.object({ id: v.string() })) });

interface Entry {
  /** `null` when the endpoint could not be asked. */
  models: readonly string[] | null;
  readAt: number;
  asking: Promise<void> | null;
}

export class ModelListings {
  readonly #clock: Clock;
  readonly #fetch: Fetch;
  readonly #log: Log;
  readonly #entries = new Map<string, Entry>();
  #abort = new AbortController();

  constructor(dependencies: { readonly clock: Clock; readonly fetch: Fetch; readonly log: Log }) {
    this.#clock = dependencies.clock;
    this.#fetch = dependencies.fetch;
    this.#log = dependencies.log;
  }

  /**
   * The names the endpoint lists, or `null` when it cannot be asked. Waits only where nothing is known yet.
   */
  async read(provider: Provider): Promise<readonly string[] | null> {
    const entry = this.#entry(provider);
    if (entry.readAt === Number.NEGATIVE_INFINITY) await this.#ask(provider, entry);
    else if (this.#clock.monotonic() - entry.readAt > FRESH_MS) void this.#ask(provider, entry);
    return entry.models;
  }

  /** Asks again, whatever is known. */
  async renew(provider: Provider): Promise<readonly string[] | null> {
    const entry = this.#entry(provider);
    await this.#ask(provider, entry);
    return entry.models;
  }

  /** How old the answer is, in milliseconds; endless where there is none. */
  age(provider: Provider): number {
    return this.#clock.monotonic() - this.#entry(provider).readAt;
  }

  /** Forgets everything; settings have changed. */
  clear(): void {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#entries.clear();
  }

  #entry(provider: Provider): Entry {
    let entry = this.#entries.get(provider.name);
    if (entry === undefined) {
      entry = { models: null, readAt: Number.NEGATIVE_INFINITY, asking: null };
      this.#entries.set(provider.name, entry);
    }
    return entry;
  }

  #ask(provider: Provider, entry: Entry): Promise<void> {
    entry.asking ??= this.#request(provider)
      .catch((error: unknown) => {
        this.#log.debug("An endpoint did not list its models", {
          provider: provider.name,
          reason: error,
        });
        return null;
      })
      .then((models) => {
        entry.models = models;
        entry.readAt = this.#clock.monotonic();
        entry.asking = null;
      });
    return entry.asking;
  }

  async #request(provider: Provider): Promise<readonly string[]> {
    const abort = new AbortController();
    const forgotten = this.#abort.signal;
    const timeoutMs = provider.origin === "local" ? LOCAL_TIMEOUT_MS : TIMEOUT_MS;
    const timer = this.#clock.timer(timeoutMs, () => abort.abort(new Error("Timed out")));
    try {
      const url = `${provider.baseUrl}/models`;
      const response = await this.#fetch(url, {
        ...requestOptions(url),
        headers: listingHeaders(provider),
        signal: AbortSignal.any([abort.signal, forgotten]),
      });
      if (!response.ok) {
        await response.body?.cancel();
        throw new Error(`Answered ${response.status}`);
      }
      const listing = v.parse(ListingSchema, JSON.parse(await boundedText(response)));
      return listing.data.slice(0, MODELS_MAX).map((model) => model.id);
    } finally {
      timer.cancel();
    }
  }
}

function listingHeaders(provider: Provider): Record<string, string> {
  const key = provider.key?.value ?? null;
  if (provider.kind === "anthropic") {
    return { "anthropic-version": "2023-06-01", ...(key === null ? {} : { "x-api-key": key }) };
  }
  return key === null ? {} : { authorization: `Bearer ${key}` };
}

async function boundedText(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Error("The answer is too large");
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}
