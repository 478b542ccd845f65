/**
 * The executable: picks a verb, nothing else. What a verb needs is loaded when it is picked; the two that are
 * started most, the daemon and `version`, do not wait for the parser of command lines.
 */
function main(argv: readonly string[]): Promise<void> {
  const args = argv.slice(2);
  const [verb] = args;
  if (args.length === 1 && verb === "daemon") return runDaemonVerb();
  if (args.length === 1 && (verb === "version" || verb === "--version")) return printVersion();
  return runAnyVerb(argv);
}

async function runDaemonVerb(): Promise<void> {
  const { runDaemon } = await import("./cli/daemon.ts");
  process.exit(await runDaemon({ port: null }));
}

async function printVersion(): Promise<void> {
  const { version } = await import("./cli/version.ts");
  version();
}

async function runAnyVerb(argv: readonly string[]): Promise<void> {
  const { runProgram } = await import("./cli/program.ts");
  await runProgram(argv);
}

void main(process.argv);
