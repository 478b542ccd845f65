import { VERSION } from "../base/version.ts";
import { standardStream } from "./output.ts";

/** Owns `albedo version`. */
export function version(): void {
  standardStream("stdout").write(`albedo ${VERSION}\n`, () => {});
}
