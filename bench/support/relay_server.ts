/** A bare relay: the provider's own stream handed on as it comes. Takes the provider's port, prints its own. */
const provider = `http://127.0.0.1:${process.argv[2] ?? ""}/v1/chat/completions`;

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    const upstream = await fetch(provider, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: await request.text(),
    });
    return new Response(upstream.body, { headers: { "content-type": "text/event-stream" } });
  },
});
console.log(server.port);
