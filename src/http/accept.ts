/**
 * Owns content negotiation: what a client's `Accept` and `Accept-Encoding` admit (RFC 9110 §12.4.2, §12.5).
 */

interface Preference {
  readonly value: string;
  /** 0 refuses. */
  readonly weight: number;
}

/** Whether the stream's media type is admitted; the most specific range that fits decides. */
export function admitsEventStream(accept: string | null): boolean {
  const preferences = parse(accept);
  if (preferences.length === 0) return true;
  for (const range of ["text/event-stream", "text/*", "*/*"]) {
    const found = preferences.find(({ value }) => value === range);
    if (found !== undefined) return found.weight > 0;
  }
  return false;
}

/** Whether to code the stream with zstd: it is admitted, and plain bytes are not explicitly liked better. */
export function admitsZstd(acceptEncoding: string | null): boolean {
  const preferences = parse(acceptEncoding);
  const weightOf = (coding: string): number | undefined =>
    preferences.find(({ value }) => value === coding)?.weight;
  const zstd = weightOf("zstd") ?? weightOf("*") ?? 0;
  return zstd > 0 && zstd >= (weightOf("identity") ?? 0);
}

function parse(header: string | null): Preference[] {
  return (header ?? "")
    .split(",")
    .map(toPreference)
    .filter(({ value }) => value !== "");
}

function toPreference(element: string): Preference {
  const [value = "", ...parameters] = element.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => /^q\s*=/.test(parameter));
  if (weight === undefined) return { value, weight: 1 };
  const number = Number(weight.slice(weight.indexOf("=") + 1));
  // What is no number refuses: nothing can be read into it.
  return { value, weight: Number.isFinite(number) ? number : 0 };
}
