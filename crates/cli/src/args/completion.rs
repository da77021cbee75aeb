//! `weir completion SHELL`: a script that completes commands, flags and configuration keys. The words
//! come from the definition of the command line, and from the table of keys.

use clap::{Command, ValueEnum};
use config::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Returns the script for the command line that `command` defines.
pub(super) fn script(shell: Shell, command: &Command) -> String {
    let commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let mut first = flags(command);
    first.extend(commands.iter().map(ToString::to_string));
    match shell {
        Shell::Bash => {
            let case =
                |of: &Command| format!("    {}) words=\"{}\" ;;\n", of.get_name(), words(of));
            let cases: String = command.get_subcommands().map(case).collect();
            let (names, first) = (commands.join("|"), first.join(" "));
            format!(
                "# weir completion bash: put it where bash-completion looks, or source it.\n\
                 _weir() {{\n  local word command= words\n  \
                 for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n    \
                 case $word in {names}) command=$word; break ;; esac\n  done\n  \
                 case $command in\n    \"\") words=\"{first}\" ;;\n{cases}  esac\n  \
                 mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n\
                 }}\ncomplete -o default -F _weir weir\n"
            )
        }
        Shell::Zsh => {
            let case = |of: &Command| format!("    {}) list=({}) ;;\n", of.get_name(), words(of));
            let cases: String = command.get_subcommands().map(case).collect();
            let (names, first) = (commands.join("|"), first.join(" "));
            format!(
                "#compdef weir\n# weir completion zsh: put it into a folder of $fpath as _weir.\n\
                 _weir() {{\n  local word command=\n  local -a list\n  \
                 for word in ${{words[2,CURRENT-1]}}; do\n    \
                 case $word in {names}) command=$word; break ;; esac\n  done\n  \
                 case $command in\n    \"\") list=({first}) ;;\n{cases}  esac\n  \
                 compadd -a list\n  _files\n}}\n\
                 if [ \"$funcstack[1]\" = _weir ]; then _weir \"$@\"; else compdef _weir weir; fi\n"
            )
        }
        Shell::Fish => {
            let mut text =
                "# weir completion fish: put it into the folder completions.\n".to_owned();
            text +=
                &format!("complete -c weir -n __fish_use_subcommand -a '{}'\n", first.join(" "));
            for of in command.get_subcommands() {
                let condition = format!("'__fish_seen_subcommand_from {}'", of.get_name());
                text += &format!("complete -c weir -n {condition} -a '{}'\n", words(of));
            }
            text
        }
    }
}

/// Returns the words that may follow a command, except files.
fn words(command: &Command) -> String {
    let mut words = flags(command);
    match command.get_name() {
        "help" => {
            let mut keys: Vec<_> = Key::all().map(|key| key.name.to_owned()).collect();
            keys.sort();
            keys.dedup();
            words.extend(keys);
        }
        "ctl" => words.extend(admin::words().into_iter().map(str::to_lowercase)),
        "completion" => words.extend(
            Shell::value_variants()
                .iter()
                .filter_map(|shell| Some(shell.to_possible_value()?.get_name().to_owned())),
        ),
        _ => {}
    }
    words.join(" ")
}

fn flags(command: &Command) -> Vec<String> {
    let long = |flag: &clap::Arg| Some(format!("--{}", flag.get_long()?));
    command.get_arguments().filter_map(long).collect()
}
