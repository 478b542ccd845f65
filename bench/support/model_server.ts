import { Glob } from "bun";
import { join } from "node:path";
import { type ModelPlan, planIn, stamped } from "./model_plan.ts";
import { ROOT } from "./paths.ts";

/**
 * A local OpenAI-compatible model (`POST /v1/chat/completions`, streamed) that answers at once and by plan, so that
 * what a bench measures is the daemon. Prints its port. It runs as a process of its own.
 */
const PROSE_WORDS = await proseWords();

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  routes: {
    "/v1/models": Response.json({ object: "list", data: [{ id: "m", object: "model" }] }),
    "/v1/chat/completions": { POST: async (request) => completion(await request.json()) },
  },
});
console.log(server.port);

function completion(body: unknown): Response {
  const plan = planIn(lastUserText(body));
  const stream = new ReadableStream({
    type: "direct",
    async pull(controller: ReadableStreamDirectController) {
      const send = (text: string): void => {
        void controller.write(text);
        void controller.flush();
      };
      try {
        await answer(plan, send);
      } catch {
        // The reader went away.
      }
      controller.close();
    },
  } as unknown as UnderlyingDefaultSource);
  return new Response(stream, { headers: { "content-type": "text/event-stream" } });
}

async function answer(plan: ModelPlan, send: (text: string) => void): Promise<void> {
  send(chunk({ role: "assistant", content: "" }, null));
  if (plan.hold === true) {
    await new Promise<never>(() => undefined);
  }
  const { deltas = 1, everyMs = 0, bytes = 20 } = plan;
  const began = performance.now();
  let word = 0;
  for (let sent = 0; sent < deltas; sent += 1) {
    if (everyMs > 0) {
      const wait = began + (sent + 1) * everyMs - performance.now();
      if (wait > 0) await Bun.sleep(wait);
    } else if (sent % 64 === 63) {
      // A long answer does not keep the server from its other callers.
      await Bun.sleep(0);
    }
    const text = plan.prose === true ? (PROSE_WORDS[word++ % PROSE_WORDS.length] ?? "") : "";
    send(chunk({ content: plan.prose === true ? text : stamped(bytes) }, null));
  }
  send(
    chunk({}, "stop", { prompt_tokens: 10, completion_tokens: deltas, total_tokens: deltas + 10 }),
  );
  send("data: [DONE]\n\n");
}

function chunk(delta: Record<string, unknown>, finish: string | null, usage?: object): string {
  const body = {
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1_700_000_000,
    model: "m",
    choices: [{ index: 0, delta, finish_reason: finish }],
    ...(usage === undefined ? {} : { usage }),
  };
  return `data: ${JSON.stringify(body)}\n\n`;
}

function lastUserText(body: unknown): string {
  const { messages } = body as { messages: { role: string; content: unknown }[] };
  const content = messages.findLast((message) => message.role === "user")?.content;
  return typeof content === "string"
    ? content
    : JSON.stringify(content ?? "").replaceAll('\\"', '"');
}

/** What a model might write: the words of this program's own text and code, in one fixed order. */
async function proseWords(): Promise<string[]> {
  const paths = [...new Glob("src/wire/*.ts").scanSync(ROOT), "bench/README.md"].sort();
  const texts = await Promise.all(paths.map((path) => Bun.file(join(ROOT, path)).text()));
  return texts.join("\n").split(/(?<=\s)(?=\S)/);
}
