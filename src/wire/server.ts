import * as v from "valibot";

/** Owns what the daemon says of itself. */
export const HealthSchema = v.object({ status: v.literal("ok") });

/** The version of the HTTP protocol described by contract.md. */
export const PROTOCOL_VERSION = 1;

/** The capability `session_replay`: resets that hold `active_output` (sessions.md, Stream failures and recovery). */
export const SESSION_REPLAY_VERSION = 2;

export const ServerSchema = v.object({
  name: v.literal("albedo"),
  version: v.string(),
  protocol: v.number(),
  instance_id: v.string(),
  pid: v.number(),
  started_at: v.number(),
  capabilities: v.record(v.string(), v.number()),
  /** The numbers in force; each name ends in its unit. */
  limits: v.record(v.string(), v.number()),
});
export type ServerInfo = v.InferOutput<typeof ServerSchema>;

export const ShutdownSchema = v.strictObject({ instance_id: v.string() });

/** `daemon.json`, mode 0600: how a client on this machine finds the daemon. */
export const DaemonFileSchema = v.object({
  url: v.string(),
  token: v.string(),
  pid: v.number(),
  instance_id: v.string(),
});
export type DaemonFile = v.InferOutput<typeof DaemonFileSchema>;

export const ModelSchema = v.object({
  /** `provider/model`, as a session's `model` names it. */
  id: v.string(),
  provider: v.string(),
  name: v.string(),
  default: v.boolean(),
  /** Usable right now: its key is set, or it needs none. */
  available: v.boolean(),
  /** Why it is not. */
  reason: v.optional(v.string()),
});
export type ModelInfo = v.InferOutput<typeof ModelSchema>;
export const ModelListSchema = v.object({ items: v.array(ModelSchema) });

export const SkillSchema = v.object({
  name: v.string(),
  description: v.string(),
  /** `home` or `workspace`. */
  origin: v.picklist(["home", "workspace"]),
});
export type SkillInfo = v.InferOutput<typeof SkillSchema>;
export const SkillListSchema = v.object({ items: v.array(SkillSchema) });

export const CommandResultSchema = v.object({
  name: v.string(),
  status: v.picklist(["done", "started"]),
});
export type CommandResult = v.InferOutput<typeof CommandResultSchema>;
