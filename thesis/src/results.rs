//! The results: a line for each while the run goes on, and tables at its end.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::run::Run;

/// The result of one demonstration, with its figure.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Passed(String),
    Failed(String),
    /// It cannot hold on this path, for this reason.
    NotHere(&'static str),
}

impl Verdict {
    /// Passed if the goal is reached.
    pub(crate) fn of(reached: bool, figure: String) -> Self {
        if reached { Self::Passed(figure) } else { Self::Failed(figure) }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "FAILED",
            Self::NotHere(_) => "not here",
        }
    }

    fn figure(&self) -> &str {
        match self {
            Self::Passed(figure) | Self::Failed(figure) => figure,
            Self::NotHere(why) => why,
        }
    }
}

/// A table of figures, written as CSV and as Markdown.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { columns: columns.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.to_vec());
    }

    /// Writes the files NAME.csv and NAME.md.
    pub(crate) fn write(&self, name: &str, run: &Run) {
        let (mut csv, mut md) = (String::new(), String::new());
        let quoted = |word: &String| format!("\"{}\"", word.replace('"', "\"\""));
        let row_of = |row: &[String]| row.iter().map(quoted).collect::<Vec<_>>().join(",");
        let escaped = |word: &String| word.replace('|', "\\|");
        let cells = |row: &[String]| row.iter().map(escaped).collect::<Vec<_>>().join(" | ");
        let _ = writeln!(csv, "{}", row_of(&self.columns));
        let _ =
            writeln!(md, "| {} |\n|{}", cells(&self.columns), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let _ = writeln!(csv, "{}", row_of(row));
            let _ = writeln!(md, "| {} |", cells(row));
        }
        run.write(&format!("{name}.csv"), &csv);
        run.write(&format!("{name}.md"), &md);
    }
}

/// All results so far.
#[derive(Debug, Default)]
pub(crate) struct Results(Vec<(String, Verdict)>);

impl Results {
    /// Adds a result and prints its line.
    pub(crate) fn add(&mut self, what: String, verdict: Verdict) {
        println!("{what} → {} → {}", verdict.word(), verdict.figure());
        // A pipe may be read line by line.
        let _ = std::io::stdout().flush();
        self.0.push((what, verdict));
    }

    /// Writes all results as a table.
    pub(crate) fn write(&self, run: &Run) {
        let mut table = Table::new(["requirement", "result", "figure"]);
        for (what, verdict) in &self.0 {
            table.row([what.clone(), verdict.word().to_owned(), verdict.figure().to_owned()]);
        }
        table.write("requirements", run);
    }

    /// Prints the last line, and returns the number of failures.
    pub(crate) fn tell(&self) -> usize {
        let count = |word: &str| self.0.iter().filter(|(_, one)| one.word() == word).count();
        let failed = count("FAILED");
        println!("{} passed, {failed} failed", count("passed"));
        failed
    }
}
