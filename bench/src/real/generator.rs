//! What puts the load on, as a process of its own, and what it says of a run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::cluster::program;
use super::row::Row;
use crate::run::{Setting, Tls};
use crate::socket::Address;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Generator {
    /// `weir bench`.
    Weir,
    /// PostgreSQL's.
    Pgbench,
}

/// Where clients connect: a port of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) port: u16,
}

impl Place {
    pub(super) fn of(address: &Address) -> Result<Self> {
        match address {
            Address::Tcp(address) => Ok(Self { port: address.port() }),
            Address::Unix(path) => bail!("{} is no port", path.display()),
        }
    }

    fn lead(&self, command: &mut Command) {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", Setting::USER)
            .env("PGDATABASE", Setting::DATABASE)
            .stdin(Stdio::null());
    }
}

/// What one run gave. Latencies are in milliseconds; pgbench has their mean only.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) transactions: f64,
    pub(super) tps: f64,
    pub(super) mean: f64,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
}

/// Makes the tables.
pub(super) fn initialise(weir: &Path, place: &Place, scale: u32) -> Result<()> {
    let mut command = Command::new(weir);
    command.args(["bench", "-i", "-q", "-s", &scale.to_string()]);
    place.lead(&mut command);
    output(&mut command).map(drop)
}

impl Generator {
    /// Runs the row for so long.
    pub(super) fn run(
        self,
        weir: &Path,
        row: &Row,
        script: Option<&Path>,
        place: &Place,
        duration: Duration,
        json: &Path,
    ) -> Result<Figures> {
        let mut command = match self {
            Self::Weir => {
                let mut command = Command::new(weir);
                command.arg("bench").arg("--json").arg(json);
                command
            }
            Self::Pgbench => Command::new(program("pgbench")?),
        };
        command.args(["-n", "-c", &row.clients.to_string()]).args(row.options);
        command.args(["-T", &duration.as_secs().to_string()]);
        if let Some(script) = script {
            command.arg("-f").arg(script);
            // Without a built-in script nobody looks how large the tables are.
            command.args(["-s", "1"]);
        }
        if let Some(rate) = row.rate {
            command.args(["-R", &rate.to_string()]);
        }
        place.lead(&mut command);
        let tls = if row.tls == Tls::None { "disable" } else { "prefer" };
        let said = output(command.env("PGSSLMODE", tls))?;
        match self {
            Self::Weir => {
                let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
                of_json(&serde_json::from_str(&text)?)
            }
            Self::Pgbench => of_report(&said),
        }
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}{complaints}", output.status);
    Ok(said)
}

fn of_json(figures: &Value) -> Result<Figures> {
    let number = |value: &Value| value.as_f64().context("a figure is missing");
    let latency = &figures["latency_ms"];
    Ok(Figures {
        transactions: number(&figures["transactions"])?,
        tps: number(&figures["tps"])?,
        mean: number(&latency["average"])?,
        p50: latency["p50"].as_f64(),
        p99: latency["p99"].as_f64(),
        p999: latency["p99.9"].as_f64(),
    })
}

fn of_report(report: &str) -> Result<Figures> {
    let number = |before: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(before));
        let word = line.and_then(|rest| rest.split([' ', '/']).next()?.parse().ok());
        word.with_context(|| format!("pgbench says nothing of {before:?}:\n{report}"))
    };
    Ok(Figures {
        transactions: number("number of transactions actually processed: ")?,
        tps: number("tps = ")?,
        mean: number("latency average = ")?,
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_generators_are_understood() {
        let report = "number of transactions actually processed: 2861\n\
                      latency average = 34.951 ms\n\
                      tps = 572.2 (without initial connection time)\n";
        let figures = of_report(report).unwrap();
        assert_eq!((figures.transactions, figures.tps, figures.mean), (2861.0, 572.2, 34.951));
        assert!(of_report("tps = 1").is_err());

        let own = json!({
            "transactions": 10, "tps": 5.0,
            "latency_ms": { "average": 1.5, "p50": 1.0, "p99": 2.0, "p99.9": 3.0 },
        });
        let figures = of_json(&own).unwrap();
        assert_eq!((figures.tps, figures.p50, figures.p999), (5.0, Some(1.0), Some(3.0)));
    }
}
