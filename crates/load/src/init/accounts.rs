//! The rows of `pgbench_accounts`, and their progress bar: it is overwritten on a terminal, and
//! printed in lines otherwise.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use super::ACCOUNTS;

/// Rows sent at a time.
const ROWS_AT_ONCE: u64 = 1_000;
/// Without a terminal, one line per this many rows; with `-q` one per pause.
const ROWS_PER_LINE: u64 = 100_000;
const QUIET_PAUSE: Duration = Duration::from_secs(5);
const TERMINAL_PAUSE: Duration = Duration::from_millis(100);
const BAR_LEN: u64 = 30;

pub(super) struct Accounts {
    rows: u64,
    written: u64,
    quiet: bool,
    on_terminal: bool,
    begun: Instant,
    told: Instant,
}

impl Accounts {
    pub(super) fn new(rows: u64, quiet: bool) -> Self {
        let now = Instant::now();
        let on_terminal = io::stderr().is_terminal();
        Self { rows, written: 0, quiet, on_terminal, begun: now, told: now }
    }

    /// Appends more lines. Returns false if those were the last.
    pub(super) fn fill(&mut self, lines: &mut Vec<u8>) -> bool {
        let end = (self.written + ROWS_AT_ONCE).min(self.rows);
        for aid in self.written + 1..=end {
            // Writing to a Vec cannot fail.
            let _ = writeln!(lines, "{aid}\t{}\t0\t", (aid - 1) / ACCOUNTS + 1);
        }
        self.written = end;
        self.tell();
        end < self.rows
    }

    fn tell(&mut self) {
        let is_last = self.written == self.rows;
        let is_due = match (self.on_terminal, self.quiet) {
            (_, true) => self.told.elapsed() >= QUIET_PAUSE,
            (true, false) => is_last || self.told.elapsed() >= TERMINAL_PAUSE,
            (false, false) => self.written.is_multiple_of(ROWS_PER_LINE),
        };
        if !is_due {
            return;
        }
        self.told = Instant::now();
        let line = line(self.written, self.rows, self.begun.elapsed());
        if self.on_terminal {
            let end = if is_last { "\n" } else { "" };
            eprint!("\r{} {line}{end}", bar(self.written, self.rows));
        } else {
            eprintln!("{line}");
        }
    }
}

fn line(written: u64, rows: u64, elapsed: Duration) -> String {
    let elapsed = elapsed.as_secs_f64();
    let remaining = elapsed * (rows - written) as f64 / written.max(1) as f64;
    let percent = written * 100 / rows;
    format!(
        "{written} of {rows} tuples ({percent}%) of pgbench_accounts done \
         (elapsed {elapsed:.2} s, remaining {remaining:.2} s)"
    )
}

fn bar(written: u64, rows: u64) -> String {
    let full = written * BAR_LEN / rows;
    let part = |sign: &str, len: u64| sign.repeat(usize::try_from(len).unwrap_or_default());
    format!("[{}{}]", part("#", full), part(".", BAR_LEN - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_has_its_branch() {
        let mut accounts = Accounts::new(200_001, true);
        let mut lines = Vec::new();
        while accounts.fill(&mut lines) {}
        let text = String::from_utf8(lines).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 200_001);
        assert_eq!((lines[0], lines[99_999]), ("1\t1\t0\t", "100000\t1\t0\t"));
        assert_eq!((lines[100_000], lines[200_000]), ("100001\t2\t0\t", "200001\t3\t0\t"));
    }

    #[test]
    fn a_line_and_a_bar_tell_how_far_it_is() {
        assert_eq!(
            line(50, 200, Duration::from_secs(1)),
            "50 of 200 tuples (25%) of pgbench_accounts done (elapsed 1.00 s, remaining 3.00 s)"
        );
        assert_eq!(bar(100, 200), format!("[{}{}]", "#".repeat(15), ".".repeat(15)));
    }
}
