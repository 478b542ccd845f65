import { describe, expect, test } from "bun:test";
import { CliError, EXIT } from "../../src/cli/exit.ts";
import { chooseRoot, distinctLength, resolveSessionId } from "../../src/cli/id_resolution.ts";
import type { Candidate } from "../../src/cli/id_resolution.ts";

/** Goal: "Full lowercase UUIDv7 IDs address roots and children directly. Shortened IDs match only root sessions." */
const ROOT_A = "0198c1d2-0000-7000-8000-00000000000a";
const ROOT_B = "0198c1d2-0000-7000-8000-00000000000b";
const ROOT_C = "0298c1d2-0000-7000-8000-00000000000c";
const CHILD = "0398c1d2-0000-7000-8000-00000000000d";
const SESSIONS: readonly Candidate[] = [
  { id: ROOT_A, title: "first", parent_id: null },
  { id: ROOT_B, title: null, parent_id: null },
  { id: ROOT_C, title: "third", parent_id: null },
  { id: CHILD, title: "child", parent_id: ROOT_A },
];

function lookup(sessions: readonly Candidate[] = SESSIONS) {
  const asked: string[] = [];
  return {
    asked,
    exists: (id: string) => {
      asked.push(id);
      return Promise.resolve(sessions.some((session) => session.id === id));
    },
    async *list() {
      asked.push("list");
      yield* sessions;
    },
  };
}

async function failure(text: string): Promise<CliError> {
  const error = await resolveSessionId(text, lookup()).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof CliError)) throw new Error(`'${text}' was resolved`);
  return error;
}

describe("resolveSessionId", () => {
  test("takes a full id of a root or a child directly, without the list", async () => {
    for (const id of [ROOT_A, CHILD]) {
      const sessions = lookup();
      expect(await resolveSessionId(id, sessions)).toBe(id);
      expect(sessions.asked).toEqual([id]);
    }
  });

  test("takes a shortened id of a root that no other root shares", async () => {
    expect(await resolveSessionId("02", lookup())).toBe(ROOT_C);
    expect(await resolveSessionId(ROOT_A.slice(0, -1) + "a", lookup())).toBe(ROOT_A);
  });

  test("does not shorten a child's id", async () => {
    expect((await failure("03")).message).toBe("No session matches '03'");
    expect((await failure(CHILD.slice(0, -1))).message).toContain("No session matches");
  });

  test("lists the candidates of an ambiguous id", async () => {
    const error = await failure("0198");
    expect(error.message).toBe("'0198' matches 2 sessions");
    expect(error.hints.join("\n")).toContain(ROOT_A);
    expect(error.hints.join("\n")).toContain(ROOT_B);
    expect(error.hints.join("\n")).not.toContain(ROOT_C);
    expect(error.exitCode).toBe(EXIT.failed);
  });

  test("gives the same error for a missing full id as for a missing prefix", async () => {
    const missing = "0998c1d2-0000-7000-8000-00000000000a";
    const full = await failure(missing);
    const short = await failure("09");
    expect(full.message.replace(missing, "X")).toBe(short.message.replace("09", "X"));
    expect(full.hints).toEqual(short.hints);
    expect(full.exitCode).toBe(short.exitCode);
  });

  test("takes neither an upper case id nor nothing for an id", async () => {
    expect((await failure(ROOT_A.toUpperCase())).message).toContain("No session matches");
    expect((await failure("")).message).toContain("No session matches");
  });
});

describe("chooseRoot", () => {
  test("prefers an exact match to prefixes", () => {
    const roots = ["ab", "abc", "abcd"].map((id) => ({ id, title: null, parent_id: null }));
    expect(chooseRoot("ab", roots)).toBe("ab");
    expect(chooseRoot("abcd", roots)).toBe("abcd");
  });

  test("names ten candidates at most and says how many more there are", () => {
    const roots = Array.from({ length: 13 }, (_, index) => ({
      id: `a${index}`,
      title: null,
      parent_id: null,
    }));
    try {
      chooseRoot("a", roots);
      expect.unreachable();
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      expect(error.hints).toHaveLength(11);
      expect(error.hints.at(-1)).toContain("3 more");
    }
  });
});

describe("distinctLength", () => {
  test("is long enough to tell all ids apart, and never shorter than the minimum", () => {
    expect(distinctLength([])).toBe(8);
    expect(distinctLength([ROOT_A])).toBe(8);
    expect(distinctLength([ROOT_A, ROOT_C])).toBe(8);
    expect(distinctLength([ROOT_A, ROOT_C, ROOT_B])).toBe(36);
  });
});
