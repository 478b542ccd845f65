import { expect, test } from "bun:test";
import { requestOptions } from "../../src/agent/fetch.ts";
import { ModelServer } from "../support/model_server.ts";

// Goal: a model on this machine is reached also where a proxy is set for the world outside.

test.each([
  ["http://127.0.0.1:11434/v1/models", true],
  ["http://localhost:1/", true],
  ["http://LOCALHOST/", true],
  ["http://[::1]:8080/v1", true],
  ["http://127.1.2.3/", true],
  ["https://api.openai.com/v1", false],
  ["http://192.168.0.2/", false],
  ["http://localhost.example/", false],
  ["http://127.0.0.1.example/", false],
  ["nonsense", false],
])("%s goes around a proxy: %p", (url, direct) => {
  const options = requestOptions(url);
  expect("proxy" in options).toBe(direct);
  expect(options.redirect).toBe("error");
});

test("with a proxy set, a service on this machine is still reached", async () => {
  await using server = await ModelServer.start([{ status: 200, chunks: ["reached"] }]);
  await using proxy = await ModelServer.start([{ status: 502, chunks: ["the proxy"] }]);
  const module = new URL("../../src/agent/fetch.ts", import.meta.url).pathname;
  const child = Bun.spawn(
    [
      process.execPath,
      "-e",
      `import { requestOptions } from ${JSON.stringify(module)};
       const url = process.argv[1];
       console.log(await (await fetch(url, requestOptions(url))).text());`,
      server.url,
    ],
    {
      env: {
        ...process.env,
        HTTP_PROXY: proxy.url,
        http_proxy: proxy.url,
        NO_PROXY: "",
        no_proxy: "",
      },
      stdout: "pipe",
    },
  );
  expect(await new Response(child.stdout).text()).toBe("reached\n");
  expect(proxy.requests).toEqual([]);
});
