import { atEnd, temporaryDirectory } from "./paths.ts";

/** Owns the processes that a bench starts: each ends with the bench, whatever happens. */
export interface Child {
  readonly pid: number;
  readonly exited: Promise<number>;
  signal(name: NodeJS.Signals): void;
  /** What it has written so far. */
  output(): Promise<string>;
}

const running = new Set<number>();

export function spawnChild(
  command: readonly string[],
  options: { readonly env?: Record<string, string>; readonly cwd?: string } = {},
): Child {
  const log = `${temporaryDirectory()}/output`;
  const child = Bun.spawn([...command], {
    cwd: options.cwd ?? temporaryDirectory(),
    env: { ...cleanEnvironment(), ...options.env },
    stdin: "ignore",
    stdout: Bun.file(log),
    stderr: Bun.file(`${log}.err`),
  });
  running.add(child.pid);
  void child.exited.then(() => running.delete(child.pid));
  return {
    pid: child.pid,
    exited: child.exited,
    signal: (name) => child.kill(name),
    output: async () =>
      `${await Bun.file(log)
        .text()
        .catch(() => "")}${await Bun.file(`${log}.err`)
        .text()
        .catch(() => "")}`,
  };
}

/** Starts a helper of ours that prints its port as the first line. */
export async function spawnHelper(
  script: string,
  args: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<{ readonly child: Child; readonly port: number }> {
  const child = spawnChild([process.execPath, `${import.meta.dir}/${script}`, ...args], { env });
  for (let tries = 0; tries < 1000; tries += 1) {
    const line = (await child.output()).split("\n")[0] ?? "";
    if (/^\d+$/.test(line)) return { child, port: Number(line) };
    await Bun.sleep(5);
  }
  throw new Error(`The helper '${script}' did not start:\n${await child.output()}`);
}

/** The variables of this process without those that would change a daemon. */
function cleanEnvironment(): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && !name.startsWith("ALBEDO_")) env[name] = value;
  }
  return env;
}

atEnd(() => {
  for (const pid of running) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  }
});
