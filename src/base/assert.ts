/** Thrown when the program itself is wrong; never a client's fault and never a 4xx. */
export class AssertionError extends Error {
  override readonly name = "AssertionError";
}

/**
 * States a fact the code around it relies on. Stays on in production.
 *
 * @throws {AssertionError} when the condition does not hold
 */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** Marks a place that exhaustive narrowing has shown to be out of reach. */
export function unreachable(value: never): never {
  throw new AssertionError(`Reached a case that cannot be: '${String(value)}'`);
}
