//! `docs/admin.md`, made from the tables and the list of commands.

use std::fmt::Write;

use crate::command;
use crate::show;

const INTRODUCTION: &str = "\
# The console

<!-- Generated from the tables in crates/admin/src/show; do not edit.
     `UPDATE_DOCS=1 cargo test -p weir-admin` writes it anew. -->

Connect to the virtual database `pgbouncer`, or `weir`, with any client of PostgreSQL:

```console
$ psql -h 127.0.0.1 -p 6432 -U admin pgbouncer
```

Users in `admin_users` may run every command, those in `stats_users` only SHOW, but not SHOW FDS. A
command is one or two words in any case, with an optional semicolon; names that are not plain words
go in double quotes. `SELECT X` is the same as `SHOW X`.

The user `pgbouncer` needs no password on the Unix socket if it is run by the same system user as
Weir, and may do everything.

The extended query protocol is spoken, too, which PgBouncer refuses: drivers may prepare a command,
with or without a name, have it described, read its result in portions, and have numbers in binary.
There are no parameters, and no transactions: switch autocommit on where a driver would say BEGIN.

Names, order and types of the columns, and the texts of errors, are those of PgBouncer 1.25.2, so
that what reads its console reads Weir's.

Drivers that `SHOW` or `SET` `client_encoding`, `datestyle`, `timezone`,
`standard_conforming_strings` or `default_transaction_isolation` are given a fixed answer; setting
them does nothing.

An error leaves the connection open: severity ERROR, SQLSTATE 08P01, or F0000 when RELOAD failed.
Within a batch of the extended protocol everything behind an error is skipped up to Sync.
Messages that cannot be read, or are longer than 16 kB, end the connection.

## Commands

| command | effect |
|---|---|
";

/// The text below the table of commands.
const COMMANDS: &str = "
A command that waits (PAUSE, SUSPEND, WAIT_CLOSE) is given up with Ctrl-C: the error is
`canceling statement due to user request` (57014), and a global PAUSE or SUSPEND is undone, as by
RESUME. What was paused by name stays paused. A console that is closed while it waits undoes
nothing.

## SHOW HELP

The list of commands, as a notice.
";

/// The whole of `docs/admin.md`.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for verb in &command::VERBS {
        let _ = writeln!(text, "| `{}` | {} |", verb.form, verb.about);
    }
    text.push_str(COMMANDS);
    for show in show::ALL {
        let _ = write!(
            text,
            "\n## SHOW {}\n\n{}\n\n| column | type | meaning |\n|---|---|---|\n",
            show.name(),
            show.about(),
        );
        for head in show.heads() {
            let _ = writeln!(text, "| `{}` | {} | {} |", head.name, head.kind.name(), head.about);
        }
    }
    text
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
