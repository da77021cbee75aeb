//! The statements of PostgreSQL's regression tests, one after the other. A statement that leaves
//! state without a sign of it fails the test. `regress/signs` fetches the tests and names their
//! folder.

use std::fs;
use std::path::{Path, PathBuf};

use sql::{Signs, scan, statements};
use testkit::Postgres;

use super::session::Session;

/// Exceptions that are not failures, by a part of the text, with the reason.
const ALLOWED: [(&str, &str); 1] = [(
    "alter table a alter column aa type integer",
    "a temporary table is written anew: the session had it, and goes on having it",
)];

#[test]
#[ignore = "needs PostgreSQL's sources: regress/signs runs it"]
fn every_statement_of_the_regression_tests_has_the_signs_of_what_it_leaves() {
    let folder = PathBuf::from(std::env::var_os("WEIR_REGRESS").expect("WEIR_REGRESS is a folder"));
    let postgres = Postgres::start();
    let database = postgres.database();
    let (mut tally, mut wrong) = (Tally::default(), String::new());
    for test in schedule(&folder) {
        let text = fs::read_to_string(folder.join(format!("sql/{test}.sql")));
        let text = without_psql(&text.expect("a test can be read"));
        let mut session = Session::new(&postgres, &database);
        for part in statements(text.as_bytes(), true) {
            let statement = &text[part.range];
            tally.count(statement);
            let (_, change) = session.run(statement);
            let Some(change) = change else { continue };
            tally.changes += usize::from(!change.kinds.is_empty());
            let known = |(part, _): &(&str, &str)| change.texts.iter().any(|t| t.contains(part));
            if !change.missed.is_empty() && !ALLOWED.iter().any(known) {
                wrong += &format!("{test}: no sign of {:?}: {:?}\n", change.missed, change.texts);
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.changes > 1_000, "the tests have run: {tally:?}");
    assert!(wrong.is_empty(), "{wrong}");
}

#[derive(Debug, Default)]
struct Tally {
    statements: usize,
    without_signs: usize,
    opaque: usize,
    /// Changes of the session's state, seen outside of transactions.
    changes: usize,
}

impl Tally {
    fn count(&mut self, statement: &str) {
        let signs = scan(statement.as_bytes(), true).signs;
        self.statements += 1;
        self.without_signs += usize::from(signs.is_empty());
        self.opaque += usize::from(signs.contains(Signs::OPAQUE));
    }
}

/// Returns the tests, in the order in which they depend on each other.
fn schedule(folder: &Path) -> Vec<String> {
    let schedule = fs::read_to_string(folder.join("parallel_schedule"));
    let schedule = schedule.expect("the schedule can be read");
    let groups = schedule.lines().filter_map(|line| line.strip_prefix("test:"));
    groups.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Removes psql's own commands and the data after COPY FROM STDIN.
fn without_psql(text: &str) -> String {
    let (mut kept, mut in_data) = (String::new(), false);
    for line in text.lines() {
        if in_data {
            in_data = line != "\\.";
            continue;
        }
        let lower = line.to_ascii_lowercase();
        in_data = lower.contains("from stdin") && lower.trim_start().starts_with("copy");
        let command = line.find('\\').filter(|at| {
            let word = &line[at + 1..];
            line[..*at].trim().is_empty()
                || ["g", "watch", "crosstab"].iter().any(|c| word.starts_with(c))
        });
        match command {
            Some(at) => kept.extend([&line[..at], ";"]),
            None => kept += line,
        }
        kept.push('\n');
    }
    kept
}
