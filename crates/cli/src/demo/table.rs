//! The lab's result: one table to read, and the verdict for the exit status.

use std::fmt::Write as _;

use super::pgbench::Report;

/// One run of the lab.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) script: &'static str,
    /// The pool mode, or [`DIRECT`].
    pub(super) through: &'static str,
    pub(super) report: Report,
    /// The number of server processes that ran its transactions.
    pub(super) processes: u64,
}

/// The value of `through` in the rows that the others of the same script are compared with.
pub(super) const DIRECT: &str = "direct";

const HEADS: [&str; 7] =
    ["script", "through", "tps", "connect ms", "ratio", "server processes", "failed"];

/// Returns the rows with their heads, with right-aligned numbers.
pub(super) fn render(rows: &[Row]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| cells(row, rows)));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                1 => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        if number == 0 {
            text.push_str(&widths.map(|width| "-".repeat(width)).join("  "));
            text.push('\n');
        }
    }
    text
}

fn cells(row: &Row, rows: &[Row]) -> [String; HEADS.len()] {
    let report = &row.report;
    let ratio = direct(row, rows)
        .filter(|direct| direct.report.tps > 0.0)
        .map(|direct| report.tps / direct.report.tps);
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    [
        row.script.to_owned(),
        row.through.to_owned(),
        number(Some(report.tps), 0),
        number(report.connection_ms, 3),
        number(ratio, 2),
        row.processes.to_string(),
        report.failed.to_string(),
    ]
}

fn direct<'a>(row: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    rows.iter().find(|other| other.script == row.script && other.through == DIRECT)
}

/// Returns the faults in the rows; none if pooling works.
pub(super) fn objections(rows: &[Row]) -> Vec<String> {
    let mut objections = Vec::new();
    for row in rows {
        let name = format!("{}, {}", row.script, row.through);
        if row.report.failed > 0 {
            objections.push(format!("{name}: {} transactions failed", row.report.failed));
        }
        if row.report.tps <= 0.0 {
            objections.push(format!("{name}: no transaction was done"));
        }
        let direct = direct(row, rows).filter(|_| row.through != DIRECT);
        if let Some(direct) = direct.filter(|direct| row.processes >= direct.processes) {
            objections.push(format!(
                "{name}: {} server processes, as many as the {} of the direct row",
                row.processes, direct.processes
            ));
        }
    }
    objections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(through: &'static str, tps: f64, processes: u64, failed: u64) -> Row {
        let connection_ms = (tps > 0.0).then(|| 1000.0 / tps);
        Row { script: "select", through, report: Report { tps, connection_ms, failed }, processes }
    }

    #[test]
    fn the_table_lines_up() {
        let rows = [row(DIRECT, 400.0, 200, 0), row("session", 2000.0, 9, 0), row("x", 0.0, 0, 3)];
        let expected = "\
script  through   tps  connect ms  ratio  server processes  failed
------  -------  ----  ----------  -----  ----------------  ------
select  direct    400       2.500   1.00               200       0
select  session  2000       0.500   5.00                 9       0
select  x           0           -   0.00                 0       3
";
        assert_eq!(render(&rows), expected);
    }

    #[test]
    fn a_row_that_pools_nothing_or_fails_is_objected_to() {
        let good = [row(DIRECT, 400.0, 200, 0), row("session", 2000.0, 9, 0)];
        assert_eq!(objections(&good), [""; 0]);

        for (bad, words) in [
            (row("session", 2000.0, 200, 0), "as many as the 200"),
            (row("session", 2000.0, 9, 1), "1 transactions failed"),
            (row("session", 0.0, 9, 0), "no transaction was done"),
        ] {
            let objections = objections(&[good[0].clone(), bad]);
            assert!(
                matches!(&objections[..], [one] if one.contains(words)),
                "{words}: {objections:?}"
            );
        }
        assert_eq!(objections(&[row(DIRECT, 0.0, 0, 2)]).len(), 2);
    }
}
