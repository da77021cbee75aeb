//! Takes one measurement of one row on one pooler.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::binary::Binary;
use super::pooler::Pooler;
use super::row::{AT_WORK, Contest, Job, Row};
use super::setting::{Cores, Setting, Workers};
use super::workplace::{Tls, Workplace};
use crate::bulk;
use crate::flame::{Recorder, Recording};
use crate::flood::{Flood, FloodOutcome};
use crate::load::{Load, Memory, Outcome, Stop};
use crate::reactor::Reactor;
use crate::socket;
use crate::storm::{Storm, StormOutcome};
use crate::tls::TlsContext;
use crate::traffic::{Credentials, Protocol, Sessions, Traffic, Work};

const LOGIN_CLIENTS: usize = 10;
/// Transactions per second of the clients at work during a storm. The pooler's core could do many
/// more.
const STORM_RATE: f64 = 4_000.0;
const WARM_UP: Duration = Duration::from_millis(300);

/// The conditions of the measurements.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) workplace: &'a Workplace,
    /// The cores that may be used, at least one.
    pub(super) cores: Vec<usize>,
    pub(super) interval: Duration,
    /// Weir's pool mode in the rows that compare it with PgBouncer.
    pub(super) pool_mode: &'a str,
    /// Takes samples of the pooler's stacks during the measurement, if set.
    pub(super) recorder: Option<&'a Recorder>,
}

/// The result of one measurement.
#[derive(Debug)]
pub(super) struct Sample {
    /// The row's figures, one for each of its parts.
    pub(super) figures: Vec<f64>,
    /// Transactions or logins per second, or MB/s of a large result.
    pub(super) rate: Option<f64>,
    pub(super) detail: Value,
}

impl Bench<'_> {
    /// Starts the pooler with a canned server behind it, puts the row's load on it, and ends it.
    pub(super) fn sample(&self, row: &Row, binary: &Binary, side: usize) -> Result<Sample> {
        let (clients, work) = match row.job {
            Job::Query { clients, protocol, .. } => (clients, Work::Query(protocol)),
            Job::Login { .. } => (LOGIN_CLIENTS, Work::Login),
            Job::Bulk { row_bytes } => {
                (1, Work::Bulk { row_bytes, total_bytes: bulk::TOTAL_BYTES })
            }
            Job::Idle { clients } => (clients, Work::Query(Protocol::Simple)),
            Job::Storm { .. } => (AT_WORK, Work::Query(Protocol::Simple)),
            Job::Flood(_) => (1, Work::Query(Protocol::Simple)),
        };
        let setting = self.setting(row, binary, side);
        let mut reactor = Reactor::new(Traffic::new(work, Credentials::usual()))?;
        // Transaction mode would lose the settings.
        if let Contest::Modes(sessions) = row.contest {
            let groups = if side == 1 { sessions.groups } else { 0 };
            reactor.traffic.sessions = Sessions { groups, ..sessions };
        }
        if row.tls != Tls::None {
            reactor.tls = Some(TlsContext::new(row.tls == Tls::Resumed)?);
        }
        let server = if setting.unix { self.workplace.server_socket() } else { socket::local(0) };
        let server = reactor.listen(&server)?;
        let mut pooler = Pooler::start(self.workplace, binary, &setting, &server)?;
        let load = Load {
            pooler: pooler.address.clone(),
            clients,
            warm_up: WARM_UP,
            stop: Stop::After(self.interval),
            watch: Some(pooler.pid()),
        };
        let recorder = self.recorder;
        let recording = recorder.map(|recorder| recorder.start(pooler.pid())).transpose()?;
        let measured = match row.job {
            Job::Idle { .. } => load
                .measure_memory(&mut reactor, pooler.pid())
                .map(|memory| Sample::memory(&memory)),
            Job::Storm { coming } => {
                let storm = Storm {
                    pooler: pooler.address.clone(),
                    at_work: AT_WORK,
                    rate: STORM_RATE,
                    calm: self.interval,
                    coming,
                    watch: pooler.pid(),
                };
                storm.measure(&mut reactor).map(|outcome| Sample::storm(&outcome))
            }
            Job::Flood(pattern) => {
                let flood = Flood {
                    pooler: pooler.address.clone(),
                    pattern,
                    interval: self.interval,
                    watch: pooler.pid(),
                };
                flood.measure(&mut reactor).map(|outcome| Sample::flood(&outcome))
            }
            Job::Query { .. } | Job::Login { .. } | Job::Bulk { .. } => {
                load.measure(&mut reactor).map(|outcome| Sample::of(row, &outcome))
            }
        };
        let sample = measured.map_err(|error| pooler.explain(&error))?;
        recording.map(Recording::end).transpose()?;
        Ok(sample)
    }

    fn setting(&self, row: &Row, binary: &Binary, side: usize) -> Setting {
        Setting {
            unix: matches!(row.job, Job::Query { unix: true, .. }),
            scram: row.job == Job::Login { scram: true },
            prepared: row.is_prepared()
                || (matches!(row.job, Job::Flood(_)) && binary.prepares_statements()),
            tls: row.tls,
            pool_mode: match row.contest {
                Contest::Modes(_) if side == 1 => "auto",
                Contest::Poolers if side == 1 => self.pool_mode,
                _ => "transaction",
            }
            .to_owned(),
            other: false,
            reports: row.reports,
            direct_socket: None,
            servers: Setting::SERVERS,
            clients_max: match row.job {
                Job::Storm { coming } => AT_WORK + coming,
                Job::Idle { clients } => clients + 1,
                _ => Setting::CLIENTS_MAX,
            },
            workers: match row.contest {
                Contest::Workers { schedule, .. } if side == 1 => Workers::Two(schedule),
                _ => Workers::One,
            },
            cores: Some(self.cores_for(row.contest)),
        }
    }

    /// Gives the pooler the first core and the peers the last one. Workers that are to be apart get
    /// the first two cores; the peers get the other cores, or share all if there are no others.
    fn cores_for(&self, contest: Contest) -> Cores {
        let (first, last) = (0, self.cores.len() - 1);
        let cores = |range: RangeInclusive<usize>| self.cores[range].to_vec();
        match contest {
            Contest::Workers { apart: true, .. } => Cores {
                pooler: cores(first..=last.min(1)),
                peers: if last > 1 { cores(2..=last) } else { cores(first..=last) },
            },
            _ => Cores { pooler: cores(first..=first), peers: cores(last..=last) },
        }
    }
}

impl Sample {
    fn memory(memory: &Memory) -> Self {
        Self { figures: memory.per_client().to_vec(), rate: None, detail: memory.to_json() }
    }

    fn storm(outcome: &StormOutcome) -> Self {
        let (before, during) = (outcome.before.p99_us as f64, outcome.during.p99_us as f64);
        let resident_mb = outcome.resident_bytes as f64 / 1e6;
        let figures = vec![outcome.seconds * 1e3, before, during, during / before, resident_mb];
        Self { figures, rate: None, detail: outcome.to_json() }
    }

    fn flood(outcome: &FloodOutcome) -> Self {
        let wait_ms = outcome.wait.as_secs_f64() * 1e3;
        let figures = vec![outcome.short_us, outcome.long_us, outcome.growth(), wait_ms];
        Self { figures, rate: None, detail: outcome.to_json() }
    }

    fn of(row: &Row, outcome: &Outcome) -> Self {
        let cpu_us = outcome.used.cpu.run_ns as f64 / 1e3;
        let (figure, done) = match row.job {
            Job::Login { .. } => (cpu_us / outcome.logins as f64, outcome.logins as f64),
            // Nanoseconds per byte equal seconds per GB.
            Job::Bulk { .. } => {
                (outcome.used.cpu.run_ns as f64 / outcome.bytes as f64, outcome.bytes as f64 / 1e6)
            }
            Job::Query { .. } | Job::Idle { .. } | Job::Storm { .. } | Job::Flood(_) => {
                (cpu_us / outcome.transactions as f64, outcome.transactions as f64)
            }
        };
        let mut figures = vec![figure];
        if let Contest::Workers { .. } = row.contest {
            figures.push(done / (outcome.used.busiest_ns as f64 / 1e9));
            figures.push(outcome.used.sleeps as f64 / done);
        }
        Self { figures, rate: Some(done / outcome.seconds), detail: outcome.to_json() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{CpuTime, Usage};
    use crate::run::row::select;

    #[test]
    fn a_figure_is_cpu_time_per_unit_of_work() {
        let outcome = Outcome {
            seconds: 2.0,
            transactions: 100,
            logins: 50,
            resumed: 0,
            bytes: 4_000_000,
            p50_us: 0,
            p99_us: 0,
            starved: 0,
            used: Usage {
                cpu: CpuTime { run_ns: 1_000_000, wait_ns: 0 },
                busiest_ns: 500_000,
                sleeps: 25,
            },
        };
        for (name, figures, rate) in [
            ("cpu-10", &[10.0][..], 50.0),
            ("workers-2", &[10.0, 200_000.0, 0.25], 50.0),
            ("login-scram", &[20.0], 25.0),
            ("bulk-100", &[0.25], 2.0),
        ] {
            let row = select(&[name.to_owned()]).unwrap()[0];
            let sample = Sample::of(row, &outcome);
            assert_eq!((&sample.figures[..], sample.rate), (figures, Some(rate)), "{name}");
            assert_eq!(figures.len(), row.parts().len(), "{name}");
        }
    }
}
