import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  creationFingerprint,
  sha256Hex,
  submissionFingerprint,
} from "../../src/store/fingerprint.ts";
import {
  fromCreation,
  fromEvents,
  fromInputs,
  type CreationBody,
  type EventsSubmission,
  type InputsSubmission,
} from "../../src/wire/submission.ts";

/*
 * "Both doors parse into one normalized submission, so the same action has the same fingerprint through either"
 * (contract.md, One admission, two doors). "Key order, omitted defaults, `clientId` and authentication never change
 * it; text, image bytes, skill arguments and an explicit `submissionId` do." (contract.md, Admission and receipts)
 */
const SESSION = "01970000-0000-7000-8000-000000000001";
const OPERATION = "01970000-0000-7000-8000-000000000002";
const OWNER = "01970000-0000-7000-8000-000000000003";

type WithoutId<T> = T extends unknown ? Omit<T, "operationId"> : never;

function events(body: WithoutId<EventsSubmission>, images: string[] = []): string {
  const parsed = { operationId: OPERATION, ...body } as EventsSubmission;
  return submissionFingerprint(fromEvents(SESSION, parsed), images);
}

function inputs(body: InputsSubmission, images: string[] = []): string {
  return submissionFingerprint(fromInputs(SESSION, OPERATION, body), images);
}

function create(body: Omit<CreationBody, "operationId">): string {
  return creationFingerprint(fromCreation({ operationId: OPERATION, ...body }));
}

describe("submissionFingerprint()", () => {
  test("is the same for the same action through either door", () => {
    const hash = sha256Hex("image");
    const message = { text: "hi", images: [{ mimeType: "image/png", data: "aW1hZ2U=" }] };
    const other = { text: "hi", images: [{ mime_type: "x/y", data: "aW1hZ2U=" }] };
    expect(events({ type: "user", ...message }, [hash])).toBe(
      inputs({ kind: "message", ...other }, [hash]),
    );
    expect(events({ type: "continue" })).toBe(inputs({ kind: "continuation" }));
    const skill = { name: "review", arguments: "a b" };
    expect(events({ type: "skill", ...skill })).toBe(inputs({ kind: "skill", ...skill }));
  });

  test("does not see omitted defaults or the echo", () => {
    const plain = events({ text: "hi" });
    expect(events({ type: "user", text: "hi", images: [] })).toBe(plain);
    expect(events({ text: "hi", clientId: "echo" })).toBe(plain);
    expect(events({ text: "hi", submissionId: OPERATION })).toBe(plain);
    expect(inputs({ kind: "message", text: "hi", submission_id: OPERATION })).toBe(plain);
    expect(inputs({ kind: "skill", name: "x", arguments: "" })).toBe(
      inputs({ kind: "skill", name: "x" }),
    );
  });

  test("sees everything else", () => {
    const all = [
      events({ text: "hi" }),
      events({ text: "hi " }),
      events({ text: "" }, [sha256Hex("a")]),
      events({ text: "" }, [sha256Hex("b")]),
      events({ text: "" }, [sha256Hex("a"), sha256Hex("b")]),
      events({ text: "" }, [sha256Hex("b"), sha256Hex("a")]),
      events({ text: "hi", submissionId: OWNER }),
      events({ type: "continue" }),
      events({ type: "continue", submissionId: OWNER }),
      inputs({ kind: "skill", name: "x" }),
      inputs({ kind: "skill", name: "y" }),
      inputs({ kind: "skill", name: "x", arguments: "a" }),
      inputs({ kind: "command", name: "x" }),
      submissionFingerprint(fromInputs(OWNER, OPERATION, { kind: "message", text: "hi" }), []),
    ];
    expect(new Set(all).size).toBe(all.length);
  });

  test("takes a lone surrogate for what is stored of it", () => {
    expect(events({ text: "a\ud800b" })).toBe(events({ text: "a\ufffdb" }));
  });

  test("never changes: receipts of an older daemon still replay", () => {
    expect(events({ text: "hi" })).toBe(
      sha256Hex(
        `{"fields":{"images":[],"text":"hi"},"kind":"message","target":"${SESSION}","version":1}`,
      ),
    );
    expect(events({ type: "continue", submissionId: OWNER })).toBe(
      sha256Hex(
        `{"fields":{"submissionId":"${OWNER}"},"kind":"continue","target":"${SESSION}","version":1}`,
      ),
    );
  });

  test("differs for any two texts that differ", () => {
    const text = fc.string({ unit: "binary", maxLength: 20 });
    fc.assert(
      fc.property(text, text, (a, b) => {
        const same = a.toWellFormed() === b.toWellFormed();
        expect(events({ text: a }) === events({ text: b })).toBe(same);
      }),
    );
  });
});

describe("creationFingerprint()", () => {
  test("does not see omitted defaults or key order", () => {
    const plain = create({});
    expect(create({ parent_id: null, settings: {} })).toBe(plain);
    const one = create({ settings: { thinking: "low", max_output_tokens: 5 }, title: "a" });
    expect(create({ title: "a", settings: { max_output_tokens: 5, thinking: "low" } })).toBe(one);
    expect(plain).toBe(
      sha256Hex(`{"fields":{},"kind":"session_create","target":null,"version":1}`),
    );
  });

  test("sees every field", () => {
    const all = [
      create({}),
      create({ title: "" }),
      create({ title: "a" }),
      create({ workspace: "/a" }),
      create({ workspace: "/b" }),
      create({ model: "a/b" }),
      create({ parent_id: SESSION }),
      create({ settings: { thinking: "low" } }),
      create({ settings: { instructions: "low" } }),
    ];
    expect(new Set(all).size).toBe(all.length);
  });

  test("takes a lone surrogate in the settings for what is stored of it", () => {
    expect(create({ settings: { instructions: "\udc00" } })).toBe(
      create({ settings: { instructions: "\ufffd" } }),
    );
  });
});
