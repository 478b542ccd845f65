import { describe, expect, test } from "bun:test";
import { Database as Sqlite } from "bun:sqlite";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createIds } from "../../src/base/ids.ts";
import { silentLog } from "../../src/base/log.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { explainOpenFailure, StoreOpenError } from "../../src/store/store_open_error.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { tempDir } from "../support/temp_dir.ts";

/*
 * "a database that is newer than the program, damaged, locked by another daemon or on a read-only disk stops the start
 * with a message that says what to do. One daemon a home." (issue 2)
 */
const clock = new FakeClock();

function open(home: string): Store {
  const ids = createIds(clock);
  return openStore({ home, clock, ids, log: silentLog, busyTimeoutMs: 20 });
}

async function make(home: string): Promise<void> {
  await open(home).close();
}

function failure(home: string): StoreOpenError {
  try {
    open(home);
  } catch (error) {
    if (error instanceof StoreOpenError) return error;
    throw error;
  }
  throw new Error("Opened all the same");
}

function mode(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

describe("openStore()", () => {
  test("makes a private home with private files, whatever the umask", async () => {
    using directory = tempDir();
    const home = join(directory.path, "deep", "hömé with spaces");
    const before = process.umask(0);
    try {
      const store = open(home);
      await store.operations.setBlocking("none", null);
      expect(mode(home)).toBe("700");
      expect(readdirSync(home).toSorted()).toEqual([
        "albedo.db",
        "albedo.db-shm",
        "albedo.db-wal",
        "daemon.lock",
      ]);
      for (const file of readdirSync(home))
        expect([file, mode(join(home, file))]).toEqual([file, "600"]);
      await store.close();
    } finally {
      process.umask(before);
    }
  });

  test("closes a home that was open to others", async () => {
    using directory = tempDir();
    const home = join(directory.path, "home");
    mkdirSync(home, { mode: 0o755 });
    writeFileSync(join(home, "albedo.db"), "", { mode: 0o644 });
    await make(home);
    expect([mode(home), mode(join(home, "albedo.db"))]).toEqual(["700", "600"]);
  });

  test("leaves no log behind at a close", async () => {
    using directory = tempDir();
    await make(directory.path);
    expect(readdirSync(directory.path).toSorted()).toEqual(["albedo.db", "daemon.lock"]);
  });

  test("runs with a write-ahead log, full syncs and foreign keys", async () => {
    using directory = tempDir();
    const store = open(directory.path);
    const pragma = (name: string): unknown =>
      Object.values(store.database.query<Record<string, unknown>>(`PRAGMA ${name}`).get() ?? {})[0];
    expect(pragma("journal_mode")).toBe("wal");
    expect(pragma("synchronous")).toBe(2);
    expect(pragma("foreign_keys")).toBe(1);
    expect(pragma("busy_timeout")).toBe(20);
    expect(
      store.database
        .query("SELECT name FROM pragma_table_list WHERE strict = 0 AND name NOT LIKE 'sqlite_%'")
        .all(),
    ).toEqual([]);
    await store.close();
  });

  test("refuses a home that another daemon has, and names it", async () => {
    using directory = tempDir();
    const store = open(directory.path);
    expect(failure(directory.path).message).toContain("Another daemon has the home");
    const discovery = { url: "http://127.0.0.1:4711", token: "secret", pid: process.pid };
    writeFileSync(join(directory.path, "daemon.json"), JSON.stringify(discovery));
    const error = failure(directory.path);
    expect(error.code).toBe("running");
    expect(error.message).toContain(`process ${process.pid} at http://127.0.0.1:4711`);
    expect(error.message).not.toContain("secret");
    const gone = Bun.spawn(["true"]);
    await gone.exited;
    writeFileSync(
      join(directory.path, "daemon.json"),
      JSON.stringify({ ...discovery, pid: gone.pid }),
    );
    expect(failure(directory.path).message).toContain("Another daemon has the home");
    writeFileSync(join(directory.path, "daemon.json"), "half of {");
    expect(failure(directory.path).code).toBe("running");
    await store.close();
    await make(directory.path);
  });

  test("refuses a database that another program has locked", async () => {
    using directory = tempDir();
    await make(directory.path);
    {
      using other = new Sqlite(join(directory.path, "albedo.db"));
      other.run("BEGIN IMMEDIATE");
      expect(failure(directory.path).code).toBe("locked");
      other.run("ROLLBACK");
      other.run("PRAGMA locking_mode = EXCLUSIVE");
      other.run("BEGIN EXCLUSIVE");
      expect(failure(directory.path).code).toBe("locked");
    }
    await make(directory.path);
  });

  test.each([
    ["text", (path: string) => writeFileSync(path, "not a database ".repeat(1000))],
    ["cut in the middle of a page", (path: string) => truncateSync(path, 4096 * 3 + 100)],
    ["cut to its first page", (path: string) => truncateSync(path, 4096)],
    ["overwritten at its beginning", (path: string) => overwrite(path, 0)],
    ["overwritten in the middle", (path: string) => overwrite(path, 4096 * 5)],
    ["overwritten at its end", (path: string) => overwrite(path, statSync(path).size - 4096)],
  ])("refuses a damaged database: %s", async (_how, damage) => {
    using directory = tempDir();
    await make(directory.path);
    const path = join(directory.path, "albedo.db");
    damage(path);
    const before = readFileSync(path);
    const error = failure(directory.path);
    expect(error.code).toBe("damaged");
    expect(error.message).toContain(`"${path}" is damaged`);
    expect(error.message).toContain("put a backup in its place");
    expect(readFileSync(path).equals(before)).toBe(true);
    // The refused start has let the home go.
    expect(failure(directory.path).code).toBe("damaged");
  });

  test("refuses a home that is a file, lies in a file, or belongs to everybody", () => {
    using directory = tempDir();
    const file = join(directory.path, "file");
    writeFileSync(file, "");
    expect(failure(file).code).toBe("home_invalid");
    expect(failure(join(file, "home")).code).toBe("home_invalid");
    const shared = join(directory.path, "shared");
    mkdirSync(shared);
    chmodSync(shared, 0o1777);
    writeFileSync(join(shared, "of-others"), "");
    expect(failure(shared).code).toBe("home_invalid");
    expect(existsSync(join(shared, "albedo.db"))).toBe(false);
    expect(mode(shared)).toBe("777");
  });

  test("closes a home that was mounted for it, as open as file systems are at first", async () => {
    using directory = tempDir();
    const mounted = join(directory.path, "mounted");
    mkdirSync(mounted);
    writeFileSync(join(mounted, "config.toml"), "");
    chmodSync(mounted, 0o1777);
    await make(mounted);
    expect(mode(mounted)).toBe("700");
    await make(mounted);
  });
});

describe("explainOpenFailure()", () => {
  test.each([
    ["SQLITE_READONLY_DBMOVED", "read_only"],
    ["SQLITE_CANTOPEN", "read_only"],
    ["EROFS", "read_only"],
    ["EACCES", "read_only"],
    ["SQLITE_FULL", "disk_full"],
    ["ENOSPC", "disk_full"],
    ["SQLITE_BUSY_RECOVERY", "locked"],
    ["SQLITE_CORRUPT_INDEX", "damaged"],
    ["SQLITE_IOERR_FSYNC", "disk_failed"],
    ["ENOTDIR", "home_invalid"],
    // Where nothing can be made: /proc says so of everything in it.
    ["ENOENT", "home_invalid"],
  ] as const)("says what %s means and what to do", (cause, meaning) => {
    const error = explainOpenFailure(Object.assign(new Error("x"), { code: cause }), "/home/x");
    expect(error).toBeInstanceOf(StoreOpenError);
    expect((error as StoreOpenError).code).toBe(meaning);
    expect((error as StoreOpenError).message).toMatch(/\/home\/x.*(start again|another)/);
  });

  test("hands on what is no failure of the file", () => {
    const bug = new TypeError("a bug");
    expect(explainOpenFailure(bug, "/home/x")).toBe(bug);
  });
});

function overwrite(path: string, offset: number): void {
  const bytes = readFileSync(path);
  bytes.fill(0xa5, offset, offset + 4096);
  writeFileSync(path, bytes);
}
