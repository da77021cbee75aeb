//! The connection point for a row's load: PostgreSQL itself, or a pooler started for the row.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};

use super::place::{Place, output, program};
use super::rig::{Rig, Side};
use super::row::{ONE, Row};
use crate::process::Threads;
use crate::run::{Pooler, Setting};

/// The maximum time until a pool is direct.
const DIRECT_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) place: Place,
    pooler: Option<Pooler>,
}

impl Stage {
    /// Prepares the side's stage, with `servers` per pool. Returns `None` if the side cannot do the
    /// row.
    pub(super) fn set(rig: &Rig<'_>, row: &Row, side: Side, servers: u32) -> Result<Option<Self>> {
        let clients = row.clients(rig.options.fleet);
        let binary = match side {
            Side::Direct if row.needs_pool() || clients > rig.options.direct_max => {
                return Ok(None);
            }
            Side::Direct => return Ok(Some(Self { place: rig.cluster.place(), pooler: None })),
            Side::DirectPool if !row.library.is_direct() => return Ok(None),
            Side::PgBouncer if row.library.is_pooler() => return Ok(None),
            Side::Weir | Side::DirectPool if row.library.is_pooler() => {
                return Self::in_server(rig, side == Side::DirectPool);
            }
            Side::PgBouncer => &rig.programs.pgbouncer,
            Side::Weir | Side::DirectPool => &rig.programs.weir,
        };
        if row.is_prepared() && !binary.prepares_statements() {
            return Ok(None);
        }
        let setting = Setting {
            unix: row.unix,
            scram: false,
            prepared: row.is_prepared(),
            tls: row.tls,
            pool_mode: "transaction".to_owned(),
            other: true,
            reports: false,
            servers,
            // Adds room for the few other clients.
            clients_max: (clients + 100).max(Setting::CLIENTS_MAX),
            workers: row.workers,
            direct_socket: (side == Side::DirectPool).then(|| rig.cluster.direct_socket()),
            cores: None,
        };
        let server = if row.unix { rig.cluster.socket() } else { rig.cluster.address() };
        let pooler = Pooler::start(rig.workplace, binary, &setting, &server)?;
        let mut stage = Self { place: Place::of(&pooler.address)?, pooler: Some(pooler) };
        if side == Side::DirectPool {
            let pools = || stage.psql("pgbouncer", "SHOW POOLS EXTENDED");
            stage.wait_until_direct(pools).map_err(|error| stage.explain(error))?;
        }
        Ok(Some(stage))
    }

    /// Returns the stage of the pooler that the server runs, if it runs one.
    fn in_server(rig: &Rig<'_>, is_direct: bool) -> Result<Option<Self>> {
        let Some(place) = rig.cluster.pooler() else { return Ok(None) };
        rig.cluster.set_data_path(is_direct)?;
        let stage = Self { place, pooler: None };
        if is_direct {
            stage.wait_until_direct(|| rig.cluster.pools())?;
        }
        Ok(Some(stage))
    }

    /// Logs in to the row's pool until it is direct: the first client of a pool tries a server.
    /// `pools` returns a line for each pool.
    fn wait_until_direct(&self, pools: impl Fn() -> Result<String>) -> Result<()> {
        let deadline = Instant::now() + DIRECT_MAX;
        loop {
            self.psql(Setting::DATABASE, ONE)?;
            let pools = pools()?;
            if pools.lines().any(is_direct) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the pool is not direct:\n{pools}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs one command as the row's user, and returns the result as bare text.
    fn psql(&self, database: &str, command: &str) -> Result<String> {
        let mut psql = Command::new(program("psql")?);
        self.place.lead(&mut psql);
        output(psql.args(["-X", "-q", "-A", "-t", "-d", database, "-c", command]))
    }

    /// Returns a stage without a server behind it.
    #[cfg(test)]
    pub(super) fn without_pooler() -> Self {
        Self { place: Place::at(0), pooler: None }
    }

    pub(super) fn has_pooler(&self) -> bool {
        self.pooler.is_some()
    }

    /// Returns the CPU time that the pooler has used, in nanoseconds.
    pub(super) fn cpu_ns(&self) -> Result<Option<u64>> {
        let Some(pooler) = &self.pooler else { return Ok(None) };
        let used = Threads::of(pooler.pid())?.since(&Threads::default());
        Ok(Some(used.cpu.run_ns))
    }

    /// Adds the pooler's log to an error.
    pub(super) fn explain(&mut self, error: Error) -> Error {
        match &mut self.pooler {
            Some(pooler) => pooler.explain(&error),
            None => error,
        }
    }
}

/// Returns whether a line of SHOW POOLS is that of the benchmark's pool, and the pool is direct.
fn is_direct(line: &str) -> bool {
    let mut columns = line.split('|');
    let [database, user] = [Setting::DATABASE, Setting::USER].map(Some);
    [columns.next(), columns.next()] == [database, user] && columns.any(|column| column == "direct")
}
