import * as v from "valibot";

/**
 * Owns refusals: RFC 9457 problem documents with a stable `code` (contract.md, One admission, two doors).
 * A `Problem` is thrown by whoever refuses and rendered in one place, `http/problems.ts`.
 */
export const PROBLEM_STATUS = {
  invalid_request: 400,
  operation_future: 400,
  unauthorized: 401,
  forbidden_host: 403,
  forbidden_origin: 403,
  not_found: 404,
  session_not_found: 404,
  operation_unknown: 404,
  input_not_found: 404,
  history_row_not_found: 404,
  image_not_found: 404,
  active_output_not_found: 404,
  method_not_allowed: 405,
  not_acceptable: 406,
  request_timeout: 408,
  operation_conflict: 409,
  session_busy: 409,
  session_has_children: 409,
  instance_mismatch: 409,
  operation_expired: 410,
  active_output_expired: 410,
  precondition_failed: 412,
  payload_too_large: 413,
  unsupported_media_type: 415,
  workspace_invalid: 422,
  model_unknown: 422,
  skill_unknown: 422,
  command_unknown: 422,
  command_refused: 422,
  parent_invalid: 422,
  queue_full: 429,
  internal: 500,
  storage_unavailable: 503,
  daemon_stopping: 503,
  active_output_unavailable: 503,
} as const;

export type ProblemCode = keyof typeof PROBLEM_STATUS;

/** A field at fault: a JSON pointer (RFC 6901) into the body, or `?name` for a query parameter. */
export const ProblemFieldSchema = v.object({ pointer: v.string(), detail: v.string() });
export type ProblemField = v.InferOutput<typeof ProblemFieldSchema>;

export const ProblemSchema = v.looseObject({
  type: v.string(),
  title: v.string(),
  status: v.pipe(v.number(), v.integer()),
  detail: v.optional(v.string()),
  code: v.string(),
  fields: v.optional(v.array(ProblemFieldSchema)),
});
export type ProblemBody = v.InferOutput<typeof ProblemSchema>;

const TITLES: Record<ProblemCode, string> = {
  invalid_request: "The request is not valid",
  operation_future: "The operation id lies in the future",
  unauthorized: "A valid bearer token is required",
  forbidden_host: "The host is not served here",
  forbidden_origin: "The origin may not use this daemon",
  not_found: "There is nothing at this path",
  session_not_found: "There is no such session",
  operation_unknown: "No receipt is known for this operation",
  input_not_found: "There is no such input",
  history_row_not_found: "There is no such history row",
  image_not_found: "There is no such image",
  active_output_not_found: "There is no such output",
  method_not_allowed: "The method is not allowed here",
  not_acceptable: "No acceptable representation",
  request_timeout: "The request body did not arrive in time",
  operation_conflict: "The operation id was used for another action",
  session_busy: "The session is busy",
  session_has_children: "The session has children",
  instance_mismatch: "Another daemon instance is running",
  operation_expired: "The operation id has expired",
  active_output_expired: "The output reference has expired",
  precondition_failed: "The session has changed",
  payload_too_large: "The request body is too large",
  unsupported_media_type: "The media type is not supported",
  workspace_invalid: "The workspace cannot be used",
  model_unknown: "The model is not known",
  skill_unknown: "The skill is not known",
  command_unknown: "The command is not known",
  command_refused: "The command is refused",
  parent_invalid: "The parent session cannot be used",
  queue_full: "The session has too many waiting inputs",
  internal: "The daemon failed",
  storage_unavailable: "The store cannot take writes now",
  daemon_stopping: "The daemon is stopping",
  active_output_unavailable: "The output could not be kept",
};

/** The RFC 9457 document of a refusal. `type` is a URN, since there is no site to link to. */
export function problemBody(
  code: ProblemCode,
  detail?: string,
  fields?: readonly ProblemField[],
): ProblemBody {
  return {
    type: `urn:albedo:problem:${code}`,
    title: TITLES[code],
    status: PROBLEM_STATUS[code],
    ...(detail === undefined ? {} : { detail }),
    code,
    ...(fields === undefined || fields.length === 0 ? {} : { fields: [...fields] }),
  };
}

/**
 * A refusal that is not recorded. A recorded rejection is a value (`store/operations.ts`), not a `Problem`.
 */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly code: ProblemCode;
  readonly fields: readonly ProblemField[];
  /** Extra response headers, such as `Allow` or `Retry-After`. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    code: ProblemCode,
    detail?: string,
    options: {
      fields?: readonly ProblemField[];
      headers?: Readonly<Record<string, string>>;
      cause?: unknown;
    } = {},
  ) {
    super(
      detail ?? TITLES[code],
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.fields = options.fields ?? [];
    this.headers = options.headers ?? {};
  }

  get status(): number {
    return PROBLEM_STATUS[this.code];
  }

  body(): ProblemBody {
    return problemBody(this.code, this.message, this.fields);
  }
}
