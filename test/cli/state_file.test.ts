import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CliError } from "../../src/cli/exit.ts";
import { StateFile } from "../../src/cli/state_file.ts";
import { tempDir } from "../support/temp_dir.ts";

/** Goal: what is uncertain survives this client, is private, and goes when it is known. */
const ID_A = "0198c1d2-0000-7000-8000-00000000000a";
const ID_B = "0198c1d2-0000-7000-8000-00000000000b";

function operation(id: string, keptAt: number) {
  return {
    operation_id: id,
    session_id: null,
    kept_at: keptAt,
    awaits: "admission",
    expired: false,
    summary: "hello",
    handle: { any: "thing" },
  } as const;
}

describe("StateFile", () => {
  test("keeps, lists oldest first, and forgets", async () => {
    using home = tempDir();
    const state = new StateFile(home.path);
    expect(await state.list()).toEqual([]);
    await state.keep(operation(ID_B, 2));
    await state.keep(operation(ID_A, 1));
    expect((await state.list()).map((kept) => kept.operation_id)).toEqual([ID_A, ID_B]);
    expect(await new StateFile(home.path).find(ID_A)).toEqual({
      version: 1,
      ...operation(ID_A, 1),
    });
    await state.forget(ID_A);
    await state.forget(ID_A);
    expect((await state.list()).map((kept) => kept.operation_id)).toEqual([ID_B]);
  });

  test("replaces what it kept under the same id", async () => {
    using home = tempDir();
    const state = new StateFile(home.path);
    await state.keep(operation(ID_A, 1));
    await state.keep({ ...operation(ID_A, 1), awaits: "outcome", expired: true });
    expect(await state.find(ID_A)).toMatchObject({ awaits: "outcome", expired: true });
    expect(readdirSync(join(home.path, "client", "operations"))).toEqual([`${ID_A}.json`]);
  });

  test("is for its owner alone", async () => {
    using home = tempDir();
    await new StateFile(home.path).keep(operation(ID_A, 1));
    const directory = join(home.path, "client", "operations");
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    expect(statSync(join(directory, `${ID_A}.json`)).mode & 0o777).toBe(0o600);
  });

  test("passes over files that hold something else", async () => {
    using home = tempDir();
    const directory = join(home.path, "client", "operations");
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, `${ID_A}.json`), "{");
    writeFileSync(join(directory, `${ID_B}.json`), '{"version":2}');
    writeFileSync(join(directory, "note.txt"), "hello");
    expect(await new StateFile(home.path).list()).toEqual([]);
  });

  test("looks nowhere else for an id that is none", async () => {
    using home = tempDir();
    writeFileSync(join(home.path, "client.json"), JSON.stringify(operation(ID_A, 1)));
    expect(await new StateFile(home.path).find("../../client")).toBeNull();
  });

  test("names the directory that it cannot write to", async () => {
    using home = tempDir();
    // A file where the directory would be stops root as well.
    writeFileSync(join(home.path, "client"), "");
    const error = await new StateFile(home.path).keep(operation(ID_A, 1)).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(CliError);
    expect((error as CliError).message).toContain(join(home.path, "client", "operations"));
  });
});
