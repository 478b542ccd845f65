import { describe, expect, test } from "bun:test";
import { knownProviders, ollamaOrigin } from "../../src/agent/model_providers.ts";
import { Models } from "../../src/agent/models.ts";
import { DEMO_MODEL_ID } from "../../src/agent/provider_demo.ts";
import { ProviderError } from "../../src/agent/provider.ts";
import { type Config, type ConfigSource, fixedConfig, parseConfig } from "../../src/base/config.ts";
import type { Variables } from "../../src/base/environment.ts";
import { silentLog } from "../../src/base/log.ts";
import { FakeClock, settle } from "../support/fake_clock.ts";
import { ModelServer } from "../support/model_server.ts";
import { collect, modelRequest } from "./model_request.ts";

// Goal: which models there are, which one a new session gets, and what is said when one cannot be used; no secret in
// any of it. Method: an injected fetch that counts, and a real server where the whole way matters.

type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** Endpoints by the start of their URL; everything else refuses the connection. */
function endpoints(given: Record<string, readonly string[] | number>): {
  fetch: Fetch;
  asked: string[];
  headers: Headers[];
} {
  const asked: string[] = [];
  const headers: Headers[] = [];
  const fetch: Fetch = (input, init) => {
    const url = input instanceof Request ? input.url : input.toString();
    asked.push(url);
    headers.push(new Headers(init?.headers));
    for (const [start, answer] of Object.entries(given)) {
      if (!url.startsWith(start)) continue;
      return Promise.resolve(
        typeof answer === "number"
          ? new Response("no", { status: answer })
          : Response.json({ object: "list", data: answer.map((id) => ({ id, object: "model" })) }),
      );
    }
    return Promise.reject(Object.assign(new Error("Refused"), { code: "ConnectionRefused" }));
  };
  return { fetch, asked, headers };
}

function models(
  given: {
    config?: string | ConfigSource;
    env?: Variables;
    fetch?: Fetch;
    clock?: FakeClock;
  } = {},
): Models {
  const { config = "" } = given;
  return new Models({
    config: typeof config === "string" ? fixedConfig(parseConfig(config, "config.toml")) : config,
    env: given.env ?? {},
    clock: given.clock ?? new FakeClock(),
    log: silentLog,
    fetch: given.fetch ?? endpoints({}).fetch,
  });
}

const OLLAMA = "http://127.0.0.1:11434/v1";
const LOCAL = `
[providers.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "LOCAL_API_KEY"
models = ["qwen3", "org/other"]
`;

describe("Models, the default", () => {
  test("is the demo model with nothing configured and no Ollama", async () => {
    expect(await models().defaultId()).toBe("demo/demo");
    expect(await models({ fetch: endpoints({ [OLLAMA]: [] }).fetch }).defaultId()).toBe(
      "demo/demo",
    );
    expect(await models({ fetch: endpoints({ [OLLAMA]: 500 }).fetch }).defaultId()).toBe(
      "demo/demo",
    );
  });

  test("is a local Ollama's first model that can talk, where one answers", async () => {
    const { fetch, asked } = endpoints({ [OLLAMA]: ["nomic-embed-text:latest", "qwen3:8b"] });
    expect(await models({ fetch }).defaultId()).toBe("ollama/qwen3:8b");
    expect(asked).toEqual([`${OLLAMA}/models`]);
  });

  test("an Ollama that does not answer is not waited for longer than a moment", async () => {
    const clock = new FakeClock();
    const fetch: Fetch = (_, init) =>
      new Promise((_resolve, reject) => {
        init?.signal?.addEventListener("abort", () => reject(init.signal!.reason as Error));
      });
    const chosen = models({ clock, fetch }).defaultId();
    let isChosen = false;
    void chosen.then(() => (isChosen = true));
    await clock.advance(399);
    expect(isChosen).toBe(false);
    await clock.advance(1);
    expect(await chosen).toBe("demo/demo");
    expect(clock.waiting).toBe(0);
  });

  test("is what the settings say, whether it can be used or not", async () => {
    const { fetch, asked } = endpoints({ [OLLAMA]: ["qwen3"] });
    const chosen = models({ config: `model = "local/qwen3"\n${LOCAL}`, fetch });
    expect(await chosen.defaultId()).toBe("local/qwen3");
    expect(asked).toEqual([]);
  });

  test("without a choice it is the first configured model that has its key", async () => {
    const two = `${LOCAL}\n[providers.second]\nkind = "openai-compatible"\nbase_url = "http://x/v1"\nmodels = ["m"]`;
    expect(await models({ config: two }).defaultId()).toBe("second/m");
    const env = { LOCAL_API_KEY: "k" };
    expect(await models({ config: two, env }).defaultId()).toBe("local/qwen3");
    // What was set up and cannot be used is not made up for by a server that happens to run.
    const unlisted = '[providers.p]\nkind = "openai-compatible"\nbase_url = "http://x/v1"';
    const { fetch } = endpoints({ [OLLAMA]: ["qwen3"] });
    expect(await models({ config: unlisted, fetch }).defaultId()).toBe("demo/demo");
    // Better one that says what is missing than one nobody asked for.
    expect(await models({ config: LOCAL }).defaultId()).toBe("local/qwen3");
  });

  test("with a usual key it is one of that provider's, and Ollama is not asked", async () => {
    for (const [variable, expected] of [
      ["ANTHROPIC_API_KEY", /^anthropic\/claude-/],
      ["OPENAI_API_KEY", /^openai\/gpt-/],
      ["OPENROUTER_API_KEY", /^openrouter\/openrouter\/auto$/],
    ] as const) {
      const { fetch, asked } = endpoints({ [OLLAMA]: ["qwen3"] });
      expect(await models({ env: { [variable]: "k" }, fetch }).defaultId()).toMatch(expected);
      expect(asked.some((url) => url.startsWith(OLLAMA))).toBe(false);
    }
  });

  test("of several preferred ones it is one that the endpoint lists", async () => {
    const { fetch, headers } = endpoints({
      "https://api.anthropic.com/v1/models": ["claude-opus-4-1", "claude-sonnet-4-5"],
    });
    const env = { ANTHROPIC_API_KEY: "secret" };
    expect(await models({ env, fetch }).defaultId()).toBe("anthropic/claude-sonnet-4-5");
    expect(headers[0]?.get("x-api-key")).toBe("secret");
    expect(headers[0]?.get("anthropic-version")).toBe("2023-06-01");
  });

  test("what is known is given at once and renewed behind it", async () => {
    const clock = new FakeClock();
    const answers: Record<string, string[]> = { [OLLAMA]: ["one"] };
    const { fetch, asked } = endpoints(answers);
    const known = models({ clock, fetch });
    expect(await known.defaultId()).toBe("ollama/one");
    answers[OLLAMA] = ["two"];
    await clock.advance(30_000);
    expect(await known.defaultId()).toBe("ollama/one");
    expect(asked).toHaveLength(1);
    await clock.advance(1);
    expect(await known.defaultId()).toBe("ollama/one");
    await settle();
    expect(await known.defaultId()).toBe("ollama/two");
    expect(asked).toHaveLength(2);
  });

  test("many who ask at once ask the endpoint once", async () => {
    const { fetch, asked } = endpoints({ [OLLAMA]: ["one"] });
    const known = models({ fetch });
    await Promise.all(Array.from({ length: 20 }, () => known.defaultId()));
    expect(asked).toHaveLength(1);
  });
});

describe("Models.known()", () => {
  test("knows the demo model always, and configured ones by their names", async () => {
    const known = models({ config: LOCAL });
    expect(await known.known(DEMO_MODEL_ID)).toBe(true);
    expect(await known.known("local/qwen3")).toBe(true);
    expect(await known.known("local/org/other")).toBe(true);
    for (const id of ["local/nope", "local/", "local", "nope/qwen3", "demo/other", "", "/"]) {
      expect(await known.known(id)).toBe(false);
    }
  });

  test("asks an endpoint that lists its own, again when the answer is not of this moment", async () => {
    const clock = new FakeClock();
    const answers: Record<string, string[]> = { "http://127.0.0.1:9": ["a", "b:latest"] };
    const { fetch, asked } = endpoints(answers);
    const config = '[providers.p]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"';
    const known = models({ config, clock, fetch });
    expect(await known.known("p/a")).toBe(true);
    expect(await known.known("p/b")).toBe(true);
    expect(await known.known("p/new")).toBe(false);
    expect(asked).toHaveLength(1);
    await clock.advance(3_000);
    answers["http://127.0.0.1:9"] = ["a", "new"];
    expect(await known.known("p/new")).toBe(true);
    expect(asked).toHaveLength(2);
  });

  test("believes what cannot be verified", async () => {
    const config = '[providers.p]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"';
    expect(await models({ config }).known("p/whatever")).toBe(true);
    const broken = endpoints({ "http://127.0.0.1:9": 404 });
    expect(await models({ config, fetch: broken.fetch }).known("p/whatever")).toBe(true);
    const withKey = `${config}\napi_key_env = "MISSING"`;
    const { fetch, asked } = endpoints({});
    expect(await models({ config: withKey, fetch }).known("p/whatever")).toBe(true);
    expect(asked).toEqual([]);
  });

  test("an answer that is no listing, or endless, cannot be asked", async () => {
    const config = '[providers.p]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"';
    const endless = `{"data":[{"id":"a"}],"more":"${"x".repeat(5_000_000)}"}`;
    for (const body of ["<html>", '{"data":[{"name":"x"}]}', endless]) {
      const fetch: Fetch = () => Promise.resolve(new Response(body));
      expect(await models({ config, fetch }).known("p/x")).toBe(true);
    }
  });
});

describe("Models.list()", () => {
  test("holds every model, which is the default, and why one cannot be used; never a secret", async () => {
    const { fetch } = endpoints({ "https://api.openai.com/v1/models": ["gpt-5", "gpt-4o"] });
    const env = { OPENAI_API_KEY: "sk-verysecret", OLLAMA_HOST: "http://127.0.0.1:1" };
    const items = await models({ config: LOCAL, env, fetch }).list();
    expect(items).toEqual([
      {
        id: "local/qwen3",
        provider: "local",
        name: "qwen3",
        default: false,
        available: false,
        reason: expect.stringContaining("LOCAL_API_KEY"),
      },
      expect.objectContaining({ id: "local/org/other", name: "org/other", available: false }),
      { id: "openai/gpt-5", provider: "openai", name: "gpt-5", default: true, available: true },
      { id: "openai/gpt-4o", provider: "openai", name: "gpt-4o", default: false, available: true },
      { id: "demo/demo", provider: "demo", name: "demo", default: false, available: true },
    ]);
    expect(JSON.stringify(items)).not.toContain("verysecret");
  });
});

describe("Models.resolve()", () => {
  test("says what is missing", () => {
    const known = models({ config: LOCAL });
    for (const [id, words] of [
      ["local/qwen3", "LOCAL_API_KEY is not set"],
      ["nope/x", "No provider 'nope'"],
      ["local/nope", "without a model 'nope'"],
      ["x", "No provider 'x'"],
    ] as const) {
      let thrown: unknown = null;
      try {
        known.resolve(id);
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBeInstanceOf(ProviderError);
      expect(thrown).toMatchObject({ code: "model_unavailable", retryable: false });
      expect((thrown as Error).message).toContain(words);
    }
  });

  test("gives the same model for the same id, until the settings change", async () => {
    let config: Config = parseConfig(LOCAL, "config.toml");
    let listener: (config: Config) => void = () => {};
    let hasEnded = false;
    const source: ConfigSource = {
      current: () => config,
      onChange: (given) => {
        listener = given;
        return () => (hasEnded = true);
      },
    };
    const known = models({ config: source, env: { LOCAL_API_KEY: "k" } });
    const first = known.resolve("local/qwen3");
    expect(first.id).toBe("local/qwen3");
    expect(known.resolve("local/qwen3")).toBe(first);
    let told = 0;
    const stop = known.onChange(() => (told += 1));
    config = parseConfig(LOCAL.replace("LOCAL_API_KEY", "OTHER_KEY"), "config.toml");
    listener(config);
    expect(told).toBe(1);
    expect(() => known.resolve("local/qwen3")).toThrow("OTHER_KEY");
    expect(await known.known("local/qwen3")).toBe(true);
    stop();
    listener(config);
    expect(told).toBe(1);
    known.close();
    expect(hasEnded).toBe(true);
  });

  test("reaches the endpoint of either kind", async () => {
    await using server = await ModelServer.start([{ status: 401, chunks: ["{}"] }]);
    const config = `
[providers.a]
kind = "anthropic"
base_url = "${server.url}"
[providers.o]
kind = "openai-compatible"
base_url = "${server.url}/v1"
`;
    const known = models({ config, fetch });
    for (const id of ["a/claude", "o/some/model"]) {
      const { error } = await collect(known.resolve(id), modelRequest());
      expect(error).toMatchObject({ code: "authentication" });
    }
    expect(server.requests.map((request) => [request.path, request.body.model])).toEqual([
      ["/v1/messages", "claude"],
      ["/v1/chat/completions", "some/model"],
    ]);
  });
});

describe("knownProviders()", () => {
  test("a configured name hides a built-in one; a blank key is none", () => {
    const config = parseConfig(
      '[providers.openai]\nkind = "openai-compatible"\nbase_url = "http://mine/v1"\n[providers.ollama]\nkind = "openai-compatible"\nbase_url = "http://far/v1"',
      "config.toml",
    );
    const env = { OPENAI_API_KEY: "k", ANTHROPIC_API_KEY: " " };
    const known = knownProviders(config, env);
    expect([...known.keys()]).toEqual(["openai", "ollama"]);
    expect(known.get("openai")).toMatchObject({ baseUrl: "http://mine/v1", key: null });
    expect(known.get("ollama")?.origin).toBe("config");
  });

  test("Anthropic's own service is used with the usual key where nobody says which", () => {
    const config = parseConfig('[providers.claude]\nkind = "anthropic"', "config.toml");
    const known = knownProviders(config, { ANTHROPIC_API_KEY: "k" });
    expect(known.get("claude")?.key).toEqual({ variable: "ANTHROPIC_API_KEY", value: "k" });
  });
});

describe("ollamaOrigin()", () => {
  test.each([
    [undefined, "http://127.0.0.1:11434"],
    ["", "http://127.0.0.1:11434"],
    ["0.0.0.0", "http://127.0.0.1:11434"],
    ["0.0.0.0:8080", "http://127.0.0.1:8080"],
    ["[::]:8080", "http://127.0.0.1:8080"],
    ["box", "http://box:11434"],
    ["box:1234", "http://box:1234"],
    ["http://box", "http://box"],
    ["https://box/ollama/", "https://box/ollama"],
    ['"box:1234"', "http://box:1234"],
    ["not a host", "http://127.0.0.1:11434"],
  ])("%p is %p", (host, expected) => {
    expect(ollamaOrigin(host)).toBe(expected);
  });
});
