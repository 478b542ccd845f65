import { describe, expect, test } from "bun:test";
import { Database as Sqlite } from "bun:sqlite";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { silentLog } from "../../src/base/log.ts";
import { sha256Hex } from "../../src/store/fingerprint.ts";
import { type Migration, MIGRATIONS } from "../../src/store/migrations.ts";
import { openDatabase } from "../../src/store/open.ts";
import { StoreOpenError } from "../../src/store/store_open_error.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/*
 * "numbered migrations in `migrations/` applied atomically and recorded with a checksum; a database that is newer than
 * the program … stops the start with a message that says what to do" (issue 2).
 */
const ONE: Migration = { version: 1, name: "0001_one", sql: "CREATE TABLE one (a TEXT) STRICT;" };
const TWO: Migration = {
  version: 2,
  name: "0002_two",
  sql: "CREATE TABLE two (a TEXT) STRICT; INSERT INTO one (a) VALUES ('moved');",
};

function open(home: string, migrations: readonly Migration[], points?: { reached(): void }): void {
  const opened = openDatabase({
    home,
    clock: new FakeClock(7),
    log: silentLog,
    migrations,
    ...(points === undefined ? {} : { points }),
  });
  opened.database.close();
  opened.lock.release();
}

function failure(run: () => void): StoreOpenError {
  try {
    run();
  } catch (error) {
    if (error instanceof StoreOpenError) return error;
    throw error;
  }
  throw new Error("Opened all the same");
}

function inspect(home: string): { tables: string[]; applied: unknown[] } {
  using sqlite = new Sqlite(join(home, "albedo.db"), { readonly: true });
  return {
    tables: sqlite
      .query<{ name: string }, []>("SELECT name FROM sqlite_schema ORDER BY name")
      .all()
      .map(({ name }) => name),
    applied: sqlite.query("SELECT * FROM schema_migrations ORDER BY version").all(),
  };
}

describe("MIGRATIONS", () => {
  test("are the files of migrations/, all of them, in order and without a gap", () => {
    const files = readdirSync(join(import.meta.dir, "../../migrations")).toSorted();
    expect(MIGRATIONS.map(({ name }) => `${name}.sql`)).toEqual(files);
    MIGRATIONS.forEach(({ version, name }, index) => {
      expect(version).toBe(index + 1);
      expect(name).toStartWith(`${String(version).padStart(4, "0")}_`);
    });
  });
});

describe("migrate()", () => {
  test("applies what is missing, once, and records each with its checksum", () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    open(home, [ONE]);
    expect(inspect(home)).toEqual({
      tables: ["one", "schema_migrations"],
      applied: [{ version: 1, name: ONE.name, checksum: sha256Hex(ONE.sql), applied_at: 7 }],
    });
    open(home, [ONE, TWO]);
    open(home, [ONE, TWO]);
    expect(inspect(home).tables).toEqual(["one", "schema_migrations", "two"]);
    expect(inspect(home).applied).toHaveLength(2);
  });

  test("leaves nothing of a migration that fails in the middle", () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    const broken = { ...TWO, sql: `${TWO.sql} INSERT INTO missing (a) VALUES (1);` };
    open(home, [ONE]);
    expect(() => open(home, [ONE, broken])).toThrow("missing");
    expect(inspect(home).tables).toEqual(["one", "schema_migrations"]);
    open(home, [ONE, TWO]);
    expect(inspect(home).applied).toHaveLength(2);
  });

  test("leaves nothing of a migration that dies before its record", () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    const points = {
      reached(): void {
        throw new Error("died");
      },
    };
    expect(() => open(home, [ONE], points)).toThrow("died");
    open(home, [ONE]);
    expect(inspect(home).applied).toHaveLength(1);
  });

  test("refuses a database of a newer program, and says so", () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    open(home, [ONE, TWO]);
    const error = failure(() => open(home, [ONE]));
    expect(error.code).toBe("newer");
    expect(error.message).toContain("0002_two");
    expect(error.message).toContain("install that version or a later one");
  });

  test("refuses a database whose migration was another one", () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    open(home, [ONE]);
    const error = failure(() => open(home, [{ ...ONE, sql: `${ONE.sql} -- changed` }]));
    expect(error.code).toBe("changed");
    expect(error.message).toContain("0001_one");
  });

  test("refuses a database of another program, and leaves it as it is", () => {
    using directory = tempDir();
    const { path: home } = directory;
    {
      using sqlite = new Sqlite(join(home, "albedo.db"), { create: true });
      sqlite.run("CREATE TABLE theirs (a TEXT)");
    }
    expect(failure(() => open(home, [ONE])).code).toBe("foreign");
    using sqlite = new Sqlite(join(home, "albedo.db"), { readonly: true });
    expect(sqlite.query("SELECT name FROM sqlite_schema").all()).toEqual([{ name: "theirs" }]);
  });
});
