import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { parse, TomlError } from "smol-toml";
import * as v from "valibot";
import type { Clock, Timer } from "./clock.ts";
import type { Log } from "./log.ts";

/**
 * Owns `config.toml`, the settings a person edits (contract.md, Files, process, safety). A bad file at the start
 * stops the start; a bad file later is logged and the last good settings stay.
 *
 * Messages name the line and the key, never a value: someone may have put a key where its variable's name
 * belongs.
 */

export const CONFIG_FILE_NAME = "config.toml";

/** A file of settings is small; more than this is not one. */
const CONFIG_BYTES_MAX = 64 * 1024;
/** How often the file is looked at. A change takes two looks, so that a half-written file has time to be whole. */
const WATCH_INTERVAL_MS = 500;

export interface ProviderConfig {
  readonly kind: "openai-compatible" | "anthropic";
  /** Without a trailing slash. `null` means the kind's own service. */
  readonly baseUrl: string | null;
  /** The name of the environment variable that holds the key; `null` where none is needed. */
  readonly apiKeyEnv: string | null;
  /** `null` means that the endpoint lists its own. */
  readonly models: readonly string[] | null;
}

export interface Config {
  /** `provider/model` for new sessions, or `null` for the built-in choice. */
  readonly model: string | null;
  readonly providers: ReadonlyMap<string, ProviderConfig>;
}

/** What reads settings and wants to hear of changes; `ConfigFile` is one. */
export interface ConfigSource {
  current(): Config;
  /** Calls the listener after each change; returns what ends that. */
  onChange(listener: (config: Config) => void): () => void;
}

export const EMPTY_CONFIG: Config = { model: null, providers: new Map() };

/** Settings that never change; for tests and for tools that need no file. */
export function fixedConfig(config: Config): ConfigSource {
  return { current: () => config, onChange: () => () => {} };
}

/** The settings cannot be used. `line` counts from 1; `null` where no line is at fault. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly path: string;
  readonly line: number | null;

  constructor(path: string, line: number | null, message: string) {
    super(line === null ? `${path}: ${message}` : `${path}, line ${line}: ${message}`);
    this.path = path;
    this.line = line;
  }
}

const PROVIDER_NAME_REGEXP = /^[a-z0-9][a-z0-9_-]{0,49}$/;
const VARIABLE_REGEXP = /^[A-Za-z_][A-Za-z0-9_]*$/;
const MODEL_ID_REGEXP = /^[^/\s]+\/\S+$/;

const BaseUrl = v.pipe(
  v.string("must be a text"),
  v.check(isHttpUrl, "must be an http or https URL without user, query and fragment"),
  v.transform((url) => url.replace(/\/+$/, "")),
);

const ProviderSchema = v.strictObject({
  kind: v.picklist(
    ["openai-compatible", "anthropic"],
    'must be "openai-compatible" or "anthropic"',
  ),
  base_url: v.optional(BaseUrl),
  api_key_env: v.optional(
    v.pipe(
      v.string("must be a text"),
      v.regex(
        VARIABLE_REGEXP,
        "must be the name of an environment variable (the key itself does not belong here)",
      ),
    ),
  ),
  models: v.optional(
    v.array(
      v.pipe(
        v.string("must be a text"),
        v.regex(/^\S{1,250}$/, "must be a model's name without blanks"),
      ),
      "must be a list of names",
    ),
  ),
});

const ConfigSchema = v.strictObject({
  model: v.optional(
    v.pipe(
      v.string("must be a text"),
      v.regex(MODEL_ID_REGEXP, 'must have the form "provider/model"'),
    ),
  ),
  providers: v.optional(
    v.record(
      v.pipe(
        v.string(),
        v.regex(PROVIDER_NAME_REGEXP, "a provider's name is made of a-z, 0-9, '-' and '_'"),
      ),
      ProviderSchema,
      "must be a table",
    ),
  ),
});

function isHttpUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return false;
  return url.username === "" && url.password === "" && url.search === "" && url.hash === "";
}

/**
 * Reads settings from text. `path` only names the file in messages.
 *
 * @throws {ConfigError}
 */
export function parseConfig(text: string, path: string): Config {
  const toml = parseToml(text, path);
  const parsed = v.safeParse(ConfigSchema, toml, { abortEarly: true });
  if (!parsed.success) {
    const [issue] = parsed.issues;
    const keys = (issue.path ?? []).map((item) => String(item.key));
    throw new ConfigError(path, lineOf(text, keys), describe(issue, keys));
  }
  const providers = new Map<string, ProviderConfig>();
  for (const [name, given] of Object.entries(parsed.output.providers ?? {})) {
    refuseImpossible(name, given, text, path);
    providers.set(name, {
      kind: given.kind,
      baseUrl: given.base_url ?? null,
      apiKeyEnv: given.api_key_env ?? null,
      models: given.models ?? null,
    });
  }
  refusePassedOver(toml, providers, text, path);
  return { model: parsed.output.model ?? null, providers };
}

/** Names that are special to JavaScript are passed over by the schema without a word. */
function refusePassedOver(
  toml: unknown,
  providers: ReadonlyMap<string, unknown>,
  text: string,
  path: string,
): void {
  const given = (toml as { providers?: object }).providers ?? {};
  for (const name of Object.getOwnPropertyNames(given)) {
    if (providers.has(name)) continue;
    const keys = ["providers", name];
    throw new ConfigError(path, lineOf(text, keys), `A provider cannot be named '${name}'`);
  }
}

function refuseImpossible(
  name: string,
  given: v.InferOutput<typeof ProviderSchema>,
  text: string,
  path: string,
): void {
  const keys = ["providers", name];
  if (name === "demo") {
    throw new ConfigError(
      path,
      lineOf(text, keys),
      "The name 'demo' belongs to the built-in model",
    );
  }
  if (given.kind === "openai-compatible" && given.base_url === undefined) {
    throw new ConfigError(path, lineOf(text, keys), `'${keys.join(".")}' needs a 'base_url'`);
  }
}

function parseToml(text: string, path: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // Only the first line: what follows quotes the file.
    const [reason = ""] = error.message.split("\n");
    throw new ConfigError(
      path,
      error.line,
      `column ${error.column}: ${reason.replace("Invalid TOML document: ", "")}`,
    );
  }
}

function describe(issue: v.BaseIssue<unknown>, keys: readonly string[]): string {
  const key = `'${keys.join(".")}'`;
  if (issue.type === "strict_object") {
    if (issue.expected === "never") return `Unknown key ${key}`;
    if (issue.received === "undefined") return `Missing key ${key}`;
    return `${key} must be a table`;
  }
  return `${key}: ${issue.message}`;
}

/**
 * The line a key was written on. The parser gives no positions, so the file is read line by line until the key
 * is there; the line after the last whole document without it is where it began.
 */
function lineOf(text: string, keys: readonly string[]): number | null {
  const lines = text.split("\n");
  let known = [...keys];
  // A missing key has no line; the table it is missed in has one.
  while (known.length > 0 && !hasKey(text, known)) known = known.slice(0, -1);
  if (known.length === 0) return null;
  let wholeLines = 0;
  for (let count = 1; count <= lines.length; count += 1) {
    const prefix = lines.slice(0, count).join("\n");
    const found = hasKey(prefix, known);
    if (found === true) return wholeLines + 1;
    if (found === false) wholeLines = count;
  }
  return null;
}

/** Whether the text holds the key, or `null` where it is no whole document. */
function hasKey(text: string, keys: readonly string[]): boolean | null {
  let value: unknown;
  try {
    value = parse(text);
  } catch {
    return null;
  }
  for (const key of keys) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return false;
    value = (value as Record<string, unknown>)[key];
  }
  return true;
}

/**
 * Reads `<home>/config.toml`; no file means no settings.
 *
 * @throws {ConfigError}
 */
export function loadConfig(home: string): Config {
  const path = join(home, CONFIG_FILE_NAME);
  const bytes = readBytes(path);
  if (bytes === null) return EMPTY_CONFIG;
  if (bytes.length > CONFIG_BYTES_MAX) {
    throw new ConfigError(path, null, `Has ${bytes.length} bytes of at most ${CONFIG_BYTES_MAX}`);
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new ConfigError(path, null, "Is not UTF-8 text");
  }
  return parseConfig(text, path);
}

function readBytes(path: string): Uint8Array | null {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return null;
    throw new ConfigError(path, null, `Cannot be read: ${code ?? "unknown error"}`);
  }
}

/** The settings of a home, and what is known of their changes. */
export class ConfigFile implements ConfigSource {
  readonly #home: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #listeners = new Set<(config: Config) => void>();
  #config: Config;
  #timer: Timer | null = null;

  /** @throws {ConfigError} when the file cannot be used */
  constructor(dependencies: { readonly home: string; readonly clock: Clock; readonly log: Log }) {
    this.#home = dependencies.home;
    this.#clock = dependencies.clock;
    this.#log = dependencies.log;
    this.#config = loadConfig(this.#home);
  }

  current(): Config {
    return this.#config;
  }

  onChange(listener: (config: Config) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Reads the file again. On an error, which is logged and returned, the last good settings stay. */
  reload(): ConfigError | null {
    try {
      this.#config = loadConfig(this.#home);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      this.#log.error("The settings cannot be used; the last good ones stay", {
        reason: error.message,
      });
      return error;
    }
    this.#log.info("The settings were read again", {});
    for (const listener of this.#listeners) listener(this.#config);
    return null;
  }

  /**
   * Looks for changes until `close`. The file's marks are polled: a watch on its directory would wake the daemon
   * at every write to the database beside it, and a watch on the file is lost when an editor replaces it.
   */
  watch(): void {
    if (this.#timer !== null) return;
    let loaded = this.#mark();
    let last = loaded;
    const look = (): void => {
      const mark = this.#mark();
      if (mark !== loaded && mark === last) {
        loaded = mark;
        this.reload();
      }
      last = mark;
      this.#timer = this.#clock.timer(WATCH_INTERVAL_MS, look);
    };
    this.#timer = this.#clock.timer(WATCH_INTERVAL_MS, look);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#listeners.clear();
  }

  #mark(): string {
    const stat = statSync(join(this.#home, CONFIG_FILE_NAME), {
      bigint: true,
      throwIfNoEntry: false,
    });
    return stat === undefined ? "none" : `${stat.ino}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`;
  }
}
