import { afterEach, expect, test } from "bun:test";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { createIds } from "../../src/base/ids.ts";
import {
  SPILL_PAGE_BYTES_MAX,
  SPILL_REFERENCE_MS,
  SPILL_WRITE_BYTES,
} from "../../src/base/limits.ts";
import { silentLog } from "../../src/base/log.ts";
import { Spill, type SpillLimits } from "../../src/session/spill.ts";
import type { ContentReference } from "../../src/wire/event.ts";
import { Problem } from "../../src/wire/problem.ts";
import { FakeClock } from "../support/fake_clock.ts";
import { type TempDir, tempDir } from "../support/temp_dir.ts";

/**
 * Goal: the rules of sessions.md, "Stream failures and recovery", on spilled output. Method: real files in a
 * private folder, a clock that stands still.
 */
const directories: TempDir[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) directory[Symbol.dispose]();
});

const SESSION = "01890a5d-ac96-774b-bcce-b302099a8057";

function bench(
  options: { home?: string; instanceId?: string; limits?: Partial<SpillLimits> } = {},
) {
  let { home } = options;
  if (home === undefined) {
    const directory = tempDir();
    directories.push(directory);
    home = directory.path;
  }
  const clock = new FakeClock();
  let seed = 0;
  const random = (bytes: Uint8Array) => void bytes.fill((seed += 1));
  const instanceId = options.instanceId ?? "instance-a";
  const spill = new Spill({
    home,
    instanceId,
    clock,
    ids: createIds(clock, random),
    random,
    log: silentLog,
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  });
  return { home, clock, spill, directory: join(home, "spill", instanceId) };
}

function captured(reference: ContentReference | null | undefined): ContentReference {
  if (reference == null) throw new Error("Expected a reference");
  return reference;
}

async function readAll(spill: Spill, reference: ContentReference): Promise<string> {
  let text = "";
  for (let next: string | null = null; ;) {
    const page = await spill.page(SESSION, reference.content_id, {
      snapshot: reference.snapshot,
      next,
    });
    expect(Buffer.byteLength(page.text)).toBeLessThanOrEqual(SPILL_PAGE_BYTES_MAX);
    text += page.text;
    next = page.next;
    if (next === null) return text;
  }
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "none";
  } catch (error) {
    if (error instanceof Problem) return error.code;
    throw error;
  }
}

test("Spill buffers writes of 16 KiB and flushes them at capture", () => {
  const { spill, directory } = bench();
  const content = spill.run(SESSION).open();
  content?.append("x".repeat(SPILL_WRITE_BYTES - 1));
  const path = () => join(directory, SESSION, readdirSync(join(directory, SESSION))[0] ?? "none");
  expect(readdirSync(join(directory, SESSION))).toEqual([]);
  content?.append("y");
  expect(statSync(path()).size).toBe(SPILL_WRITE_BYTES);
  content?.append("z");
  expect(statSync(path()).size).toBe(SPILL_WRITE_BYTES);
  expect(content?.capture()?.bytes).toBe(SPILL_WRITE_BYTES + 1);
  expect(statSync(path()).size).toBe(SPILL_WRITE_BYTES + 1);
});

test("Spill makes directories 0700 and files 0600", () => {
  const { spill, home, directory } = bench();
  const content = spill.run(SESSION).open();
  content?.append("x");
  const reference = captured(content?.capture());
  const mode = (path: string) => statSync(path).mode & 0o777;
  expect(mode(join(home, "spill"))).toBe(0o700);
  expect(mode(directory)).toBe(0o700);
  expect(mode(join(directory, SESSION))).toBe(0o700);
  expect(mode(join(directory, SESSION, reference.content_id))).toBe(0o600);
});

test("A reference fixes its cutoff: later deltas do not extend it", async () => {
  const { spill } = bench();
  const content = spill.run(SESSION).open();
  content?.append("before");
  const reference = captured(content?.capture());
  content?.append(" after");
  const later = captured(content?.capture());
  expect(await readAll(spill, reference)).toBe("before");
  expect(await readAll(spill, later)).toBe("before after");
});

test("Pages are at most 64 KiB, cut between characters, with `next` until the cutoff", async () => {
  const { spill } = bench();
  const content = spill.run(SESSION).open();
  const text = `a${"漢字😀".repeat(30_000)}`;
  content?.append(text);
  const reference = captured(content?.capture());
  expect(reference.bytes).toBe(Buffer.byteLength(text));
  expect(await readAll(spill, reference)).toBe(text);
});

test("property: pages put together are what was appended up to the capture", async () => {
  const { spill } = bench();
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          text: fc.string({ unit: fc.constantFrom("a", "é", "漢", "😀") }),
          times: fc.integer({ min: 1, max: 8000 }),
          capture: fc.boolean(),
        }),
        { minLength: 1, maxLength: 12 },
      ),
      async (pieces) => {
        const run = spill.run(SESSION);
        const content = run.open();
        let whole = "";
        const captures: [ContentReference, string][] = [];
        for (const piece of pieces) {
          const text = piece.text.repeat(piece.times);
          content?.append(text);
          whole += text;
          if (piece.capture && whole !== "") captures.push([captured(content?.capture()), whole]);
        }
        run.retire();
        for (const [reference, text] of captures)
          expect(await readAll(spill, reference)).toBe(text);
        spill.revoke(SESSION);
      },
    ),
    { numRuns: 40 },
  );
  expect(spill.bytes).toBe(0);
});

test("A reference lives 15 minutes, across commit and retry, then answers 410 and its file goes", async () => {
  const { spill, clock, directory } = bench();
  const run = spill.run(SESSION);
  const content = run.open();
  content?.append("kept");
  const reference = captured(content?.capture());
  expect(reference.expires_at).toBe(clock.now() + SPILL_REFERENCE_MS);
  run.retire();
  await clock.advance(SPILL_REFERENCE_MS - 1);
  expect(spill.sweep()).toBe(0);
  expect(await readAll(spill, reference)).toBe("kept");
  await clock.advance(1);
  expect(await codeOf(readAll(spill, reference))).toBe("active_output_expired");
  expect(spill.sweep()).toBe(1);
  expect(existsSync(join(directory, SESSION))).toBe(false);
  expect(await codeOf(readAll(spill, reference))).toBe("active_output_expired");
  expect([spill.fileCount, spill.bytes]).toEqual([0, 0]);
});

test("A file without a reference goes when its run is over; one that still grows is never swept", async () => {
  const { spill, clock } = bench();
  const run = spill.run(SESSION);
  run.open()?.append("x");
  await clock.advance(2 * SPILL_REFERENCE_MS);
  expect(spill.sweep()).toBe(0);
  run.retire();
  expect(spill.fileCount).toBe(0);
});

test("revoke() takes a session's references away and leaves another's", async () => {
  const { spill } = bench();
  const [mine, other] = [spill.run(SESSION).open(), spill.run("other").open()];
  mine?.append("x");
  other?.append("y");
  const reference = captured(mine?.capture());
  spill.revoke(SESSION);
  expect(await codeOf(readAll(spill, reference))).toBe("active_output_expired");
  expect(spill.fileCount).toBe(1);
  expect(other?.capture()?.bytes).toBe(1);
});

test("Spill holds its bounds: bytes a run, bytes together, files", () => {
  const limits = { runBytesMax: 10, totalBytesMax: 15, filesMax: 3 };
  const { spill } = bench({ limits });
  const first = spill.run(SESSION);
  const a = first.open();
  expect(a?.append("0123456789")).toBe(true);
  expect(a?.append("x")).toBe(false);
  expect(a?.capture()).toBeNull();
  const second = spill.run(SESSION);
  const b = second.open();
  expect(b?.append("01234")).toBe(true);
  expect(b?.append("5")).toBe(false);
  expect(spill.bytes).toBe(15);
  expect(second.open()).not.toBeNull();
  expect(second.open()).toBeNull();
  first.retire();
  expect(second.open()).not.toBeNull();
});

test("What was captured before a run's bound was hit stays readable", async () => {
  const { spill } = bench({ limits: { runBytesMax: 10 } });
  const content = spill.run(SESSION).open();
  content?.append("01234");
  const reference = captured(content?.capture());
  expect(content?.append("0123456789")).toBe(false);
  expect(await readAll(spill, reference)).toBe("01234");
});

test("At a bound, expired files make room", async () => {
  const { spill, clock } = bench({ limits: { totalBytesMax: 10 } });
  const run = spill.run(SESSION);
  const content = run.open();
  content?.append("0123456789");
  content?.capture();
  run.retire();
  expect(spill.run(SESSION).open()?.append("x")).toBe(false);
  await clock.advance(SPILL_REFERENCE_MS);
  expect(spill.run(SESSION).open()?.append("x")).toBe(true);
});

test("removeOrphans() removes what other instances left, and nothing of its own", () => {
  const { spill, home, directory } = bench();
  const orphan = join(home, "spill", "instance-dead", SESSION);
  mkdirSync(orphan, { recursive: true });
  writeFileSync(join(orphan, "content"), "x");
  spill.run(SESSION).open()?.append("y".repeat(SPILL_WRITE_BYTES));
  spill.removeOrphans();
  expect(readdirSync(join(home, "spill"))).toEqual(["instance-a"]);
  expect(readdirSync(join(directory, SESSION)).length).toBe(1);
});

test("close() removes the instance's files", () => {
  const { spill, home } = bench();
  spill.run(SESSION).open()?.append("y".repeat(SPILL_WRITE_BYTES));
  spill.close();
  expect(readdirSync(join(home, "spill"))).toEqual([]);
});

test("A snapshot is good for its own content, session and instance only", async () => {
  const { spill, home } = bench();
  const run = spill.run(SESSION);
  const [a, b] = [run.open(), run.open()];
  a?.append("aaaa");
  b?.append("bbbb");
  const [first, second] = [captured(a?.capture()), captured(b?.capture())];
  const page = (contentId: string, snapshot: string, next: string | null = null, by = spill) =>
    codeOf(by.page(SESSION, contentId, { snapshot, next }));
  expect(await page(first.content_id, first.snapshot)).toBe("none");
  expect(await page(first.content_id, second.snapshot)).toBe("active_output_not_found");
  expect(await page(first.content_id, first.snapshot.replace(/\.4\./, ".9."))).toBe(
    "active_output_not_found",
  );
  expect(await page(first.content_id, "nonsense")).toBe("invalid_request");
  for (const next of ["4", "-1", "1.5", "", "x", "99999999999999999999"]) {
    expect(await page(first.content_id, first.snapshot, next)).toBe("invalid_request");
  }
  const { spill: successor } = bench({ home, instanceId: "instance-b" });
  expect(await page(first.content_id, first.snapshot, null, successor)).toBe(
    "active_output_expired",
  );
  expect(
    await codeOf(spill.page("other", first.content_id, { snapshot: first.snapshot, next: null })),
  ).toBe("active_output_not_found");
});

test("A `next` inside of a character is refused", async () => {
  const { spill } = bench();
  const content = spill.run(SESSION).open();
  content?.append("漢字");
  const { content_id, snapshot } = captured(content?.capture());
  expect(await codeOf(spill.page(SESSION, content_id, { snapshot, next: "1" }))).toBe(
    "invalid_request",
  );
});

/** What a person or another program may do to the directory while output is spilled. */
const DAMAGES: Record<string, (directory: string) => void> = {
  "directory removed": (directory) => rmSync(directory, { recursive: true }),
  "file removed": (directory) => {
    for (const name of readdirSync(join(directory, SESSION)))
      rmSync(join(directory, SESSION, name));
  },
  "file cut": (directory) => {
    for (const name of readdirSync(join(directory, SESSION))) {
      writeFileSync(join(directory, SESSION, name), "cut");
    }
  },
  "file made a link": (directory) => {
    for (const name of readdirSync(join(directory, SESSION))) {
      const path = join(directory, SESSION, name);
      renameSync(path, join(directory, "elsewhere"));
      symlinkSync(join(directory, "elsewhere"), path);
    }
  },
  "directory made a file": (directory) => {
    rmSync(directory, { recursive: true });
    writeFileSync(directory, "a file");
  },
};

for (const [name, damage] of Object.entries(DAMAGES)) {
  test(`Storage failure (${name}) makes content unavailable, never shorter`, async () => {
    const { spill, directory } = bench();
    const content = spill.run(SESSION).open();
    content?.append("x".repeat(SPILL_WRITE_BYTES));
    const reference = captured(content?.capture());
    damage(directory);
    expect(content?.capture()).toBeNull();
    expect(content?.append("y".repeat(SPILL_WRITE_BYTES))).toBe(false);
    expect(content?.capture()).toBeNull();
    expect(await codeOf(readAll(spill, reference))).toBe("active_output_unavailable");
    spill.sweep();
    spill.close();
  });
}

test("A spill directory that is a file from the start makes every content unavailable", () => {
  const { spill, home } = bench();
  writeFileSync(join(home, "spill"), "a file");
  spill.removeOrphans();
  expect(spill.run(SESSION).open()).toBeNull();
  spill.close();
  expect(readFileSync(join(home, "spill"), "utf8")).toBe("a file");
});

test("A directory that was removed is made again for the next content", () => {
  const { spill, home } = bench();
  spill.run(SESSION).open()?.append("x");
  rmSync(join(home, "spill"), { recursive: true, force: true });
  const content = spill.run(SESSION).open();
  expect(content?.append("x".repeat(SPILL_WRITE_BYTES))).toBe(true);
  expect(content?.capture()?.bytes).toBe(SPILL_WRITE_BYTES);
});
