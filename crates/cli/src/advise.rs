//! `weir advise`: lets a running Weir watch its clients for a while, and prints what auto mode
//! would do with them.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use load::console::Console;

use crate::{
    args::{AdviseOptions, ConsoleOptions},
    ctl, explain, sys,
};

/// The interval of checks for a signal while waiting.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of lines with reasons for each pool. SHOW REASONS has all.
const REASONS_MAX: usize = 20;

type Rows = Vec<Vec<Option<String>>>;

/// # Errors
/// When there is no console, or it refuses.
pub(crate) fn run(options: &AdviseOptions) -> anyhow::Result<ExitCode> {
    let AdviseOptions { config, seconds: _, host, port, user } = options.clone();
    let port = port.map(|port| port.to_string());
    let console = ctl::console(&ConsoleOptions { config, host, port, user });
    let console = console.map_err(|why| anyhow!(why))?;
    let present = ask(&console, "SHOW CONFIG")?;
    let is_on = present.iter().any(|row| text(row, 0) == "advise" && text(row, 1) == "1");
    if !is_on {
        ask(&console, "SET advise = 1")?;
    }
    let _ = writeln!(
        io::stderr(),
        "watching the clients for {} s; nothing changes for them",
        options.seconds
    );
    sys::remember_termination().context("could not watch for Ctrl-C")?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(options.seconds.into()) && !sys::terminated() {
        thread::sleep(PAUSE);
    }
    let advice =
        ask(&console, "SHOW ADVICE").and_then(|pools| Ok((pools, ask(&console, "SHOW REASONS")?)));
    if !is_on {
        ask(&console, "SET advise = 0")?;
    }
    let (pools, reasons) = advice?;
    explain::print(&report(&pools, &reasons))
}

/// Carries out one command. Returns its rows.
fn ask(console: &Console, command: &str) -> anyhow::Result<Rows> {
    Ok(ctl::ask(console, command)?.rows)
}

/// Returns a cell, without characters that control a terminal.
fn text(row: &[Option<String>], at: usize) -> String {
    let cell = row.get(at).and_then(Option::as_deref).unwrap_or_default();
    cell.replace(char::is_control, " ")
}

/// Returns the report. `pools` are the rows of SHOW ADVICE, `reasons` those of SHOW REASONS.
fn report(pools: &Rows, reasons: &Rows) -> String {
    if pools.is_empty() {
        return "No client has sent a request. Pools in auto mode are not watched.\n".to_owned();
    }
    let mut out =
        "All numbers are upper bounds, found from the texts of requests alone.\n".to_owned();
    for pool in pools {
        let cell = |at| text(pool, at);
        let (clients, sharing, pinned, possibly) = (cell(3), cell(4), cell(5), cell(6));
        let (transactions, servers, servers_max) = (cell(7), cell(8), cell(9));
        let _ = write!(
            out,
            "\ndatabase {}, user {} (pool_mode = {})\n\
             \x20 clients that sent requests        {clients}\n\
             \x20   would share servers             {sharing}\n\
             \x20   would be pinned                 at most {pinned}\n\
             \x20   possibly pinned                 at most {possibly}\n\
             \x20 transactions at the same time     at most {transactions}\n\
             \x20 servers needed at the same time   at most {servers}; {servers_max} with those possibly \
             pinned\n\
             \x20 pool size that would be enough    {servers_max}\n",
            cell(0),
            cell(1),
            cell(2),
        );
        let own: Vec<_> = reasons.iter().filter(|row| row.get(..2) == pool.get(..2)).collect();
        for row in own.iter().take(REASONS_MAX) {
            let cell = |at| text(row, at);
            let _ = write!(
                out,
                "  {}: {}; clients {}, times {}, app \"{}\", fingerprint {}\n      {}\n",
                cell(2),
                cell(3),
                cell(4),
                cell(5),
                cell(6),
                cell(7),
                cell(8),
            );
        }
        if own.len() > REASONS_MAX {
            let _ = writeln!(out, "  {} more: SHOW REASONS", own.len() - REASONS_MAX);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    #[test]
    fn a_report_has_each_pool_with_its_own_reasons() {
        let pools = vec![
            row(&["app", "alice", "session", "9", "6", "2", "1", "3", "4", "5"]),
            row(&["app", "bob", "transaction", "1", "1", "0", "0", "1", "1", "1"]),
        ];
        let reasons = vec![row(&[
            "app",
            "alice",
            "pinned",
            "advisory lock",
            "2",
            "7",
            "a\u{1b}[2J",
            "0f",
            "select ?",
        ])];
        let printed = report(&pools, &reasons);
        assert!(printed.starts_with("All numbers are upper bounds"), "{printed}");
        assert!(printed.contains("at most 4; 5 with those possibly pinned"), "{printed}");
        assert!(printed.contains("would be enough    5\n"), "{printed}");
        let line = "pinned: advisory lock; clients 2, times 7, app \"a [2J\", fingerprint 0f\n";
        assert_eq!(printed.matches(line).count(), 1, "{printed}");
        assert!(printed.ends_with("would be enough    1\n"), "{printed}");
        assert!(report(&Vec::new(), &Vec::new()).starts_with("No client"));
    }
}
