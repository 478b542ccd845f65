import * as v from "valibot";
import { UUIDV7_REGEXP } from "../base/ids.ts";

/**
 * Ids as the wire knows them: UUIDv7, lowercase, canonical; anything else is refused
 * (contract.md, Identity and time).
 */
export const UuidSchema = v.pipe(v.string(), v.regex(UUIDV7_REGEXP, "Must be a lowercase UUIDv7"));

export type Uuid = string;
