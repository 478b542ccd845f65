import { VERSION } from "../base/version.ts";

/** Owns `albedo version`. */
export function version(): void {
  console.log(`albedo ${VERSION}`);
}
