import { Database } from "../../src/store/database.ts";

/** The whole daemon, but each write has a commit of its own: what group commit is compared with. */
const { write } = Database.prototype as {
  write: (this: Database, ...job: Job) => Promise<unknown>;
};
type Job = [run: () => unknown, effect?: (value: unknown) => void];

Object.assign(Database.prototype, {
  write(this: Database, ...job: Job): Promise<unknown> {
    const promise = write.apply(this, job);
    this.flush();
    return promise;
  },
});

await import("../../src/main.ts");
