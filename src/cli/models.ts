import type { Context } from "./context.ts";
import { EXIT } from "./exit.ts";
import type { ExitCode } from "./exit.ts";
import { printTable } from "./table.ts";

/** Owns `albedo models`: what `--model` takes. */
export async function models(
  context: Context,
  options: { readonly json: boolean },
): Promise<ExitCode> {
  const client = await context.connect();
  const list = await client.models();
  const { stdout } = context.output;
  if (options.json) {
    for (const model of list) stdout.json(model);
    return EXIT.done;
  }
  printTable(
    stdout,
    [" ", "ID", "NAME", "STATE"],
    list.map((model) => [
      model.default ? { text: "*", style: "green" } : { text: " " },
      { text: model.id, style: "bold" },
      { text: model.name },
      model.available
        ? { text: model.default ? "default" : "ready" }
        : { text: model.reason ?? "not available", style: "yellow" },
    ]),
  );
  return EXIT.done;
}
