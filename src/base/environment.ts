import { isAbsolute, join } from "node:path";
import { IDLE_SECONDS_DEFAULT, UNLOAD_SECONDS_DEFAULT } from "./limits.ts";
import { LOG_LEVELS, type LogLevel } from "./log.ts";

/**
 * Owns the environment variables the daemon and the command line read (contract.md, Files, process, safety). A
 * variable that is set to nothing counts as not set.
 */
export type Variables = Readonly<Record<string, string | undefined>>;

export interface Environment {
  /** The data directory, an absolute path; it may not exist yet. */
  readonly home: string;
  /** The port to listen on; `null` means a free one. */
  readonly port: number | null;
  readonly idleSeconds: number;
  readonly unloadSeconds: number;
  readonly logLevel: LogLevel;
  /** Origins of web pages that may use the daemon; none unless a person names them. */
  readonly origins: readonly string[];
}

/** A variable holds something that cannot be used; stops the start. */
export class EnvironmentError extends Error {
  override readonly name = "EnvironmentError";
  readonly variable: string;

  constructor(variable: string, message: string) {
    super(`${variable} ${message}`);
    this.variable = variable;
  }
}

const PORT_MAX = 65_535;
/** Longer than any daemon runs; a larger number is a slip. */
const SECONDS_MAX = 365 * 24 * 3600;

/**
 * @param userHome the person's home directory, where nothing else says where to put data
 * @throws {EnvironmentError} naming the variable
 */
export function readEnvironment(variables: Variables, userHome: string): Environment {
  return {
    home: homeDirectory(variables, userHome),
    port: wholeNumber(variables, "ALBEDO_PORT", PORT_MAX),
    idleSeconds: wholeNumber(variables, "ALBEDO_IDLE_SECONDS", SECONDS_MAX) ?? IDLE_SECONDS_DEFAULT,
    unloadSeconds:
      wholeNumber(variables, "ALBEDO_UNLOAD_SECONDS", SECONDS_MAX) ?? UNLOAD_SECONDS_DEFAULT,
    logLevel: logLevel(variables),
    origins: originList(variables),
  };
}

function homeDirectory(variables: Variables, userHome: string): string {
  const own = variables.ALBEDO_HOME;
  if (isSet(own)) {
    if (!isAbsolute(own)) {
      throw new EnvironmentError(
        "ALBEDO_HOME",
        `must be an absolute path: current value is '${own}'`,
      );
    }
    return own;
  }
  // A relative path is to be ignored (XDG Base Directory Specification, Basics).
  const data = variables.XDG_DATA_HOME;
  if (isSet(data) && isAbsolute(data)) return join(data, "albedo");
  if (!isAbsolute(userHome)) {
    throw new EnvironmentError("HOME", `must be an absolute path: current value is '${userHome}'`);
  }
  return join(userHome, ".local", "share", "albedo");
}

function wholeNumber(variables: Variables, name: string, max: number): number | null {
  const text = variables[name];
  if (!isSet(text)) return null;
  const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value <= max)) {
    throw new EnvironmentError(
      name,
      `must be a whole number from 0 to ${max}: current value is '${text}'`,
    );
  }
  return value;
}

function logLevel(variables: Variables): LogLevel {
  const text = variables.ALBEDO_LOG;
  if (!isSet(text)) return "info";
  const level = LOG_LEVELS.find((candidate) => candidate === text);
  if (level === undefined) {
    throw new EnvironmentError(
      "ALBEDO_LOG",
      `must be one of ${LOG_LEVELS.join(", ")}: current value is '${text}'`,
    );
  }
  return level;
}

/** As a browser writes an origin: no path, no slash at the end (RFC 6454 §6.2). */
const ORIGIN_REGEXP = /^[a-z][a-z0-9+.-]*:\/\/[^\s/,*?#@]+$/;

function originList(variables: Variables): string[] {
  const text = variables.ALBEDO_ORIGINS;
  if (!isSet(text)) return [];
  const origins = text.split(",").map((origin) => origin.trim());
  for (const origin of origins) {
    if (ORIGIN_REGEXP.test(origin)) continue;
    throw new EnvironmentError(
      "ALBEDO_ORIGINS",
      `must list origins such as 'https://board.example', separated by commas: '${origin}' is none`,
    );
  }
  return origins;
}

function isSet(text: string | undefined): text is string {
  return text !== undefined && text !== "";
}
