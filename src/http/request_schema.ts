import * as v from "valibot";
import { Problem, type ProblemField } from "../wire/problem.ts";

/**
 * Owns how a request is held against its wire schema. A schema given to a route is wrapped here, so that what does
 * not fit is refused as a `Problem` on the spot. Elysia's own validation error would carry the whole body in its
 * message, and has no pointers to the fields (elysiajs/elysia#1660).
 *
 * I1. A refusal names fields and what they should be, never what was sent.
 * I2. Work and memory of a refusal are bounded, whatever was sent.
 */

/** A wire schema as a route takes it: Standard Schema v1, with the schema itself for the OpenAPI document. */
export interface RequestSchema<S extends v.GenericSchema> {
  readonly schema: S;
  readonly "~standard": v.StandardProps<v.InferInput<S>, v.InferOutput<S>>;
}

const FIELDS_MAX = 16;
/** A larger value is looked at until its first fault only; an issue a node would cost more than the body. */
const NODES_MAX = 256;
const POINTER_CHARS_MAX = 256;

/** The body of a route. Fields at fault are JSON pointers (RFC 6901). */
export function inBody<S extends v.GenericSchema>(schema: S): RequestSchema<S> {
  return wrap(schema, "The request body does not have the form this route takes", toPointer);
}

/** The query of a route. Fields at fault are named `?name`. */
export function inQuery<S extends v.GenericSchema>(schema: S): RequestSchema<S> {
  return wrap(schema, "The query does not have the form this route takes", (issue) =>
    clip(`?${keysOf(issue).join(".")}`),
  );
}

/** The parameters of a route's path. Fields at fault are named `{name}`. */
export function inPath<S extends v.GenericSchema>(schema: S): RequestSchema<S> {
  return wrap(schema, "The path holds an id that is not valid", (issue) =>
    clip(`{${keysOf(issue).join(".")}}`),
  );
}

function wrap<S extends v.GenericSchema>(
  schema: S,
  detail: string,
  locate: (issue: v.BaseIssue<unknown>) => string,
): RequestSchema<S> {
  return {
    schema,
    "~standard": {
      version: 1,
      vendor: "valibot",
      validate(value) {
        const result = v.safeParse(schema, value, { abortEarly: !isSmall(value) });
        if (!result.success) {
          const fields = result.issues.slice(0, FIELDS_MAX).map((issue): ProblemField => {
            return { pointer: locate(issue), detail: describe(issue) };
          });
          throw new Problem("invalid_request", detail, { fields });
        }
        const pointer = findArrayTakenAsObject(value, result.output, "");
        if (pointer === null) return { value: result.output };
        throw new Problem("invalid_request", detail, {
          fields: [{ pointer, detail: "Must be Object" }],
        });
      },
    },
  };
}

/**
 * A strict object takes an empty array for an object without fields, at any depth. Only what has passed its schema is
 * walked, so the names are the schema's own and the depth is its depth.
 *
 * @returns a JSON pointer
 */
function findArrayTakenAsObject(value: unknown, output: unknown, pointer: string): string | null {
  if (typeof output !== "object" || output === null) return null;
  if (Array.isArray(value) && !Array.isArray(output)) return pointer;
  for (const [key, child] of Object.entries(output)) {
    const given = (value as Record<string, unknown> | undefined)?.[key];
    const found = findArrayTakenAsObject(given, child, `${pointer}/${key}`);
    if (found !== null) return found;
  }
  return null;
}

function isSmall(value: unknown): boolean {
  const waiting: unknown[] = [value];
  let nodes = 0;
  while (waiting.length > 0) {
    const node = waiting.pop();
    nodes += 1;
    if (nodes + waiting.length > NODES_MAX) return false;
    if (typeof node !== "object" || node === null) continue;
    for (const key in node) {
      waiting.push((node as Record<string, unknown>)[key]);
      if (waiting.length > NODES_MAX) return false;
    }
  }
  return true;
}

function keysOf(issue: v.BaseIssue<unknown>): string[] {
  return (issue.path ?? []).map((item) => String(item.key));
}

function toPointer(issue: v.BaseIssue<unknown>): string {
  const keys = keysOf(issue).map((key) => key.replaceAll("~", "~0").replaceAll("/", "~1"));
  return clip(keys.map((key) => `/${key}`).join(""));
}

/** An unknown key is as long as its sender wants. */
function clip(pointer: string): string {
  return pointer.length > POINTER_CHARS_MAX ? pointer.slice(0, POINTER_CHARS_MAX) : pointer;
}

const BOUNDS: Readonly<Record<string, string>> = {
  min_length: "Must have a length of at least",
  max_length: "Must have a length of at most",
  min_value: "Must be at least",
  max_value: "Must be at most",
};

/** What is wanted, from the schema alone: the issue's own message may quote what was sent (I1). */
function describe(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === "schema") {
    if (issue.type === "strict_object" && issue.expected === "never") return "Is not known here";
    if (issue.received === "undefined") return "Is missing";
    return `Must be ${issue.expected ?? "of another type"}`;
  }
  const bound = BOUNDS[issue.type];
  if (bound !== undefined) return `${bound} ${String(issue.requirement)}`;
  if (issue.type === "integer") return "Must be a whole number";
  return issue.message.startsWith("Invalid ") ? "Is not valid" : issue.message;
}
