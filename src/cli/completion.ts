import type { Command } from "commander";
import type { Context } from "./context.ts";
import { EXIT, usageError } from "./exit.ts";
import type { ExitCode } from "./exit.ts";

/** Owns `albedo completion`: scripts for three shells, made from the table of verbs itself. */
interface Verb {
  readonly name: string;
  readonly description: string;
  readonly flags: readonly Flag[];
}

interface Flag {
  readonly names: readonly string[];
  readonly description: string;
  /** It is followed by a file's path. */
  readonly takesFile: boolean;
}

export const SHELLS = ["bash", "zsh", "fish"] as const;

export function completion(context: Context, program: Command, shell: string): ExitCode {
  const verbs = program.commands.map(describe);
  const { stdout } = context.output;
  switch (shell) {
    case "bash":
      stdout.put(bash(verbs));
      return EXIT.done;
    case "zsh":
      stdout.put(zsh(verbs));
      return EXIT.done;
    case "fish":
      stdout.put(fish(verbs));
      return EXIT.done;
    default:
      throw usageError(`No completion for '${shell}': one of ${SHELLS.join(", ")} is wanted`);
  }
}

function describe(command: Command): Verb {
  const options = [...command.options, ...command.createHelp().visibleOptions(command)];
  const flags = new Map<string, Flag>();
  for (const option of options) {
    const names = [option.short, option.long].filter((name) => name !== undefined);
    flags.set(option.flags, {
      names,
      description: option.description,
      takesFile: option.flags.includes("<file>"),
    });
  }
  return { name: command.name(), description: command.description(), flags: [...flags.values()] };
}

/** The verbs that are completed with their flags; `completion` itself takes a shell. */
function flagged(verbs: readonly Verb[]): readonly Verb[] {
  return verbs.filter((verb) => verb.name !== "completion");
}

function bash(verbs: readonly Verb[]): string {
  const cases = flagged(verbs).map(
    (verb) => `    ${verb.name}) words='${verb.flags.flatMap((flag) => flag.names).join(" ")}' ;;`,
  );
  return `# bash completion for albedo: eval "$(albedo completion bash)"
_albedo() {
  local word=\${COMP_WORDS[COMP_CWORD]} words
  case \${COMP_WORDS[COMP_CWORD-1]} in
    -i|--image)
      # A name may have spaces: a line is a name.
      local IFS=$'\\n'
      COMPREPLY=($(compgen -f -- "$word"))
      compopt -o filenames 2>/dev/null
      return
      ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '${verbs.map((verb) => verb.name).join(" ")} --help --version' -- "$word"))
    return
  fi
  case \${COMP_WORDS[1]} in
${cases.join("\n")}
    completion) words='${SHELLS.join(" ")}' ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _albedo albedo
`;
}

function zsh(verbs: readonly Verb[]): string {
  const names = verbs.map((verb) => `    '${verb.name}:${quoted(verb.description)}'`);
  const cases = flagged(verbs).map((verb) => {
    const specs = verb.flags.flatMap((flag) =>
      flag.names.map(
        (name) => `'*${name}[${quoted(flag.description)}]${flag.takesFile ? ":file:_files" : ""}'`,
      ),
    );
    return `    ${verb.name}) _arguments ${specs.join(" ")} '*:file:_files' ;;`;
  });
  return `#compdef albedo
# zsh completion for albedo: eval "$(albedo completion zsh)"
_albedo() {
  local -a verbs
  verbs=(
${names.join("\n")}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
    completion) _values shell ${SHELLS.join(" ")} ;;
${cases.join("\n")}
  esac
}
compdef _albedo albedo
`;
}

function fish(verbs: readonly Verb[]): string {
  const lines = [
    "# fish completion for albedo: albedo completion fish | source",
    "complete -c albedo -f",
  ];
  for (const verb of verbs) {
    lines.push(
      `complete -c albedo -n __fish_use_subcommand -a ${verb.name} -d '${quoted(verb.description)}'`,
    );
    for (const flag of verb.flags) {
      const names = flag.names.map((name) =>
        name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
      );
      const file = flag.takesFile ? " -r -F" : "";
      lines.push(
        `complete -c albedo -n '__fish_seen_subcommand_from ${verb.name}' ${names.join(" ")}${file} ` +
          `-d '${quoted(flag.description)}'`,
      );
    }
  }
  lines.push(
    `complete -c albedo -n '__fish_seen_subcommand_from completion' -a '${SHELLS.join(" ")}'`,
  );
  return `${lines.join("\n")}\n`;
}

/** Words that can stand between single quotes in every shell, and in a zsh description. */
function quoted(text: string): string {
  return text
    .replaceAll("'", "’")
    .replaceAll("`", "")
    .replaceAll(/[[\]:]/g, " ");
}
