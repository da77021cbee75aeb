//! A primary and two standbys.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Postgres, poll_until};

use super::crowd::Number;
use crate::process;
use crate::real::generator::initialise;
use crate::real::place::Place;
use crate::real::rig::RealOptions;
use crate::run::Setting;

const STANDBYS: usize = 2;
const SETTLED_MAX: Duration = Duration::from_secs(60);

/// The nodes and options of all rows.
pub(super) struct Rig<'a> {
    /// Nodes that no row changes.
    pub(super) nodes: Nodes,
    pub(super) options: &'a RealOptions,
}

/// The first one is the primary.
pub(super) struct Nodes(pub(super) Vec<Postgres>);

impl Nodes {
    /// Starts the nodes with pgbench's tables, a table for writes, and a function that tells the
    /// port of its node. Both poolers may balance this function.
    pub(super) fn start(options: &RealOptions) -> Result<Self> {
        let (user, database) = (Setting::USER, Setting::DATABASE);
        let primary = Postgres::start();
        for sql in [
            "ALTER SYSTEM SET synchronous_commit = on",
            "SELECT pg_reload_conf()",
            &format!("CREATE ROLE {user} LOGIN IN ROLE auth_trust"),
            &format!("CREATE DATABASE {database} OWNER {user}"),
        ] {
            primary.sql("postgres", sql);
        }
        primary.sql(
            database,
            &format!(
                "CREATE TABLE acts (client int, id int); GRANT ALL ON acts TO {user};
                 CREATE FUNCTION here() RETURNS int LANGUAGE internal STABLE AS 'inet_server_port'"
            ),
        );
        initialise(&options.weir, &Place::at(primary.port()), options.scale)?;
        Ok(Self(primary.with_standbys(STANDBYS)))
    }

    pub(super) fn primary(&self) -> &Postgres {
        &self.0[0]
    }

    pub(super) fn standbys(&self) -> &[Postgres] {
        &self.0[1..]
    }

    /// Changes a setting of these nodes.
    pub(super) fn set<'a>(nodes: impl IntoIterator<Item = &'a Postgres>, setting: &str) {
        for node in nodes {
            node.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
            node.sql("postgres", "SELECT pg_reload_conf()");
        }
    }

    /// Waits until the standbys have replayed all WAL of the primary.
    pub(super) fn settle(&self) {
        let end = self.primary().sql("postgres", "SELECT pg_current_wal_flush_lsn()").remove(0);
        let end = end[0].as_deref().unwrap_or_default();
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
        for standby in self.standbys() {
            poll_until(SETTLED_MAX, || {
                (standby.sql("postgres", &sql)[0][0].as_deref() == Some("t")).then_some(())
            });
        }
    }

    /// Returns how many of these writes the promoted standby lacks, and how many rows it has twice.
    pub(super) fn compare(&self, told: &[Number]) -> Result<(usize, usize)> {
        let is_primary = |node: &&Postgres| {
            node.sql("postgres", "SELECT pg_is_in_recovery()")[0][0].as_deref() == Some("f")
        };
        let promoted = self.standbys().iter().find(is_primary).context("nobody was promoted")?;
        let rows = promoted.sql(Setting::DATABASE, "SELECT client, id FROM acts");
        let number = |row: &Vec<Option<String>>| -> Option<Number> {
            let [Some(client), Some(id)] = &row[..] else { return None };
            Some((client.parse().ok()?, id.parse().ok()?))
        };
        let found: HashSet<_> = rows.iter().filter_map(number).collect();
        let lost = told.iter().filter(|told| !found.contains(told)).count();
        Ok((lost, rows.len() - found.len()))
    }

    /// Returns the CPU time that each node has used, in seconds.
    pub(super) fn cpu_s(&self) -> Result<Vec<f64>> {
        self.0.iter().map(|node| process::family_cpu_s(node.postmaster())).collect()
    }
}
