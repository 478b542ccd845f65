/**
 * Owns how this floor reaches model services.
 */
export type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

const LOOPBACK_REGEXP = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i;

/** What every request to a service is sent with. */
export function requestOptions(url: string): RequestInit {
  return {
    // Bun's own bound would end a stream that is quiet for five minutes, with an error of its own.
    ...({ timeout: false } as RequestInit),
    // A redirect would carry the key to where nobody sent it.
    redirect: "error",
    // A proxy that is set for the world outside does not know this machine.
    ...(LOOPBACK_REGEXP.test(URL.parse(url)?.hostname ?? "") ? { proxy: false } : {}),
  };
}
