//! The connection point for a row's load: PostgreSQL itself, or a pooler started for the row.

use anyhow::{Error, Result};

use super::generator::Place;
use super::row::Row;
use super::{Rig, Side};
use crate::process::Threads;
use crate::run::{Pooler, Setting};

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
            Side::PgBouncer if row.is_builtin => return Ok(None),
            Side::Weir if row.is_builtin => {
                let place = rig.cluster.builtin();
                return Ok(place.map(|place| Self { place, pooler: None }));
            }
            Side::Direct => return Ok(Some(Self { place: rig.cluster.place(), pooler: None })),
            Side::PgBouncer => &rig.programs.pgbouncer,
            Side::Weir => &rig.programs.weir,
        };
        if row.is_prepared() && !binary.prepares_statements() {
            return Ok(None);
        }
        let setting = Setting {
            unix: row.unix,
            scram: false,
            prepared: row.is_prepared(),
            tls: row.tls,
            pool_mode: "transaction",
            other: true,
            reports: false,
            servers,
            // Adds room for the few other clients.
            clients_max: (clients + 100).max(Setting::CLIENTS_MAX),
            workers: row.workers,
            cores: None,
        };
        let server = if row.unix { rig.cluster.socket() } else { rig.cluster.address() };
        let pooler = Pooler::start(rig.workplace, binary, &setting, &server)?;
        Ok(Some(Self { place: Place::of(&pooler.address)?, pooler: Some(pooler) }))
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
