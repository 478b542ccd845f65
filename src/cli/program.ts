import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { VERSION } from "../base/version.ts";
import { EXIT, usageError } from "./exit.ts";
import { standardStream } from "./output.ts";
import { runVerb } from "./run.ts";
import { version } from "./version.ts";

/**
 * Owns the table of verbs: their names, options, help and examples. What a verb does stands in the file of its
 * name, which is loaded when the verb is run.
 */
export async function runProgram(argv: readonly string[]): Promise<void> {
  const program = createProgram();
  try {
    await program.parseAsync([...argv]);
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Commander has printed what is wrong, or the help that was asked for.
    process.exitCode = error.exitCode === 0 ? EXIT.done : EXIT.usage;
  }
}

const EXIT_CODES = `
Exit codes:
  0    done
  1    failed, or refused
  2    the command line or a setting is wrong
  3    uncertain: whether it happened is not known; see \`albedo operation\`
  124  the time of --timeout ran out
  130  interrupted, by Ctrl-C or by someone else
  141  the reader of stdout went away`;

const ENVIRONMENT = `
Environment:
  ALBEDO_HOME  where the data lies (default: $XDG_DATA_HOME/albedo, else ~/.local/share/albedo)
  ALBEDO_PORT  the daemon's port (default: a free one)
  ALBEDO_LOG   the daemon's log level: debug, info, warn, error
  ALBEDO_ORIGINS         origins of web pages that may use the daemon, separated by commas
  ALBEDO_UNLOAD_SECONDS  when a quiet session leaves the daemon's memory (default: 3600)
  NO_COLOR, FORCE_COLOR`;

export function createProgram(): Command {
  const program = new Command("albedo")
    .description("A local daemon for agent sessions that never loses or doubles what you said")
    .version(`albedo ${VERSION}`, "-V, --version")
    .helpOption("-h, --help", "show help")
    .helpCommand(false)
    .usage("VERB [options]")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => standardStream("stdout").write(text, () => {}),
      writeErr: (text) => standardStream("stderr").write(text, () => {}),
    })
    .showHelpAfterError("`--help` says more")
    .addHelpText("after", EXIT_CODES)
    .addHelpText("after", ENVIRONMENT)
    .addHelpText("after", examples('albedo prompt "What is in this folder?"', "albedo sessions"));
  addDaemon(program);
  addPrompt(program);
  addResume(program);
  addAttach(program);
  addSessions(program);
  addShow(program);
  addCancel(program);
  addInterrupt(program);
  addDelete(program);
  addModels(program);
  addOperation(program);
  addLogs(program);
  addVersion(program);
  addCompletion(program);
  addHelp(program);
  return program;
}

function addDaemon(program: Command): void {
  verb(program, "daemon", "run the daemon in the foreground, or look after the one that runs")
    .option("-p, --port <number>", "the port to listen on (default: a free one)", port)
    .option("--stop", "stop the running daemon in order")
    .option("--status", "say whether one runs; exits 1 where none does")
    .option("--json", "print one JSON object a line")
    .addHelpText(
      "after",
      examples("albedo daemon", "albedo daemon --status", "albedo daemon --stop"),
    )
    .action(async (options: DaemonFlags) => {
      if (options.stop === true || options.status === true) {
        await runVerb(async (context) => {
          if (options.stop === true && options.status === true) {
            throw usageError("'--stop' and '--status' exclude each other");
          }
          if (options.port !== undefined) throw usageError("'--port' goes with a start alone");
          const { daemonStatus, daemonStop } = await import("./daemon_control.ts");
          return options.stop === true
            ? await daemonStop(context, { json: options.json === true })
            : await daemonStatus(context, { json: options.json === true });
        });
        return;
      }
      const { runDaemon } = await import("./daemon.ts");
      process.exit(await runDaemon({ port: options.port ?? null }));
    });
}

interface DaemonFlags {
  readonly port?: number;
  readonly stop?: boolean;
  readonly status?: boolean;
  readonly json?: boolean;
}

interface PromptFlags {
  readonly session?: string;
  readonly new?: boolean;
  readonly model?: string;
  readonly image?: readonly string[];
  readonly timeout?: number;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly continue?: boolean;
}

const PROMPT_JSON = `
With --json:
  \`text\` and \`thinking\` lines are pieces, to be joined until a \`block_end\`. The last line,
  \`result\`, says how it ended and has the whole answer as its \`text\`.`;

function addPrompt(program: Command): void {
  promptOptions(verb(program, "prompt", "send a message and print the answer as it comes"))
    .argument("[text...]", "the message; `-` or nothing at all takes it from stdin")
    .option("-s, --session <id>", "the session to use (default: a new one in this directory)")
    .option("-n, --new", "a new session, which is the default without --session")
    .addHelpText(
      "after",
      examples(
        'albedo prompt "Explain main.ts"',
        'git diff | albedo prompt "Review this" -',
        'albedo prompt -s 0198c1 --image screen.png "What is wrong here?"',
        'albedo prompt --json --timeout 60 "Count to ten" | jq -r "select(.type == \\"result\\").text"',
      ),
    )
    .action(async (words: string[], flags: PromptFlags) => {
      await runPrompt(words, flags, (session) => session);
    });
}

function addResume(program: Command): void {
  promptOptions(verb(program, "resume", "go on with a session; never makes a new one"))
    .argument("<id>", "the session: its full id, or the beginning of a root session's")
    .argument("[text...]", "the message; without one the session is watched, as `attach` does")
    .option("-c, --continue", "let it go on without a new message")
    .addHelpText(
      "after",
      examples(
        'albedo resume 0198c1 "And now the tests"',
        "albedo resume 0198c1 --continue",
        "albedo resume 0198c1",
      ),
    )
    .action(async (id: string, words: string[], flags: PromptFlags) => {
      const watches = words.length === 0 && flags.image === undefined && flags.continue !== true;
      if (!watches) {
        await runPrompt(words, flags, () => id);
        return;
      }
      await runVerb(async (context) => {
        const { attach } = await import("./attach.ts");
        return await attach(context, id, { json: flags.json === true, tail: TAIL_DEFAULT });
      });
    });
}

function promptOptions(command: Command): Command {
  return command
    .option(
      "-m, --model <provider/model>",
      "the model, from here on where the session is there",
      model,
    )
    .option("-i, --image <file>", "an image to send along; can be repeated", collect)
    .option("-t, --timeout <seconds>", "take the message back after so long", seconds)
    .option("--json", "print one JSON object a line")
    .option("-q, --quiet", "no progress on stderr")
    .addHelpText("after", PROMPT_JSON);
}

async function runPrompt(
  words: readonly string[],
  flags: PromptFlags,
  chooseSession: (flag: string | null) => string | null,
): Promise<void> {
  const quiet = { quiet: flags.quiet === true };
  await runVerb(async (context) => {
    if (flags.new === true && flags.session !== undefined) {
      throw usageError("'--new' and '--session' exclude each other");
    }
    if (flags.continue === true && (words.length > 0 || flags.image !== undefined)) {
      throw usageError("'--continue' goes without a message");
    }
    const { prompt } = await import("./prompt.ts");
    return await prompt(context, {
      words,
      continuation: flags.continue === true,
      session: chooseSession(flags.session ?? null),
      model: flags.model ?? null,
      images: flags.image ?? [],
      timeoutSeconds: flags.timeout ?? null,
      json: flags.json === true,
      quiet: flags.quiet === true,
    });
  }, quiet);
}

const TAIL_DEFAULT = 20;

interface AttachFlags {
  readonly tail: number;
  readonly json?: boolean;
}

function addAttach(program: Command): void {
  verb(program, "attach", "watch a session in line form until Ctrl-C")
    .argument("<id>", "the session")
    .option("-t, --tail <rows>", "rows of history to begin with", wholeNumber, TAIL_DEFAULT)
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo attach 0198c1", "albedo attach 0198c1 --tail 0 --json"))
    .action(async (id: string, flags: AttachFlags) => {
      await runVerb(async (context) => {
        const { attach } = await import("./attach.ts");
        return await attach(context, id, { json: flags.json === true, tail: flags.tail });
      });
    });
}

interface SessionsFlags {
  readonly json?: boolean;
  readonly all?: boolean;
  readonly limit: number;
}

function addSessions(program: Command): void {
  verb(program, "sessions", "list sessions, newest activity first; a green dot marks an active one")
    .option("-a, --all", "children too")
    .option("-l, --limit <count>", "how many", count, 50)
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo sessions", "albedo sessions --all --json | jq -r .id"))
    .action(async (flags: SessionsFlags) => {
      await runVerb(async (context) => {
        const { sessions } = await import("./sessions.ts");
        return await sessions(context, {
          json: flags.json === true,
          all: flags.all === true,
          limit: flags.limit,
        });
      });
    });
}

interface ShowFlags {
  readonly json?: boolean;
  readonly all?: boolean;
  readonly tail: number;
}

function addShow(program: Command): void {
  verb(program, "show", "print a session's history")
    .argument("<id>", "the session")
    .option("-t, --tail <rows>", "the newest rows", wholeNumber, 50)
    .addOption(new Option("-a, --all", "all of them").conflicts("tail"))
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo show 0198c1", "albedo show 0198c1 --all --json"))
    .action(async (id: string, flags: ShowFlags) => {
      await runVerb(async (context) => {
        const { show } = await import("./show.ts");
        return await show(context, id, {
          json: flags.json === true,
          rows: flags.all === true ? null : flags.tail,
        });
      });
    });
}

interface JsonFlag {
  readonly json?: boolean;
}

function addCancel(program: Command): void {
  verb(program, "cancel", "cancel one input, and no other work")
    .argument("<id>", "the session")
    .argument("<input>", "the input's full id, which `prompt --json` prints as operation_id")
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo cancel 0198c1 0198c1d2-0000-7000-8000-000000000000"))
    .action(async (id: string, input: string, flags: JsonFlag) => {
      await runVerb(async (context) => {
        const { cancel } = await import("./cancel.ts");
        return await cancel(context, id, input, { json: flags.json === true });
      });
    });
}

function addInterrupt(program: Command): void {
  verb(program, "interrupt", "stop a session's turn and cancel everything that waits in it")
    .argument("<id>", "the session")
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo interrupt 0198c1"))
    .action(async (id: string, flags: JsonFlag) => {
      await runVerb(async (context) => {
        const { interrupt } = await import("./interrupt.ts");
        return await interrupt(context, id, { json: flags.json === true });
      });
    });
}

function addDelete(program: Command): void {
  verb(program, "delete", "delete a session for good")
    .argument("<id>", "the session")
    .option("-r, --recursive", "its children too")
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo delete 0198c1", "albedo delete 0198c1 --recursive"))
    .action(async (id: string, flags: JsonFlag & { readonly recursive?: boolean }) => {
      await runVerb(async (context) => {
        const { deleteSession } = await import("./delete.ts");
        return await deleteSession(context, id, {
          recursive: flags.recursive === true,
          json: flags.json === true,
        });
      });
    });
}

function addModels(program: Command): void {
  verb(program, "models", "list the models that can be chosen")
    .option("--json", "print one JSON object a line")
    .addHelpText("after", examples("albedo models", "albedo models --json | jq -r .id"))
    .action(async (flags: JsonFlag) => {
      await runVerb(async (context) => {
        const { models } = await import("./models.ts");
        return await models(context, { json: flags.json === true });
      });
    });
}

function addOperation(program: Command): void {
  verb(program, "operation", "say what became of an operation, or of all that are unresolved")
    .argument("[id]", "the operation's full id; without it those whose outcome is not known")
    .option("--retry", "send the same request again under the same id; it happens once")
    .option("--forget", "let go of what is kept of it here")
    .option("--json", "print one JSON object a line")
    .addHelpText(
      "after",
      examples("albedo operation", "albedo operation 0198c1d2-0000-7000-8000-000000000000 --retry"),
    )
    .action(async (id: string | undefined, flags: OperationFlags) => {
      await runVerb(async (context) => {
        const { operation } = await import("./operation.ts");
        return await operation(context, id ?? null, {
          json: flags.json === true,
          retry: flags.retry === true,
          forget: flags.forget === true,
        });
      });
    });
}

interface OperationFlags extends JsonFlag {
  readonly retry?: boolean;
  readonly forget?: boolean;
}

interface LogsFlags extends JsonFlag {
  readonly follow?: boolean;
  readonly lines: number;
}

function addLogs(program: Command): void {
  verb(program, "logs", "print the end of the daemon's log")
    .option("-f, --follow", "go on with what is added, until Ctrl-C")
    .option("-l, --lines <count>", "how many lines", wholeNumber, 50)
    .option("--json", "print the lines as they are, one JSON object each")
    .addHelpText("after", examples("albedo logs", "albedo logs -f", "albedo logs --json -l 1000"))
    .action(async (flags: LogsFlags) => {
      await runVerb(async (context) => {
        const { logs } = await import("./logs.ts");
        return await logs(context, {
          follow: flags.follow === true,
          lines: flags.lines,
          json: flags.json === true,
        });
      });
    });
}

function addVersion(program: Command): void {
  verb(program, "version", "print the version")
    .addHelpText("after", examples("albedo version"))
    .action(version);
}

function addCompletion(program: Command): void {
  verb(program, "completion", "print a completion script")
    .argument("<shell>", "bash, zsh or fish")
    .addHelpText(
      "after",
      examples(
        'eval "$(albedo completion bash)"',
        'eval "$(albedo completion zsh)"',
        "albedo completion fish | source",
      ),
    )
    .action(async (shell: string) => {
      await runVerb(async (context) => {
        const { completion } = await import("./completion.ts");
        return completion(context, program, shell);
      });
    });
}

function addHelp(program: Command): void {
  verb(program, "help", "show the help of a verb")
    .argument("[verb]", "one of the verbs")
    .addHelpText("after", examples("albedo help prompt"))
    .action((name: string | undefined) => {
      if (name === undefined) program.outputHelp();
      else helpOf(program, name).outputHelp();
    });
}

function helpOf(program: Command, name: string): Command {
  const found = program.commands.find((command) => command.name() === name);
  return found ?? program.error(`error: unknown command '${name}'`, { exitCode: EXIT.usage });
}

function verb(program: Command, name: string, description: string): Command {
  return program.command(name).description(description).helpOption("-h, --help", "show help");
}

function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}`).join("\n")}`;
}

function collect(value: string, earlier: readonly string[] | undefined): string[] {
  return [...(earlier ?? []), value];
}

const PORT_MAX = 65_535;

function port(value: string): number {
  const number = wholeNumber(value);
  if (number > PORT_MAX) throw new InvalidArgumentError(`It must be at most ${PORT_MAX}.`);
  return number;
}

function wholeNumber(value: string): number {
  if (/^\d{1,9}$/.test(value)) return Number(value);
  throw new InvalidArgumentError("It must be a whole number.");
}

function count(value: string): number {
  const number = wholeNumber(value);
  if (number === 0) throw new InvalidArgumentError("It must be at least 1.");
  return number;
}

function model(value: string): string {
  if (value !== "") return value;
  throw new InvalidArgumentError("It must be provider/model; `albedo models` lists them.");
}

/** A day longer than any answer takes. */
const TIMEOUT_SECONDS_MAX = 2_000_000;

function seconds(value: string): number {
  const number = /^\d{1,7}(\.\d{1,3})?$/.test(value) ? Number(value) : Number.NaN;
  if (number > 0 && number <= TIMEOUT_SECONDS_MAX) return number;
  throw new InvalidArgumentError(
    `It must be a number of seconds above 0, at most ${TIMEOUT_SECONDS_MAX}.`,
  );
}
