//! The program that generates the load, which runs as a process of its own, and the figures that it
//! reports.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use load::Histogram;
use serde_json::Value;

use super::place::{Place, output, program};

/// The maximum time until all clients of a run are logged in.
const LOGINS_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Generator {
    /// `weir bench`.
    Weir,
    /// PostgreSQL's `pgbench`.
    Pgbench,
}

/// The figures of one run. Latencies are in milliseconds; pgbench reports only their mean.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) transactions: f64,
    pub(super) tps: f64,
    pub(super) mean: f64,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
    pub(super) max: Option<f64>,
    /// A histogram of all latencies, which can be added to those of other runs.
    pub(super) latencies: Option<Histogram>,
    /// Transactions of the client that had the fewest, divided by those of the client that had the
    /// most.
    pub(super) evenness: Option<f64>,
}

/// Creates and fills pgbench's tables.
pub(super) fn initialise(weir: &Path, place: &Place, scale: u32) -> Result<()> {
    let mut command = Command::new(weir);
    command.args(["bench", "-i", "-q", "-s", &scale.to_string()]);
    place.lead(&mut command);
    output(&mut command).map(drop)
}

/// The parameters of a run.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) generator: Generator,
    pub(super) weir: &'a Path,
    /// The file to which the generator writes its figures.
    pub(super) json: PathBuf,
    pub(super) place: Place,
    pub(super) clients: usize,
    /// pgbench's options, which `weir bench` understands as well.
    pub(super) options: &'a [&'a str],
    /// A script that replaces the built-in one.
    pub(super) script: Option<PathBuf>,
    /// Transactions per second; `None` for as many as possible.
    pub(super) rate: Option<u32>,
    pub(super) tls: bool,
    pub(super) seconds: u32,
}

impl Load<'_> {
    /// Runs the generator to its end.
    pub(super) fn run(&self) -> Result<Figures> {
        self.figures(&output(&mut self.command()?)?)
    }

    /// Runs the generator to its end. Calls `on_progress` once a second with the transactions per second
    /// of the last second.
    pub(super) fn run_with_progress(
        &self,
        mut on_progress: impl FnMut(f64) -> Result<()>,
    ) -> Result<Figures> {
        let mut command = self.command()?;
        command.args(["-P", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let messages = child.stderr.take().context("a pipe was asked for")?;
        let (mut reported, mut all) = (Ok(()), String::new());
        for line in BufReader::new(messages).lines().map_while(Result::ok) {
            let tps = progress_of(&line, self.seconds);
            if let (Some(tps), true) = (tps, reported.is_ok()) {
                reported = on_progress(tps);
            }
            all += &(line + "\n");
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{command:?}: {}\n{said}{all}", output.status);
        reported?;
        self.figures(&said)
    }

    fn figures(&self, said: &str) -> Result<Figures> {
        match self.generator {
            Generator::Weir => read_figures(&self.json),
            Generator::Pgbench => of_report(said),
        }
    }

    /// Starts `weir bench` and returns when its clients are at work, so that the caller can do
    /// something meanwhile. It does not support pgbench.
    pub(super) fn begin(&self) -> Result<Running> {
        let mut command = self.command()?;
        command.args(["-P", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let messages = child.stderr.take().context("a pipe was asked for")?;
        let (at_work, heard) = mpsc::channel();
        let listener = thread::spawn(move || {
            let mut messages = BufReader::new(messages);
            let mut all = String::new();
            while messages.read_line(&mut all).is_ok_and(|length| length > 0) {
                if all.contains("progress: ") {
                    // An error means that the receiver has given up waiting.
                    let _ = at_work.send(());
                    break;
                }
            }
            let mut rest = Vec::new();
            let _ = messages.read_to_end(&mut rest);
            all + &String::from_utf8_lossy(&rest)
        });
        let running = Running { child, listener: Some(listener), json: self.json.clone() };
        match heard.recv_timeout(LOGINS_MAX) {
            Ok(()) => Ok(running),
            Err(error) => match running.stop() {
                messages if messages.is_empty() => {
                    Err(error).context("its clients do not get to work")
                }
                messages => bail!("{messages}"),
            },
        }
    }

    fn command(&self) -> Result<Command> {
        let mut command = match self.generator {
            Generator::Weir => {
                let mut command = Command::new(self.weir);
                command.arg("bench").arg("--json").arg(&self.json);
                command
            }
            Generator::Pgbench => Command::new(program("pgbench")?),
        };
        command.args(["-n", "-c", &self.clients.to_string()]).args(self.options);
        command.args(["-T", &self.seconds.to_string()]);
        if let Some(script) = &self.script {
            command.arg("-f").arg(script);
            // pgbench looks at the size of the tables only for its built-in scripts.
            command.args(["-s", "1"]);
        }
        if let Some(rate) = self.rate {
            command.args(["-R", &rate.to_string()]);
        }
        self.place.lead(&mut command);
        command.env("PGSSLMODE", if self.tls { "require" } else { "disable" });
        Ok(command)
    }
}

/// A run of `weir bench` in the background. It is ended when dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    listener: Option<JoinHandle<String>>,
    json: PathBuf,
}

impl Running {
    pub(super) fn goes_on(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the end of the run.
    pub(super) fn finish(mut self) -> Result<Figures> {
        let messages = self.messages();
        let status = self.child.wait()?;
        ensure!(status.success(), "weir bench: {status}\n{messages}");
        read_figures(&self.json)
    }

    /// Ends the run early and returns its messages.
    fn stop(mut self) -> String {
        let _ = self.child.kill();
        self.messages()
    }

    /// Returns all messages of the run, once it has ended.
    fn messages(&mut self) -> String {
        self.listener.take().and_then(|listener| listener.join().ok()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; then killing it fails, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the transactions per second in a line of progress, unless the line is that of the run's
/// end.
fn progress_of(line: &str, seconds: u32) -> Option<f64> {
    let (when, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
    let is_end = when.parse::<f64>().ok()? > f64::from(seconds) - 0.5;
    let tps = rest.split_once(" tps")?.0.parse().ok()?;
    (!is_end).then_some(tps)
}

fn read_figures(json: &Path) -> Result<Figures> {
    let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
    of_json(&serde_json::from_str(&text)?)
}

fn of_json(figures: &Value) -> Result<Figures> {
    let number = |value: &Value| value.as_f64().context("a figure is missing");
    let latency = &figures["latency_ms"];
    let mut latencies = Histogram::new();
    let buckets = figures["latencies_us"].as_object().context("no latencies")?;
    for (us, count) in buckets {
        latencies.record_times(us.parse()?, count.as_u64().context("no count")?);
    }
    let of_clients = &figures["client_transactions"];
    let evenness = number(&of_clients["fewest"])? / number(&of_clients["most"])?;
    Ok(Figures {
        transactions: number(&figures["transactions"])?,
        tps: number(&figures["tps"])?,
        mean: number(&latency["average"])?,
        p50: latency["p50"].as_f64(),
        p99: latency["p99"].as_f64(),
        p999: latency["p99.9"].as_f64(),
        max: latency["max"].as_f64(),
        latencies: Some(latencies),
        evenness: Some(evenness),
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
    fn progress_is_reported_until_the_run_ends() {
        let line =
            |when| format!("progress: {when} s, 2861.5 tps, lat 0.349 ms stddev 0.100, 0 failed");
        assert_eq!(progress_of(&line("9.0"), 10), Some(2861.5));
        assert_eq!(progress_of(&line("10.0"), 10), None);
        assert_eq!(progress_of("starting vacuum...end.", 10), None);
    }

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
            "latency_ms": { "average": 1.5, "p50": 1.0, "p99": 2.0, "p99.9": 3.0, "max": 4.0 },
            "latencies_us": { "1000": 6, "2000": 4 },
            "client_transactions": { "fewest": 4, "most": 5 },
        });
        let figures = of_json(&own).unwrap();
        assert_eq!((figures.tps, figures.p50, figures.p999), (5.0, Some(1.0), Some(3.0)));
        assert_eq!(figures.evenness, Some(0.8));
        let latencies = figures.latencies.unwrap();
        assert_eq!([0.6, 0.7].map(|share| latencies.percentile_us(share)), [1_003, 2_000]);
    }
}
