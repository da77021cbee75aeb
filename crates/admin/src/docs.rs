//! `docs/admin.md`, made from the tables and the list of commands.

use std::fmt::Write;

use config::reference::{Table, wrapped};

use crate::command;
use crate::show;

const INTRODUCTION: &str = "\
# The console

<!-- Generated from the tables in crates/admin/src/show; do not edit.
     `UPDATE_DOCS=1 cargo test -p weir-admin` writes it anew. -->

Connect to the virtual database `pgbouncer` or `weir` with any PostgreSQL client:

```console
$ psql -h 127.0.0.1 -p 6432 -U admin pgbouncer
```

From the shell:

```console
$ weir ctl -c /etc/weir/weir.ini SHOW POOLS
$ weir ctl -h 127.0.0.1 -p 6432 -U admin --json SHOW CLIENTS | jq .
```

With `-c`, `weir ctl` takes the address and an admin user from the configuration file, and the
password from `auth_file` if it is there in clear. `-h`, `-p` and `-U` override that, as do PGUSER
and PGPASSWORD. Without `-c`, `weir ctl` reads PGHOST, PGPORT, PGUSER, PGPASSWORD and `~/.pgpass`,
as psql does. The defaults are 127.0.0.1 and 6432.

Tables have psql's form; `--json` prints an array of objects. Notices go to standard error. The exit
status is 0; 1 for an error of the console; 2 if there is no connection. SUSPEND ends with the
connection, so it has no lasting effect from `weir ctl`.

`weir ctl health [CHECK]` is for scripts: it prints one line of [SHOW HEALTH](#show-health), and its
exit status is 1 if that check fails. Without a name the check is `ready`.

| user | may run |
|---|---|
| listed in `admin_users` | every command |
| listed in `stats_users` | SHOW, except SHOW FDS |
| `pgbouncer` | every command, without a password: on the Unix socket, if the client's system user is Weir's or root |

A command is one or two words in any case, with an optional semicolon. Names that are not plain
words need double quotes. `SELECT X` is the same as `SHOW X`.

Names, order and types of the columns and the error texts are those of PgBouncer 1.25.2, so programs
that read PgBouncer's console can read Weir's. Some of these count columns. So with a
`pgbouncer.ini`, a SHOW has PgBouncer's columns only. `SHOW X EXTENDED` has Weir's own columns as
well, and so has each SHOW with `console_columns = weir`. That is the default of a `weir.toml`, of
`weir serve` and of the pooler in PostgreSQL. SHOW commands that PgBouncer lacks always have all
columns.

Drivers may use the extended query protocol, which PgBouncer refuses. They can prepare and describe
a command, read its result in portions, and get numbers in binary. There are no parameters and no
transactions, so enable autocommit in drivers that would send BEGIN.

Drivers that `SHOW` or `SET` `client_encoding`, `datestyle`, `timezone`,
`standard_conforming_strings` or `default_transaction_isolation` get a fixed answer. Such a SET has
no effect. An empty query, such as `;` or a comment, gets an empty answer and no error, as from
PostgreSQL. Drivers test connections with it.

An error does not close the connection. Its severity is ERROR and its SQLSTATE 08P01, or F0000 if
RELOAD failed. After an error in a batch of the extended protocol, everything up to the Sync is
skipped. A message that cannot be read, or is longer than 16 kB, ends the connection.

## Commands

";

/// The text below the table of commands.
const COMMANDS: &str = "
Ctrl-C ends a command that waits (PAUSE, SUSPEND, WAIT_CLOSE). The error is `canceling statement due
to user request` (57014). It also undoes a PAUSE without a name, or a SUSPEND, like RESUME. A PAUSE
with a name stays in effect. Closing a console that waits undoes nothing.

## SHOW HELP

The list of commands, as a notice.
";

/// Returns the whole of `docs/admin.md`.
pub fn markdown() -> String {
    let mut commands = Table::new(&["command", "effect"]);
    for verb in &command::VERBS {
        commands.row(verb.form, &[], verb.about);
    }
    let mut text = format!("{INTRODUCTION}{}{COMMANDS}", commands.finish());
    for show in show::ALL {
        let mut table = Table::new(&["column", "type", "meaning"]);
        for head in show.heads() {
            let own = if head.is_own { " Weir's own." } else { "" };
            table.row(head.name, &[head.kind.name()], &format!("{}{own}", head.about));
        }
        let (name, about) = (show.name(), wrapped(show.about()));
        let _ = write!(text, "\n## SHOW {name}\n\n{about}\n\n{}", table.finish());
    }
    text
}

/// Returns the explanation of a command in plain text. `None`: there is no such command.
pub fn help(command: &str) -> Option<String> {
    let command = command.to_ascii_uppercase();
    let name = command.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(show) = name.strip_prefix("SHOW ").and_then(show::find) {
        let mut text = format!("SHOW {} (console)\n  {}\n\n", show.name(), show.about());
        for head in show.heads() {
            let _ = writeln!(text, "  {} ({}): {}", head.name, head.kind.name(), head.about);
        }
        return Some(text);
    }
    let verbs = command::VERBS.iter().filter(|verb| {
        let form = verb.form.trim_start_matches('[');
        form.strip_prefix(&name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphabetic()))
    });
    let texts: Vec<_> =
        verbs.map(|verb| format!("{} (console)\n  {}\n", verb.form, verb.about)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Returns the words of all commands, for a shell that completes them.
pub fn words() -> Vec<&'static str> {
    let verbs = command::VERBS.iter().flat_map(|verb| verb.form.split(' '));
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let mut words: Vec<_> = verbs.filter(is_word).collect();
    words.extend(["SHOW", "HELP"]);
    words.extend(show::ALL.iter().map(|show| show.name()));
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_explained_in_a_sentence() {
        for show in show::ALL {
            assert!(show.about().ends_with('.'), "{}", show.name());
            for head in show.heads() {
                assert!(head.about.ends_with('.'), "{}.{}", show.name(), head.name);
                assert!(!head.about.contains('|'), "{}.{}", show.name(), head.name);
            }
        }
    }
}
