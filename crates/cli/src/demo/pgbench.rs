//! pgbench's report of a run, as numbers.

/// The figures of one run. A figure that pgbench did not print is zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// Transactions per second, the time to connect included.
    pub(super) tps: f64,
    /// Average time to connect, in milliseconds; `None` with a pgbench before version 14.
    pub(super) connection_ms: Option<f64>,
    /// Failed transactions, and clients that gave up, whose transactions pgbench does not count.
    pub(super) failed: u64,
}

/// Parses the output of pgbench: the errors of its clients, then its report.
pub(super) fn parse(output: &str, succeeded: bool) -> Report {
    let mut report = Report::default();
    for line in output.lines() {
        if let Some(rest) = line.strip_prefix("tps = ") {
            // An old version prints a second such line, which excludes the time to connect.
            if report.tps == 0.0 {
                report.tps = number(rest);
            }
        } else if let Some(rest) = line.strip_prefix("average connection time = ") {
            report.connection_ms = Some(number(rest));
        } else if let Some(rest) = line.strip_prefix("number of failed transactions: ") {
            report.failed += number(rest) as u64;
        } else if line.contains("client ") && line.contains(" aborted ") {
            report.failed += 1;
        }
    }
    if !succeeded {
        report.failed = report.failed.max(1);
    }
    report
}

/// Returns the first error in the output, which explains why a row has failed.
pub(super) fn complaint(output: &str) -> Option<&str> {
    output.lines().find(|line| line.contains(" error: ") || line.contains(" fatal: "))
}

/// Returns the number at the beginning of a text; zero if there is none.
fn number(text: &str) -> f64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 1
query mode: simple
number of clients: 20
number of threads: 1
maximum number of tries: 1
duration: 5 s
number of transactions actually processed: 2861
number of failed transactions: 0 (0.000%)
latency average = 34.951 ms
average connection time = 1.689 ms
tps = 572.225616 (including reconnection times)
";

    #[test]
    fn a_report_is_read() {
        let expected = Report { tps: 572.225616, connection_ms: Some(1.689), failed: 0 };
        assert_eq!(parse(GOOD, true), expected);
        assert_eq!(complaint(GOOD), None);
    }

    #[test]
    fn failures_of_every_kind_count() {
        let failed = GOOD.replace("failed transactions: 0 (0.000%)", "failed transactions: 7 (1%)");
        assert_eq!(parse(&failed, true).failed, 7);
        let aborted = "\
pgbench: error: connection to server at \"127.0.0.1\", port 6432 failed: FATAL:  no more
pgbench: error: client 3 aborted while establishing connection
pgbench: error: client 0 script 0 aborted in command 1 query 0: ERROR:  nope
"
        .to_owned()
            + GOOD
            + "pgbench: fatal: Run was aborted; the above results are incomplete.\n";
        assert_eq!(parse(&aborted, false).failed, 2);
        assert!(complaint(&aborted).is_some_and(|line| line.ends_with("FATAL:  no more")));
        assert_eq!(parse(GOOD, false).failed, 1);
        assert_eq!(parse("", false), Report { failed: 1, ..Report::default() });
    }

    #[test]
    fn older_reports_are_read() {
        let old = "\
latency average = 16.2 ms
tps = 1230.5 (including connections establishing)
tps = 9999.9 (excluding connections establishing)
";
        assert_eq!(parse(old, true), Report { tps: 1230.5, connection_ms: None, failed: 0 });
    }
}
