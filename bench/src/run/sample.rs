//! One measurement of one row on one pooler, from its start to its end.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::pooler::{Binary, Pooler, Setting, Workplace};
use super::row::{Job, Row, Tls};
use crate::auth::Credentials;
use crate::command::BULK_BYTES;
use crate::load::{Load, Outcome, Stop};
use crate::reactor::Reactor;
use crate::socket::Address;
use crate::tls::TlsContext;
use crate::traffic::{Protocol, Sessions, Traffic, Work};

const LOGIN_CLIENTS: usize = 10;
const WARM_UP: Duration = Duration::from_millis(300);

/// Where and how long is measured.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) workplace: &'a Workplace,
    pub(super) pooler_core: usize,
    pub(super) peer_core: usize,
    pub(super) interval: Duration,
}

/// What one measurement gave.
#[derive(Debug)]
pub(super) struct Sample {
    /// The row's figures, in its unit: one, or two for idle clients (before and after a query).
    pub(super) figures: Vec<f64>,
    /// Transactions or logins a second, MB/s of a large result.
    pub(super) rate: Option<f64>,
    pub(super) detail: Value,
}

impl Bench<'_> {
    /// Starts the pooler before a canned server, puts the row's load on it, and ends it.
    pub(super) fn sample(&self, row: &Row, binary: &Binary, side: usize) -> Result<Sample> {
        let (clients, work) = match row.job {
            Job::Query { clients, protocol, .. } => (clients, Work::Query(protocol)),
            Job::Login { .. } => (LOGIN_CLIENTS, Work::Login),
            Job::Bulk { row_bytes } => (1, Work::Bulk { row_bytes, total_bytes: BULK_BYTES }),
            Job::Idle { clients } => (clients, Work::Query(Protocol::Simple)),
        };
        let setting = Setting {
            unix: matches!(row.job, Job::Query { unix: true, .. }),
            scram: row.job == Job::Login { scram: true },
            prepared: row.is_prepared(),
            tls: row.tls,
            pool_mode: if row.modes.is_some() && side == 1 { "auto" } else { "transaction" },
            other: false,
            servers: Setting::SERVERS,
            clients_max: Setting::CLIENTS_MAX,
            cores: Some((self.pooler_core, self.peer_core)),
        };
        let credentials = Credentials::new(Setting::USER, Setting::DATABASE, Setting::PASSWORD);
        let mut reactor = Reactor::new(Traffic::new(work, credentials))?;
        // Transaction mode would lose what is set.
        let modes = row.modes.unwrap_or_default();
        let groups = if side == 1 { modes.groups } else { 0 };
        reactor.traffic.sessions = Sessions { groups, ..modes };
        if row.tls != Tls::None {
            reactor.tls = Some(TlsContext::new(row.tls == Tls::Resumed)?);
        }
        let server = if setting.unix {
            self.workplace.server_socket()
        } else {
            Address::Tcp(([127, 0, 0, 1], 0).into())
        };
        let server = reactor.listen(&server)?;
        let mut pooler = Pooler::start(self.workplace, binary, &setting, &server)?;
        let load = Load {
            pooler: pooler.address.clone(),
            clients,
            warm_up: WARM_UP,
            stop: Stop::After(self.interval),
            watch: Some(pooler.pid()),
        };
        let measured = if let Job::Idle { .. } = row.job {
            load.measure_memory(&mut reactor, pooler.pid()).map(|memory| Sample {
                figures: vec![memory.idle_per_client(), memory.asked_per_client()],
                rate: None,
                detail: memory.to_json(),
            })
        } else {
            load.measure(&mut reactor).map(|outcome| Sample::of(row.job, &outcome))
        };
        measured.map_err(|error| pooler.explain(&error))
    }
}

impl Sample {
    fn of(job: Job, outcome: &Outcome) -> Self {
        let cpu_us = outcome.cpu.run_ns as f64 / 1e3;
        let (figure, done) = match job {
            Job::Login { .. } => (cpu_us / outcome.logins as f64, outcome.logins as f64),
            // Nanoseconds per byte are seconds per GB.
            Job::Bulk { .. } => {
                (outcome.cpu.run_ns as f64 / outcome.bytes as f64, outcome.bytes as f64 / 1e6)
            }
            Job::Query { .. } | Job::Idle { .. } => {
                (cpu_us / outcome.transactions as f64, outcome.transactions as f64)
            }
        };
        Self {
            figures: vec![figure],
            rate: Some(done / outcome.seconds),
            detail: outcome.to_json(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::CpuTime;

    #[test]
    fn a_figure_is_cpu_per_what_was_done() {
        let outcome = Outcome {
            seconds: 2.0,
            transactions: 100,
            logins: 50,
            resumed: 0,
            bytes: 4_000_000,
            p50_us: 0,
            p99_us: 0,
            starved: 0,
            cpu: CpuTime { run_ns: 1_000_000, wait_ns: 0 },
        };
        let query = Job::Query { clients: 1, protocol: Protocol::Simple, unix: false };
        for (job, figure, rate) in [
            (query, 10.0, 50.0),
            (Job::Login { scram: true }, 20.0, 25.0),
            (Job::Bulk { row_bytes: 100 }, 0.25, 2.0),
        ] {
            let sample = Sample::of(job, &outcome);
            assert_eq!((sample.figures, sample.rate), (vec![figure], Some(rate)), "{job:?}");
        }
    }
}
