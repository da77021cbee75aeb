//! `weir showpool`: the processes of PostgreSQL that a running pooler has, and their number by user.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::anyhow;
use load::Outcome;

use crate::{args::ShowpoolOptions, ctl, explain};

/// A server without a client.
const POOLED: &str = "pooled";
const HEADS: [&str; 5] = ["pid", "user", "database", "status", "last used"];

/// # Errors
/// When there is no console, or it refuses.
pub(crate) fn run(options: &ShowpoolOptions) -> anyhow::Result<ExitCode> {
    let place = ctl::console(&options.console).map_err(|why| anyhow!(why))?;
    let servers = ctl::ask(&place, "SHOW SERVERS EXTENDED")?;
    explain::print(&list(&servers))
}

fn list(servers: &Outcome) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines = vec![HEADS.map(str::to_owned)];
    for row in &servers.rows {
        let value = |name: &str| {
            let at = servers.columns.iter().flatten().position(|column| column.name == name);
            at.and_then(|at| row.get(at)?.as_deref()).unwrap_or_default()
        };
        // A server that is not logged in has no process, as far as Weir knows.
        if matches!(value("remote_pid"), "" | "0") {
            continue;
        }
        let status = match (value("state"), value("activity")) {
            ("idle" | "used", _) if value("link").is_empty() => POOLED,
            (state, "") => state,
            (_, activity) => activity,
        };
        *counts.entry(shown(value("user"))).or_default() += 1;
        lines.push(
            [value("remote_pid"), value("user"), value("database"), status, value("request_time")]
                .map(shown),
        );
    }
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let [pid, rest @ ..] = line;
        let mut printed = format!("{pid:>0$}", widths[0]);
        for (value, width) in rest.iter().zip(&widths[1..]) {
            printed += &format!("  {value:<width$}");
        }
        text += printed.trim_end();
        text.push('\n');
    }
    text.push('\n');
    let longest = counts.keys().map(|user| user.chars().count()).max().unwrap_or(0);
    for (user, count) in counts {
        text += &format!("servers of {:<1$} {count:>6}\n", format!("{user}:"), longest + 1);
    }
    text
}

/// Replaces control characters, since clients choose some of the shown names.
fn shown(value: &str) -> String {
    value.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use load::Column;

    use super::*;

    #[test]
    fn servers_are_listed_and_counted_by_user() {
        let columns =
            ["remote_pid", "user", "database", "state", "activity", "link", "request_time"];
        let column = |name: &&str| Column { name: (*name).to_owned(), type_oid: 25 };
        let row = |values: [&str; 7]| {
            values.iter().map(|value| (!value.is_empty()).then(|| (*value).to_owned())).collect()
        };
        let servers = Outcome {
            columns: Some(columns.iter().map(column).collect()),
            rows: vec![
                row(["17", "bob\x1b", "shop", "active", "idle in transaction", "0x2", "12:00"]),
                row(["1234", "alice", "shop", "idle", "", "", "12:01"]),
                row(["18", "alice", "shop", "active", "active", "0x3", "12:02"]),
                row(["0", "alice", "shop", "new", "", "", "12:03"]),
                row(["19", "alice", "shop", "listening", "", "", "12:04"]),
            ],
            ..Outcome::default()
        };
        let expected = " pid  user   database  status               last used\n\
                        \x20 17  bob?   shop      idle in transaction  12:00\n\
                        1234  alice  shop      pooled               12:01\n\
                        \x20 18  alice  shop      active               12:02\n\
                        \x20 19  alice  shop      listening            12:04\n\
                        \n\
                        servers of alice:      3\n\
                        servers of bob?:       1\n";
        assert_eq!(list(&servers), expected);
    }
}
