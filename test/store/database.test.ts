import { describe, expect, test } from "bun:test";
import { Database as Sqlite } from "bun:sqlite";
import { join } from "node:path";
import { Problem } from "../../src/wire/problem.ts";
import { type Bench, openBench } from "./support.ts";

/*
 * The group commit (contract.md, Admission and receipts): "Admissions that arrive together share one commit (a
 * savepoint each, one sync) … One failing admission never takes its neighbours along."
 * Method: a table of the test's own, written through `Database.write`, seen through a second connection.
 */
function withTable(bench: Bench): Bench {
  bench.store.database.execute("CREATE TABLE probe (n INTEGER PRIMARY KEY, payload BLOB) STRICT");
  bench.store.database.execute("CREATE TABLE child (n INTEGER REFERENCES probe (n)) STRICT");
  return bench;
}

function insert(bench: Bench, n: number, bytes = 0): () => number {
  return () => {
    const sql = "INSERT INTO probe (n, payload) VALUES (?1, ?2)";
    bench.store.database.query(sql).run(n, new Uint8Array(bytes));
    return n;
  };
}

function stored(bench: Bench): number[] {
  using other = new Sqlite(join(bench.home, "albedo.db"), { readonly: true });
  return other
    .query<{ n: number }, []>("SELECT n FROM probe ORDER BY n")
    .all()
    .map(({ n }) => n);
}

async function refusal(promise: Promise<unknown>): Promise<Problem> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
  throw new Error("Not refused");
}

describe("Database.write", () => {
  test("takes all writes of one turn of the event loop into one transaction", async () => {
    await using bench = withTable(openBench());
    const before = bench.store.database.writes;
    const values = await Promise.all(
      Array.from({ length: 64 }, (_, n) => bench.store.database.write(insert(bench, n))),
    );
    expect(values).toEqual(Array.from({ length: 64 }, (_, n) => n));
    expect(bench.store.database.writes - before).toBe(1);
    expect(stored(bench)).toEqual(values);
  });

  test("takes at most 256 writes into one transaction", async () => {
    await using bench = withTable(openBench());
    const before = bench.store.database.writes;
    await Promise.all(
      Array.from({ length: 257 }, (_, n) => bench.store.database.write(insert(bench, n))),
    );
    expect(bench.store.database.writes - before).toBe(2);
    expect(stored(bench)).toHaveLength(257);
  });

  test("shows nothing before the commit, to itself or to others", async () => {
    await using bench = withTable(openBench());
    const seen: number[][] = [];
    const writing = bench.store.database.write(insert(bench, 1));
    const own = bench.store.database.query<{ n: number }>("SELECT n FROM probe").all();
    seen.push(
      own.map(({ n }) => n),
      stored(bench),
    );
    await Promise.resolve();
    seen.push(stored(bench));
    await writing;
    seen.push(stored(bench));
    expect(seen).toEqual([[], [], [], [1]]);
  });

  test("runs writes and effects in the order asked, each effect once and after the commit", async () => {
    await using bench = withTable(openBench());
    const order: string[] = [];
    const write = (n: number): Promise<number> =>
      bench.store.database.write(
        () => {
          order.push(`run ${n}`);
          return insert(bench, n)();
        },
        (value) => order.push(`effect ${value} of ${stored(bench).length}`),
      );
    const both = Promise.all([write(1), write(2)]).then(() => order.push("resolved"));
    expect(order).toEqual([]);
    await both;
    expect(order).toEqual(["run 1", "run 2", "effect 1 of 2", "effect 2 of 2", "resolved"]);
  });

  test("lets a failing write fail alone, and leaves nothing of it", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const bug = (): never => {
      insert(bench, 10)();
      throw new TypeError("a bug");
    };
    const constraint = (): void => {
      insert(bench, 11)();
      insert(bench, 1)();
    };
    const effects: number[] = [];
    const note = (n: number) => (): void => void effects.push(n);
    const [first, failedBug, second, failedConstraint, third] = await Promise.allSettled([
      database.write(insert(bench, 1), note(1)),
      database.write(bug, note(10)),
      database.write(insert(bench, 2), note(2)),
      database.write(constraint, note(11)),
      database.write(insert(bench, 3), note(3)),
    ]);
    expect([first.status, second.status, third.status]).toEqual(Array(3).fill("fulfilled"));
    for (const failed of [failedBug, failedConstraint]) {
      expect(failed).toMatchObject({ status: "rejected", reason: { code: "storage_unavailable" } });
    }
    expect(stored(bench)).toEqual([1, 2, 3]);
    expect(effects).toEqual([1, 2, 3]);
    expect(bench.logged.map(({ message }) => message)).toEqual(Array(2).fill("A write failed"));
  });

  test("passes a Problem on as it is, without a word in the log", async () => {
    await using bench = withTable(openBench());
    const problem = new Problem("operation_conflict");
    const refused = bench.store.database.write(() => {
      insert(bench, 1)();
      throw problem;
    });
    expect(await refusal(refused)).toBe(problem);
    expect(stored(bench)).toEqual([]);
    expect(bench.logged).toEqual([]);
  });

  test("gives the neighbours another transaction when a full disk ends theirs", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const pages = database.query<{ page_count: number }>("PRAGMA page_count").get()!.page_count;
    database.execute(`PRAGMA max_page_count = ${pages + 20}`);
    const results = await Promise.allSettled([
      database.write(insert(bench, 1)),
      database.write(insert(bench, 2, 1_000_000)),
      database.write(insert(bench, 3)),
      database.write(insert(bench, 4, 1_000_000)),
      database.write(insert(bench, 5)),
    ]);
    expect(results.map(({ status }) => status)).toEqual([
      "fulfilled",
      "rejected",
      "fulfilled",
      "rejected",
      "fulfilled",
    ]);
    expect(results[1]).toMatchObject({
      reason: { code: "storage_unavailable", status: 503, cause: { code: "SQLITE_FULL" } },
    });
    expect(stored(bench)).toEqual([1, 3, 5]);
  });

  test("rejects every write of a commit that fails, and leaves nothing", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const effects: string[] = [];
    const broken = (): void => {
      // The reference is checked at the commit alone.
      database.execute("PRAGMA defer_foreign_keys = ON");
      database.execute("INSERT INTO child (n) VALUES (99)");
    };
    const results = await Promise.allSettled([
      database.write(insert(bench, 1), () => effects.push("first")),
      database.write(broken, () => effects.push("second")),
    ]);
    for (const result of results) {
      expect(result).toMatchObject({ status: "rejected", reason: { code: "storage_unavailable" } });
    }
    expect(stored(bench)).toEqual([]);
    expect(effects).toEqual([]);
    expect(await database.write(insert(bench, 2))).toBe(2);
    expect(stored(bench)).toEqual([2]);
  });

  test("keeps the commit when its effect throws, and says so", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const effects: number[] = [];
    const [one, two] = await Promise.all([
      database.write(insert(bench, 1), () => {
        throw new Error("an effect with a bug");
      }),
      database.write(insert(bench, 2), (n) => effects.push(n)),
    ]);
    expect([one, two]).toEqual([1, 2]);
    expect(effects).toEqual([2]);
    expect(stored(bench)).toEqual([1, 2]);
    expect(bench.logged.map(({ message }) => message)).toEqual(["The effect of a commit failed"]);
  });

  test("refuses a write that is not synchronous", async () => {
    await using bench = withTable(openBench());
    const waiting = bench.store.database.write(() => {
      insert(bench, 1)();
      return Promise.resolve();
    });
    expect((await refusal(waiting)).code).toBe("storage_unavailable");
    expect(stored(bench)).toEqual([]);
  });

  test("commits what an effect asks for in the next transaction", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const later = Promise.withResolvers<number>();
    await database.write(insert(bench, 1), () => {
      database.write(insert(bench, 2)).then(later.resolve, later.reject);
    });
    expect(await later.promise).toBe(2);
    expect(stored(bench)).toEqual([1, 2]);
  });

  test("commits what is queued at a close, and takes nothing after it", async () => {
    await using bench = withTable(openBench());
    const { store } = bench;
    const queued = store.database.write(insert(bench, 1));
    await store.close();
    expect(await queued).toBe(1);
    expect((await refusal(store.database.write(() => 1))).code).toBe("storage_unavailable");
    expect(stored(bench)).toEqual([1]);
  });

  test("waits for another program's lock no longer than it may, and answers 503", async () => {
    await using bench = withTable(openBench());
    bench.store.database.execute("PRAGMA busy_timeout = 20");
    using other = new Sqlite(join(bench.home, "albedo.db"));
    other.run("BEGIN IMMEDIATE");
    expect((await refusal(bench.store.database.write(insert(bench, 1)))).status).toBe(503);
    other.run("ROLLBACK");
    expect(await bench.store.database.write(insert(bench, 2))).toBe(2);
    expect(stored(bench)).toEqual([2]);
  });
});

describe("Database.transaction", () => {
  test("leaves nothing of a run that throws", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    expect(() =>
      database.transaction(() => {
        insert(bench, 1)();
        throw new RangeError("a bug");
      }),
    ).toThrow(RangeError);
    expect(database.transaction(insert(bench, 2))).toBe(2);
    expect(stored(bench)).toEqual([2]);
  });

  test("cannot be begun inside of a write", async () => {
    await using bench = withTable(openBench());
    const { database } = bench.store;
    const nested = database.write(() => database.transaction(insert(bench, 1)));
    expect((await refusal(nested)).code).toBe("storage_unavailable");
    expect(stored(bench)).toEqual([]);
  });
});

describe("Database.query", () => {
  const count = (bench: Bench): number =>
    bench.store.database.query<{ n: number }>("SELECT count(*) AS n FROM probe").get()?.n ?? -1;

  /** A row of another program's. */
  function insertAside(bench: Bench, n: number): void {
    using other = new Sqlite(join(bench.home, "albedo.db"), { readwrite: true, create: false });
    other.run("INSERT INTO probe (n) VALUES (?1)", [n]);
  }

  test("reads the same rows for one turn of the event loop, and the newest in the next", async () => {
    await using bench = withTable(openBench());
    expect(count(bench)).toBe(0);
    insertAside(bench, 1);
    expect(count(bench)).toBe(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect(count(bench)).toBe(1);
  });

  test("holds up no write that was asked for in the same turn, and then sees it", async () => {
    await using bench = withTable(openBench());
    expect(count(bench)).toBe(0);
    insertAside(bench, 1);
    let seen = -1;
    await bench.store.database.write(insert(bench, 2), () => {
      seen = count(bench);
    });
    expect(seen).toBe(2);
    expect(count(bench)).toBe(2);
  });

  test("leaves no transaction behind that would keep the log from being brought in", async () => {
    await using bench = withTable(openBench());
    await bench.store.database.write(insert(bench, 1));
    expect(count(bench)).toBe(1);
    await new Promise((resolve) => setImmediate(resolve));
    using other = new Sqlite(join(bench.home, "albedo.db"), { readwrite: true, create: false });
    expect(other.query("PRAGMA wal_checkpoint(TRUNCATE)").get()).toMatchObject({ busy: 0, log: 0 });
  });
});
