//! `weir timings`: the checkpoints of connections that have ended, from SHOW TIMINGS of a running
//! pooler or from a file: as rows, as tables of the times between them, and as a drawing.

mod csv;
mod intervals;
mod plot;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, anyhow, bail};
use load::{Outcome, Summary};

use crate::{args::TimingsOptions, ctl, explain};
use intervals::INTERVALS;

/// The connections of one run of a pooler.
#[derive(Debug)]
struct Run {
    name: String,
    rows: Outcome,
}

/// # Errors
/// When there is no console, or it refuses, or a file cannot be read or written, or is no such run.
pub(crate) fn run(options: &TimingsOptions) -> anyhow::Result<ExitCode> {
    let first = match &options.input {
        Some(file) => read(file)?,
        None => ask(options)?,
    };
    let mut runs = vec![first];
    for file in &options.compare {
        runs.push(read(file)?);
    }
    if let Some(file) = &options.svg {
        fs::write(file, plot::draw(&runs)).with_context(|| file.display().to_string())?;
    }
    let text = if options.csv {
        csv::written(&runs[0].rows)
    } else if options.json {
        ctl::print::json(&[runs.swap_remove(0).rows])
    } else {
        runs.iter().map(table).collect()
    };
    explain::print(&text)
}

/// Asks a running pooler.
fn ask(options: &TimingsOptions) -> anyhow::Result<Run> {
    let place = ctl::console(&options.console).map_err(|why| anyhow!(why))?;
    let rows = ctl::ask(&place, "SHOW TIMINGS")?;
    if rows.rows.is_empty() {
        let key = ctl::ask(&place, "SHOW CONFIG")?;
        let is_key = |row: &&Vec<_>| row.first() == Some(&Some("connection_timings".to_owned()));
        if key.rows.iter().find(is_key).and_then(|row| row.get(1)?.as_deref()) == Some("0") {
            bail!("connection_timings is 0: SET connection_timings = 1000 on the console");
        }
    }
    Ok(Run { name: "weir".to_owned(), rows })
}

fn read(file: &Path) -> anyhow::Result<Run> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let rows = csv::read(&text).with_context(|| file.display().to_string())?;
    if INTERVALS.iter().any(|interval| !interval.is_known(&rows)) {
        bail!("{}: weir timings --csv has not written this file", file.display());
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Run { name, rows })
}

/// Returns the table of a run: a line for each interval.
fn table(run: &Run) -> String {
    const HEADS: [&str; 7] = ["mean", "median", "range", "minimum", "maximum", "count", ""];
    let mut text = format!("{}: {} connections, milliseconds\n", run.name, run.rows.rows.len());
    text += &format!("{:<13}", "interval");
    for head in &HEADS[..6] {
        text += &format!("{head:>11}");
    }
    text += "  from, to\n";
    for interval in &INTERVALS {
        let times = interval.times(&run.rows);
        text += &format!("{:<13}", interval.name);
        match Summary::of(times) {
            None => text += &format!("{:>66}", 0),
            Some(Summary { mean, median, range, minimum, maximum, count }) => {
                for time in [mean, median, range, minimum, maximum] {
                    text += &format!("{time:>11.3}");
                }
                text += &format!("{count:>11}");
            }
        }
        text += &format!("  {}\n", interval.about);
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "database,user,server,startup_us,authenticated_us,welcomed_us,queued_us,\
        linked_us,applied_us,sent_us,first_byte_us,done_us\n\
        shop,app,new,100,200,2200,200,2000,2200,3000,4000,5000\n\
        shop,\"a,\"\"b\"\"\",reused,100,300,300,400,410,500,500,900,1000\n\
        shop,app,,100,200,200,,,,,,300\n";

    fn example() -> Run {
        Run { name: "now".to_owned(), rows: csv::read(RUN).unwrap() }
    }

    fn line<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).take(6).collect()
    }

    #[test]
    fn a_table_has_each_interval() {
        let text = table(&example());
        assert_eq!(line(&text, "startup"), ["0.100", "0.100", "0.000", "0.100", "0.100", "3"]);
        assert_eq!(line(&text, "Fork"), ["2.000", "2.000", "0.000", "2.000", "2.000", "1"]);
        assert_eq!(line(&text, "Reactivate"), ["0.100", "0.100", "0.000", "0.100", "0.100", "1"]);
        // The second one has waited for its server behind its welcome.
        assert_eq!(line(&text, "Init"), ["0.933", "0.400", "2.000", "0.200", "2.200", "3"]);
        assert_eq!(line(&text, "Total"), ["2.100", "1.000", "4.700", "0.300", "5.000", "3"]);
        let empty = Run { name: "none".to_owned(), rows: csv::read("server\n").unwrap() };
        assert!(table(&empty).contains("Total"));
    }

    #[test]
    fn rows_that_were_written_are_read_again() {
        let rows = example().rows;
        assert_eq!(csv::written(&rows), RUN);
        assert_eq!(rows.rows[1][1].as_deref(), Some("a,\"b\""));
        assert_eq!(rows.rows[2][5].as_deref(), Some("200"));
        assert_eq!(rows.rows[2][6], None);
    }

    #[test]
    fn a_drawing_has_a_line_for_each_run_and_sum() {
        let other = Run { name: "<before>".to_owned(), ..example() };
        let svg = plot::draw(&[example(), other]);
        // And three lines for shares in each of the four plots.
        assert_eq!(svg.matches("<polyline").count(), 4 * (2 + 3), "{svg}");
        assert!(svg.contains("&lt;before&gt;") && !svg.contains("<before>"), "{svg}");
        assert!(plot::draw(&[]).ends_with("</svg>\n"));
    }
}
