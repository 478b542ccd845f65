import { createRawCommits } from "./raw_commits.ts";

/**
 * What one durable request costs at least: a bare server that makes one raw SQLite commit for each. Takes a
 * directory, prints its port.
 */
const commit = createRawCommits(process.argv[2] ?? ".");

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const text = await request.text();
    const body = JSON.parse(text) as { operationId?: string };
    const id = body.operationId ?? request.url.slice(-36);
    const reply = { operationId: id, sessionId: id, status: "accepted", acceptedAt: Date.now() };
    commit(id, text);
    return Response.json(reply, { status: request.method === "PUT" ? 202 : 201 });
  },
});
console.log(server.port);
