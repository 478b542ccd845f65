import * as v from "valibot";
import { waitingClock } from "../base/clock.ts";
import type { Clock } from "../base/clock.ts";
import { createIds } from "../base/ids.ts";
import type { Ids, RandomSource } from "../base/ids.ts";
import { KEEPALIVE_MS } from "../base/limits.ts";
import { ActiveOutputPageSchema } from "../wire/event.ts";
import type { ActiveOutputPage } from "../wire/event.ts";
import { HistoryPageSchema, HistoryRowSchema } from "../wire/history.ts";
import type { HistoryPage, HistoryRow } from "../wire/history.ts";
import { CancellationSchema, InputSchema, InterruptionSchema } from "../wire/input.ts";
import type { Cancellation, Input, Interruption } from "../wire/input.ts";
import { ReceiptSchema } from "../wire/operation.ts";
import type { Receipt } from "../wire/operation.ts";
import type { ImageVariant } from "../wire/query.ts";
import {
  CommandResultSchema,
  HealthSchema,
  ModelListSchema,
  ServerSchema,
  SkillListSchema,
} from "../wire/server.ts";
import type { CommandResult, ModelInfo, ServerInfo, SkillInfo } from "../wire/server.ts";
import { SessionPageSchema, SessionSchema } from "../wire/session.ts";
import type { SessionPage, SessionResource } from "../wire/session.ts";
import type { CommandBody, SessionPatch } from "../wire/submission.ts";
import type { CallOptions } from "./deadline.ts";
import {
  encodeCommand,
  encodeContinuation,
  encodeCreation,
  encodeMessage,
  encodeSkill,
} from "./encoding.ts";
import type {
  CommandFields,
  CreationFields,
  EncodedOperation,
  InvocationFields,
  MessageFields,
  SubmissionFields,
} from "./encoding.ts";
import { OperationHandle, restoreHandle } from "./operation_handle.ts";
import type { Accepted } from "./operation_handle.ts";
import { activeOutputPath, get, inputPath, operationPath, query, sessionPath } from "./paths.ts";
import { subscribe } from "./subscription.ts";
import type { SubscribeOptions, Subscription } from "./subscription.ts";
import { decode, encodeJson, Transport } from "./transport.ts";
import type { Answer, Endpoint, EndpointSource, Fetch, WireRequest } from "./transport.ts";

/**
 * The public entry of `albedo/client`: a typed call for each route of contract.md (One admission, two doors),
 * operations that can be recovered (`prepare…`, operation_handle.ts), and the stream (`subscribe`). It runs on
 * Bun, on Node 20 and in browsers, and imports nothing of the daemon.
 *
 * Every answer is checked against the schemas of `wire/`; fields they do not know are dropped. Each call takes
 * `{signal, timeoutMs}` and throws `ApiError`, `TransportError`, `ProtocolError` or the signal's reason (errors.ts).
 * Only operations are ever sent again automatically.
 */

export interface ClientOptions {
  /** Where the daemon is; a function is asked before every attempt. Either this, or `url` and `token`. */
  readonly endpoint?: EndpointSource;
  readonly url?: string;
  readonly token?: string;
  /** @default the machine's clock */
  readonly clock?: Clock;
  /** @default UUIDv7 from `clock` and `random` */
  readonly ids?: Ids;
  /** @default the system's random bytes */
  readonly random?: RandomSource;
  /** @default the global fetch */
  readonly fetch?: Fetch;
}

/** A session together with the validator that a patch may name as `ifMatch`. */
export interface TaggedSession {
  readonly session: SessionResource;
  /** The `ETag`; `null` where the runtime does not show it. */
  readonly etag: string | null;
}

export interface HistoryQuery {
  /** Rows older than this row id. */
  readonly before?: number;
  /** Rows newer than this row id. */
  readonly after?: number;
  /** @default HISTORY_ROWS_DEFAULT */
  readonly limit?: number;
  /** @default "backward": the newest page, in ascending order */
  readonly direction?: "forward" | "backward";
}

export interface ImageContent {
  readonly mimeType: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A client of one daemon. @throws {TypeError} when it is not told where the daemon is */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}

export class Client {
  readonly transport: Transport;
  readonly #ids: Ids;
  #keepaliveMs: number | null = null;

  constructor(options: ClientOptions) {
    const clock = options.clock ?? waitingClock;
    this.transport = new Transport({
      endpoint: options.endpoint ?? fixedEndpoint(options),
      clock,
      fetch: options.fetch ?? ((url, init) => globalThis.fetch(url, init)),
    });
    this.#ids = options.ids ?? createIds(clock, options.random);
  }

  // Operations.

  /** Prepares the creation of a session; nothing is sent yet. @throws when no random id could be made */
  prepareSession(fields: CreationFields = {}): OperationHandle {
    return this.#handle(encodeCreation(this.#ids.uuidv7(), fields));
  }

  /** Prepares a message: text, images, or both. @throws when no random id could be made */
  prepareMessage(sessionId: string, fields: MessageFields): OperationHandle {
    return this.#handle(encodeMessage(sessionId, this.#ids.uuidv7(), fields));
  }

  /** Prepares "go on" without a new message. @throws when no random id could be made */
  prepareContinuation(sessionId: string, fields: SubmissionFields = {}): OperationHandle {
    return this.#handle(encodeContinuation(sessionId, this.#ids.uuidv7(), fields));
  }

  /** Prepares the activation of a skill. @throws when no random id could be made */
  prepareSkill(sessionId: string, fields: InvocationFields): OperationHandle {
    return this.#handle(encodeSkill(sessionId, this.#ids.uuidv7(), fields));
  }

  /**
   * Prepares a command that waits its turn among the inputs; `runCommand` is the immediate form.
   *
   * @throws when no random id could be made
   */
  prepareCommand(sessionId: string, fields: CommandFields): OperationHandle {
    return this.#handle(encodeCommand(sessionId, this.#ids.uuidv7(), fields));
  }

  /** A handle from what `handle.toJSON()` gave. @throws {TypeError} when it is no such record */
  restoreHandle(record: unknown): OperationHandle {
    return restoreHandle(this.transport, record);
  }

  /** `prepareSession` and `send` in one; a failure keeps the handle only as `Uncertain.handle`. */
  async createSession(fields: CreationFields = {}, options?: CallOptions): Promise<Accepted> {
    return await this.prepareSession(fields).send(options);
  }

  /** `prepareMessage` and `send` in one; a failure keeps the handle only as `Uncertain.handle`. */
  async sendMessage(
    sessionId: string,
    fields: MessageFields,
    options?: CallOptions,
  ): Promise<Accepted> {
    return await this.prepareMessage(sessionId, fields).send(options);
  }

  /** `GET /operations/{operationId}`. @throws {ApiError} operation_unknown, operation_expired */
  receipt(operationId: string, options?: CallOptions): Promise<Receipt> {
    return this.#read(ReceiptSchema, get(operationPath(operationId)), options);
  }

  // Sessions.

  /** `GET /sessions`: a page of summaries, newest activity first. */
  listSessions(
    page: { readonly cursor?: string; readonly limit?: number } = {},
    options?: CallOptions,
  ): Promise<SessionPage> {
    return this.#read(SessionPageSchema, get(`/sessions${query({ ...page })}`), options);
  }

  /** `GET /sessions/{id}` with the `tail` newest history rows (default 50). Loads the session. */
  async getSession(
    sessionId: string,
    { tail }: { readonly tail?: number } = {},
    options?: CallOptions,
  ): Promise<TaggedSession> {
    const path = `${sessionPath(sessionId)}${query({ tail })}`;
    return tagged(await this.transport.call(get(path), options));
  }

  /** `PATCH /sessions/{id}`. @throws {ApiError} precondition_failed when `ifMatch` names an older state */
  async patchSession(
    sessionId: string,
    patch: SessionPatch,
    { ifMatch }: { readonly ifMatch?: string } = {},
    options?: CallOptions,
  ): Promise<TaggedSession> {
    const request: WireRequest = {
      method: "PATCH",
      path: sessionPath(sessionId),
      body: encodeJson(patch),
      headers: ifMatch === undefined ? {} : { "if-match": ifMatch },
    };
    return tagged(await this.transport.call(request, options));
  }

  /** `DELETE /sessions/{id}`. @throws {ApiError} session_has_children unless `recursive` */
  async deleteSession(
    sessionId: string,
    { recursive }: { readonly recursive?: boolean } = {},
    options?: CallOptions,
  ): Promise<void> {
    const path = `${sessionPath(sessionId)}${query({ recursive })}`;
    await this.transport.call({ method: "DELETE", path }, options);
  }

  /** `POST /sessions/{id}/interrupt`. That the turn was told to stop does not claim that it has. */
  interrupt(sessionId: string, options?: CallOptions): Promise<Interruption> {
    const request: WireRequest = { method: "POST", path: `${sessionPath(sessionId)}/interrupt` };
    return this.#read(InterruptionSchema, request, options);
  }

  /** `POST /sessions/{id}/commands`: an immediate command. @throws {ApiError} command_refused */
  runCommand(
    sessionId: string,
    command: CommandBody,
    options?: CallOptions,
  ): Promise<CommandResult> {
    const path = `${sessionPath(sessionId)}/commands`;
    const request: WireRequest = { method: "POST", path, body: encodeJson(command) };
    return this.#read(CommandResultSchema, request, options);
  }

  // Inputs.

  /** `GET /sessions/{id}/inputs/{input_id}`: state, turn and outcome. */
  getInput(sessionId: string, inputId: string, options?: CallOptions): Promise<Input> {
    return this.#read(InputSchema, get(inputPath(sessionId, inputId)), options);
  }

  /** `POST /sessions/{id}/inputs/{input_id}/cancel`; takes an input id or a submission id. */
  cancelInput(sessionId: string, inputId: string, options?: CallOptions): Promise<Cancellation> {
    const path = `${inputPath(sessionId, inputId)}/cancel`;
    return this.#read(CancellationSchema, { method: "POST", path }, options);
  }

  // History and output.

  /** `GET /sessions/{id}/history`: a page in ascending order. Never loads the session. */
  history(sessionId: string, page: HistoryQuery = {}, options?: CallOptions): Promise<HistoryPage> {
    const path = `${sessionPath(sessionId)}/history${query({ ...page })}`;
    return this.#read(HistoryPageSchema, get(path), options);
  }

  /** `GET /sessions/{id}/history/{row_id}`: a row uncut. */
  historyRow(sessionId: string, rowId: number, options?: CallOptions): Promise<HistoryRow> {
    return this.#read(HistoryRowSchema, get(`${sessionPath(sessionId)}/history/${rowId}`), options);
  }

  /** `GET /sessions/{id}/active-output/{content_id}`: a page of spilled output. `subscribe` does this by itself. */
  activeOutput(
    sessionId: string,
    contentId: string,
    page: { readonly snapshot: string; readonly next?: string | null },
    options?: CallOptions,
  ): Promise<ActiveOutputPage> {
    return this.#read(
      ActiveOutputPageSchema,
      get(activeOutputPath(sessionId, contentId, page)),
      options,
    );
  }

  /** `GET /sessions/{id}/images/{image_id}`: the upload, or with `fitted` what the model gets of it. */
  async image(
    sessionId: string,
    imageId: string,
    { variant }: { readonly variant?: ImageVariant } = {},
    options?: CallOptions,
  ): Promise<ImageContent> {
    const image = `${sessionPath(sessionId)}/images/${encodeURIComponent(imageId)}`;
    const path = `${image}${query({ variant })}`;
    const answer = await this.transport.call({ ...get(path), accept: "*/*" }, options);
    return { mimeType: answer.headers.get("content-type") ?? "", bytes: answer.bytes };
  }

  /** Watches the session (subscription.ts). */
  subscribe(sessionId: string, options: SubscribeOptions): Subscription {
    return subscribe(this, sessionId, options);
  }

  // The daemon.

  /** `GET /health`: resolves when the daemon answers. */
  async health(options?: CallOptions): Promise<void> {
    await this.#read(HealthSchema, get("/health"), options);
  }

  /** `GET /server`: version, instance, capabilities and limits in force. */
  server(options?: CallOptions): Promise<ServerInfo> {
    return this.#read(ServerSchema, get("/server"), options);
  }

  /**
   * How often a quiet stream says that it lives, in milliseconds, as `GET /server` states it. Asked for once; what
   * the contract says holds while the daemon does not answer.
   */
  async keepaliveMs(): Promise<number> {
    if (this.#keepaliveMs !== null) return this.#keepaliveMs;
    try {
      const statedMs = (await this.server()).limits["keepalive_ms"] ?? 0;
      if (statedMs <= 0) return KEEPALIVE_MS;
      this.#keepaliveMs = statedMs;
      return statedMs;
    } catch {
      return KEEPALIVE_MS;
    }
  }

  /** `POST /server/shutdown`. @throws {ApiError} instance_mismatch when another instance runs by now */
  async shutdown(instanceId: string, options?: CallOptions): Promise<void> {
    const body = encodeJson({ instance_id: instanceId });
    await this.transport.call({ method: "POST", path: "/server/shutdown", body }, options);
  }

  /** `GET /openapi.json`. */
  openapi(options?: CallOptions): Promise<Record<string, unknown>> {
    return this.#read(v.record(v.string(), v.unknown()), get("/openapi.json"), options);
  }

  /** `GET /models`. */
  async models(options?: CallOptions): Promise<readonly ModelInfo[]> {
    return (await this.#read(ModelListSchema, get("/models"), options)).items;
  }

  /** `GET /skills`: those of the home, and with a workspace also its own. */
  async skills(
    { workspace }: { readonly workspace?: string } = {},
    options?: CallOptions,
  ): Promise<readonly SkillInfo[]> {
    const request = get(`/skills${query({ workspace })}`);
    return (await this.#read(SkillListSchema, request, options)).items;
  }

  #handle(operation: EncodedOperation): OperationHandle {
    return new OperationHandle(this.transport, operation);
  }

  async #read<S extends v.GenericSchema>(
    schema: S,
    request: WireRequest,
    options?: CallOptions,
  ): Promise<v.InferOutput<S>> {
    return decode(schema, await this.transport.call(request, options));
  }
}

function fixedEndpoint({ url, token }: ClientOptions): Endpoint {
  if (url === undefined || token === undefined) {
    throw new TypeError("Cannot create a client: give 'endpoint', or 'url' and 'token'");
  }
  return { url, token };
}

function tagged(answer: Answer): TaggedSession {
  return { session: decode(SessionSchema, answer), etag: answer.headers.get("etag") };
}

export { ApiError, ProtocolError, StreamFailure, TransportError } from "./errors.ts";
export type { TransportFailure } from "./errors.ts";
export type { CallOptions } from "./deadline.ts";
export type {
  CommandFields,
  CreationFields,
  Door,
  HandleRecord,
  InvocationFields,
  MessageFields,
  SubmissionFields,
  Upload,
} from "./encoding.ts";
export { OperationHandle, Uncertain } from "./operation_handle.ts";
export type { Accepted, Resolution } from "./operation_handle.ts";
export type { UncertainReason } from "./recovery.ts";
export { subscribe } from "./subscription.ts";
export type { CheckedBatch } from "./batch.ts";
export type {
  FailureReason,
  LiveEvent,
  Position,
  SubscribeOptions,
  Subscription,
  SubscriptionEnd,
  SubscriptionState,
} from "./subscription.ts";
export { Transcript } from "./transcript.ts";
export type { LiveChunk, TranscriptInput } from "./transcript.ts";
export type { Endpoint, EndpointSource, Fetch } from "./transport.ts";

// What the contract's answers look like.
export type { Batch, ResetEvent, StreamEvent, ToolProgress } from "../wire/event.ts";
export type { ActiveOutputPage } from "../wire/event.ts";
export type { HistoryPage, HistoryRow, ImageReference } from "../wire/history.ts";
export type {
  CancelResult,
  Cancellation,
  Input,
  Interruption,
  PendingInput,
  Turn,
} from "../wire/input.ts";
export type { Admission, Receipt } from "../wire/operation.ts";
export type { ProblemBody, ProblemCode, ProblemField } from "../wire/problem.ts";
export type { CommandResult, ModelInfo, ServerInfo, SkillInfo } from "../wire/server.ts";
export type { Phase, SessionPage, SessionResource, SessionSummary } from "../wire/session.ts";
export type { CommandBody, SessionPatch, Settings } from "../wire/submission.ts";
