import type { Config, ProviderConfig } from "../base/config.ts";
import type { Variables } from "../base/environment.ts";

/**
 * Owns which providers there are: those of `config.toml`, those whose usual key is set, and a local Ollama
 * (contract.md, Turns, models, tools).
 */
export interface Provider {
  readonly name: string;
  readonly kind: "openai-compatible" | "anthropic";
  /** Without a trailing slash. */
  readonly baseUrl: string;
  /** Where its key comes from; `null` where none is needed. */
  readonly key: ProviderKey | null;
  /** The models it has, or `null` where the endpoint lists them. */
  readonly models: readonly string[] | null;
  /** The models to choose from where nobody chose, best first. */
  readonly preferred: readonly string[];
  readonly origin: "config" | "environment" | "local";
}

export interface ProviderKey {
  readonly variable: string;
  /** `null` while the variable is not set. Never leaves this floor. */
  readonly value: string | null;
}

export const ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1";

const FROM_ENVIRONMENT: readonly {
  readonly name: string;
  readonly variable: string;
  readonly kind: Provider["kind"];
  readonly baseUrl: string;
  readonly preferred: readonly string[];
}[] = [
  {
    name: "anthropic",
    variable: "ANTHROPIC_API_KEY",
    kind: "anthropic",
    baseUrl: ANTHROPIC_BASE_URL,
    preferred: ["claude-sonnet-5-5", "claude-sonnet-5", "claude-sonnet-4-6", "claude-sonnet-4-5"],
  },
  {
    name: "openai",
    variable: "OPENAI_API_KEY",
    kind: "openai-compatible",
    baseUrl: "https://api.openai.com/v1",
    preferred: ["gpt-5.1", "gpt-5", "gpt-4.1", "gpt-4o"],
  },
  {
    name: "openrouter",
    variable: "OPENROUTER_API_KEY",
    kind: "openai-compatible",
    baseUrl: "https://openrouter.ai/api/v1",
    preferred: ["openrouter/auto"],
  },
];

export const OLLAMA_PROVIDER_NAME = "ollama";
const OLLAMA_PORT = "11434";

/** The providers in the order in which a default is looked for; a configured name hides a built-in one. */
export function knownProviders(config: Config, env: Variables): ReadonlyMap<string, Provider> {
  const providers = new Map<string, Provider>();
  for (const [name, given] of config.providers) {
    providers.set(name, {
      name,
      kind: given.kind,
      baseUrl: baseUrlOf(given),
      key: keyOf(given, env),
      models: given.models,
      preferred: given.models ?? [],
      origin: "config",
    });
  }
  for (const { variable, ...given } of FROM_ENVIRONMENT) {
    const key = readKey(variable, env);
    if (key.value === null || providers.has(given.name)) continue;
    providers.set(given.name, { ...given, key, models: null, origin: "environment" });
  }
  if (!providers.has(OLLAMA_PROVIDER_NAME)) {
    providers.set(OLLAMA_PROVIDER_NAME, {
      name: OLLAMA_PROVIDER_NAME,
      kind: "openai-compatible",
      baseUrl: `${ollamaOrigin(env.OLLAMA_HOST)}/v1`,
      key: null,
      models: null,
      preferred: [],
      origin: "local",
    });
  }
  return providers;
}

/** The settings refuse an OpenAI-compatible provider without a URL. */
function baseUrlOf({ kind, baseUrl }: ProviderConfig): string {
  if (baseUrl === null) return ANTHROPIC_BASE_URL;
  // Anthropic's own tools take the address without a path, others with the version in it.
  return kind === "anthropic" && URL.parse(baseUrl)?.pathname === "/" ? `${baseUrl}/v1` : baseUrl;
}

/** Anthropic's own service always needs a key; where nobody says which, it is the usual one. */
function keyOf({ kind, baseUrl, apiKeyEnv }: ProviderConfig, env: Variables): ProviderKey | null {
  if (apiKeyEnv !== null) return readKey(apiKeyEnv, env);
  return kind === "anthropic" && baseUrl === null ? readKey("ANTHROPIC_API_KEY", env) : null;
}

function readKey(variable: string, env: Variables): ProviderKey {
  const value = env[variable]?.trim();
  return { variable, value: value === undefined || value === "" ? null : value };
}

/**
 * Where Ollama listens: `OLLAMA_HOST` takes a host, a host with a port, or a URL. An address that means "all of
 * them" to a server means this machine to a client.
 */
export function ollamaOrigin(host: string | undefined): string {
  const text = host?.trim().replace(/^["']|["']$/g, "") ?? "";
  const local = `http://127.0.0.1:${OLLAMA_PORT}`;
  if (text === "") return local;
  const hasScheme = /^https?:\/\//i.test(text);
  const url = URL.parse(hasScheme ? text : `http://${text}`);
  if (url === null || url.hostname === "") return local;
  if (url.hostname === "0.0.0.0" || url.hostname === "[::]") url.hostname = "127.0.0.1";
  // Without a scheme Ollama's own port is meant, with one the scheme's.
  if (url.port === "" && !hasScheme) url.port = OLLAMA_PORT;
  return `${url.protocol}//${url.host}${url.pathname}`.replace(/\/+$/, "");
}
