import { expect, test } from "bun:test";
import fc from "fast-check";
import { BodyBudget } from "../../src/http/body_budget.ts";
import { settle } from "../support/fake_clock.ts";

test("BodyBudget never grants more than its total, grants in order, and grants everything in the end", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 150 }), { minLength: 1, maxLength: 20 }),
      fc.infiniteStream(fc.nat()),
      async (sizes, choices) => {
        const total = 100;
        const budget = new BodyBudget(total);
        const held: { readonly index: number; readonly grant: Disposable }[] = [];
        const order: number[] = [];
        for (const [index, size] of sizes.entries()) {
          void budget.acquire(size).then((grant) => {
            order.push(index);
            held.push({ index, grant });
          });
        }
        await settle(1);
        while (held.length > 0) {
          const sum = held.reduce(
            (bytes, { index }) => bytes + Math.min(sizes[index] ?? 0, total),
            0,
          );
          expect(sum).toBeLessThanOrEqual(total);
          const [given] = held.splice((choices.next().value ?? 0) % held.length, 1);
          given?.grant[Symbol.dispose]();
          await settle(1);
        }
        expect(order).toEqual(sizes.map((_size, index) => index));
      },
    ),
    { numRuns: 50 },
  );
});
