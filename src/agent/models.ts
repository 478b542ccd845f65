import type { Clock } from "../base/clock.ts";
import type { ConfigSource } from "../base/config.ts";
import type { Variables } from "../base/environment.ts";
import type { Log } from "../base/log.ts";
import type { ModelInfo } from "../wire/server.ts";
import type { Fetch } from "./fetch.ts";
import { ModelListings } from "./model_listing.ts";
import { knownProviders, type Provider } from "./model_providers.ts";
import type { Model } from "./provider.ts";
import { ProviderError } from "./provider.ts";
import { createAnthropicModel } from "./provider_anthropic.ts";
import { DEMO_MODEL_ID, DemoModel } from "./provider_demo.ts";
import { createOpenAiModel } from "./provider_openai.ts";

/**
 * Owns which models there are and which one a new session gets (contract.md, Turns, models, tools). Ids have the
 * form `provider/model`; the model's part may hold further slashes.
 *
 * A listing that misses a name is asked again before the name is refused: it may be newer than the listing.
 */
const LISTING_TRUSTED_MS = 2_000;

/** What the floors above need of the models; `Models` is it in the daemon. */
export interface ModelDirectory {
  /** Every model that can be chosen; holds no secret. May wait for endpoints, within a bound. */
  list(): Promise<readonly ModelInfo[]>;
  /** Whether a session may be created with it. An endpoint that cannot be asked is believed. */
  known(id: string): Promise<boolean>;
  /** The model of a session for which nobody chose one. */
  defaultId(): Promise<string>;
  /** @throws {ProviderError} model_unavailable, with a reason that says what is missing */
  resolve(id: string): Model;
  /** Calls the listener when a model that was unavailable may have become available; returns what ends that. */
  onChange(listener: () => void): () => void;
}

export interface ModelsDependencies {
  readonly config: ConfigSource;
  readonly env: Variables;
  readonly clock: Clock;
  readonly log: Log;
  readonly fetch?: Fetch;
  /** Further models by id; tests put scripted ones here. */
  readonly extra?: readonly Model[];
}

export class Models implements ModelDirectory {
  readonly #config: ConfigSource;
  readonly #env: Variables;
  readonly #clock: Clock;
  readonly #fetch: Fetch;
  readonly #listings: ModelListings;
  readonly #listeners = new Set<() => void>();
  readonly #resident: ReadonlyMap<string, Model>;
  readonly #resolved = new Map<string, Model>();
  readonly #endWatch: () => void;
  #providers: ReadonlyMap<string, Provider>;

  constructor(dependencies: ModelsDependencies) {
    this.#config = dependencies.config;
    this.#env = dependencies.env;
    this.#clock = dependencies.clock;
    this.#fetch = dependencies.fetch ?? fetch;
    this.#listings = new ModelListings({
      clock: dependencies.clock,
      fetch: this.#fetch,
      log: dependencies.log,
    });
    const resident = [new DemoModel({ clock: dependencies.clock }), ...(dependencies.extra ?? [])];
    this.#resident = new Map(resident.map((model) => [model.id, model]));
    this.#providers = knownProviders(this.#config.current(), this.#env);
    this.#endWatch = this.#config.onChange(() => this.#changed());
  }

  async list(): Promise<readonly ModelInfo[]> {
    const providers = [...this.#providers.values()];
    const [defaultId, ...names] = await Promise.all([
      this.defaultId(),
      ...providers.map((provider) => this.#namesOf(provider)),
    ]);
    const items: ModelInfo[] = [];
    for (const [index, provider] of providers.entries()) {
      for (const name of names[index] ?? []) items.push(this.#describe(provider, name, defaultId));
    }
    for (const id of this.#resident.keys()) {
      const [provider, name] = splitModelId(id);
      items.push({ id, provider, name, default: id === defaultId, available: true });
    }
    return items;
  }

  async known(id: string): Promise<boolean> {
    if (this.#resident.has(id)) return true;
    const [providerName, name] = splitModelId(id);
    const provider = this.#providers.get(providerName);
    if (provider === undefined || name === "") return false;
    if (provider.models !== null) return provider.models.includes(name);
    if (isKeyMissing(provider)) return true;
    const listed = await this.#listings.read(provider);
    if (listed === null || isListed(listed, name)) return true;
    if (this.#listings.age(provider) < LISTING_TRUSTED_MS) return false;
    const renewed = await this.#listings.renew(provider);
    return renewed === null || isListed(renewed, name);
  }

  async defaultId(): Promise<string> {
    const { model } = this.#config.current();
    if (model !== null) return model;
    const chosen = await this.#firstUsable();
    return chosen ?? DEMO_MODEL_ID;
  }

  resolve(id: string): Model {
    const ready = this.#resident.get(id) ?? this.#resolved.get(id);
    if (ready !== undefined) return ready;
    const [providerName, name] = splitModelId(id);
    const provider = this.#providers.get(providerName);
    if (provider === undefined || name === "") {
      throw unavailable(`No provider '${providerName}' is configured`);
    }
    if (provider.models !== null && !provider.models.includes(name)) {
      throw unavailable(`The provider '${providerName}' is configured without a model '${name}'`);
    }
    if (isKeyMissing(provider)) throw unavailable(missingKey(provider));
    const options = { id, name, provider, clock: this.#clock, fetch: this.#fetch };
    const model =
      provider.kind === "anthropic" ? createAnthropicModel(options) : createOpenAiModel(options);
    this.#resolved.set(id, model);
    return model;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  close(): void {
    this.#endWatch();
    this.#listings.clear();
    this.#listeners.clear();
  }

  #changed(): void {
    this.#providers = knownProviders(this.#config.current(), this.#env);
    this.#resolved.clear();
    this.#listings.clear();
    for (const listener of this.#listeners) listener();
  }

  /** A local server counts only where nothing else was set up. */
  async #firstUsable(): Promise<string | null> {
    const providers = [...this.#providers.values()];
    const isSetUp = providers.some((provider) => provider.origin !== "local");
    for (const provider of providers) {
      if (isKeyMissing(provider) || (isSetUp && provider.origin === "local")) continue;
      const name = await this.#preferredOf(provider);
      if (name !== null) return `${provider.name}/${name}`;
    }
    // Better a model that says which key is missing than another one than was asked for.
    const named = providers.find((provider) => provider.models?.[0] !== undefined);
    return named === undefined ? null : `${named.name}/${named.models?.[0]}`;
  }

  async #preferredOf(provider: Provider): Promise<string | null> {
    const names = provider.models ?? (await this.#listings.read(provider)) ?? [];
    return (
      provider.preferred.find((name) => names.includes(name)) ??
      provider.preferred[0] ??
      names.find((name) => !name.includes("embed")) ??
      null
    );
  }

  async #namesOf(provider: Provider): Promise<readonly string[]> {
    if (provider.models !== null) return provider.models;
    if (isKeyMissing(provider)) return provider.preferred;
    return (await this.#listings.read(provider)) ?? provider.preferred.slice(0, 1);
  }

  #describe(provider: Provider, name: string, defaultId: string): ModelInfo {
    const id = `${provider.name}/${name}`;
    const missing = isKeyMissing(provider) ? { reason: missingKey(provider) } : {};
    return {
      id,
      provider: provider.name,
      name,
      default: id === defaultId,
      available: !isKeyMissing(provider),
      ...missing,
    };
  }
}

/** The provider's name and the model's; the latter is empty where there is no slash. */
export function splitModelId(id: string): [provider: string, model: string] {
  const slash = id.indexOf("/");
  return slash === -1 ? [id, ""] : [id.slice(0, slash), id.slice(slash + 1)];
}

/** Ollama lists `name:latest` for what may be called `name`. */
function isListed(listed: readonly string[], name: string): boolean {
  return listed.includes(name) || listed.includes(`${name}:latest`);
}

function isKeyMissing(provider: Provider): boolean {
  return provider.key !== null && provider.key.value === null;
}

function missingKey(provider: Provider): string {
  return `The environment variable ${provider.key?.variable} is not set; set it and restart the daemon`;
}

function unavailable(reason: string): ProviderError {
  return new ProviderError("model_unavailable", reason, { retryable: false });
}
