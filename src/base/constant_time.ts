/**
 * Compares two secrets in a time that depends on their lengths alone, so that an answer's delay tells nothing of
 * how much of a guess was right. `node:crypto` has the same and takes longer to load than the daemon to open its
 * store.
 */
export function equalInConstantTime(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let index = 0; index < a.length; index += 1) {
    difference |= (a[index] ?? 0) ^ (b[index] ?? 0);
  }
  return difference === 0;
}
