//! The operator's switches for all databases, with and without pools. Plain data;
//! [`Switches::apply`] tells the pools.

use crate::lifecycle::close_reason::CloseReason;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::admission::pool::{Gate, Outage, Pool};
use crate::handover::records::PrimaryRecord;
use crate::ids::Micros;
use crate::settings::{PoolSettings, Primary, Target};
use config::Config;

/// The switches of one database, by the name that clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSwitches {
    /// PAUSE or KILL with this database's name.
    pub paused: bool,
    /// DISABLE: no new client is let in.
    pub disabled: bool,
}

/// The primary of a cluster, for the pools of its databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryState {
    /// The present primary, or else the last one.
    pub primary: Option<Primary>,
    /// Why there is no primary now.
    pub outage: Option<Arc<Outage>>,
}

#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// PAUSE without a name.
    pub paused: bool,
    /// SUSPEND: nothing is read. Pools are not told.
    pub suspended: bool,
    /// Another process is taking over: no server is linked.
    pub held: bool,
    /// Weir waits until its servers are released, and then ends.
    pub closed: bool,
    databases: BTreeMap<String, DatabaseSwitches>,
    /// By name; those of which nothing is known yet are missing.
    clusters: BTreeMap<String, PrimaryState>,
}

impl Switches {
    pub fn database(&self, name: &str) -> DatabaseSwitches {
        self.databases.get(name).copied().unwrap_or_default()
    }

    pub fn database_mut(&mut self, name: &str) -> &mut DatabaseSwitches {
        self.databases.entry(name.to_owned()).or_default()
    }

    /// Forgets the switches of databases that are no longer configured.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.databases.retain(|name, _| keep(name));
    }

    /// Is a switch on that concerns all databases?
    pub fn is_halted(&self) -> bool {
        self.paused || self.suspended || self.held || self.closed
    }

    pub fn any_database_paused(&self) -> bool {
        self.databases.values().any(|database| database.paused)
    }

    /// Returns the databases that have a switch on.
    pub fn switched(&self) -> impl Iterator<Item = &String> {
        let is_on = |own: &DatabaseSwitches| *own != DatabaseSwitches::default();
        self.databases.iter().filter(move |(_, own)| is_on(own)).map(|(name, _)| name)
    }

    /// Returns the databases that let no new client in.
    pub fn disabled(&self) -> impl Iterator<Item = &String> {
        self.databases.iter().filter(|(_, own)| own.disabled).map(|(name, _)| name)
    }

    /// Sets the primary of a cluster.
    pub fn set_primary(&mut self, cluster: &str, state: PrimaryState) {
        self.clusters.insert(cluster.to_owned(), state);
    }

    /// Returns what is known about the primary of a cluster.
    pub fn primary(&self, cluster: &str) -> Option<&PrimaryState> {
        self.clusters.get(cluster)
    }

    /// Returns the primaries, for another process.
    pub fn records(&self) -> Vec<PrimaryRecord> {
        let known = self.clusters.iter().filter_map(|(cluster, state)| {
            let primary = state.primary.clone()?;
            let outage = state.outage.as_ref().map(|outage| outage.why.clone());
            Some(PrimaryRecord { cluster: cluster.clone(), primary, outage })
        });
        known.collect()
    }

    /// Takes over the primary that another process knew, unless no node has its address any more.
    pub fn resume_primary(&mut self, record: PrimaryRecord, config: &Config, now: Micros) {
        let PrimaryRecord { cluster, primary, outage } = record;
        let nodes = config.clusters.get(&cluster).map_or(&[][..], |cluster| &cluster.nodes);
        if nodes.iter().any(|node| Target::new(&node.host, node.port) == primary.target) {
            let outage = outage.map(|why| Arc::new(Outage { why, since: now }));
            self.set_primary(&cluster, PrimaryState { primary: Some(primary), outage });
        }
    }

    /// Forgets the primaries of clusters that are no longer configured.
    pub fn retain_clusters(&mut self, keep: impl Fn(&str) -> bool) {
        self.clusters.retain(|name, _| keep(name));
    }

    /// Returns the settings with the target of the pool's cluster, if it has one.
    pub fn aimed(&self, mut settings: Arc<PoolSettings>) -> Arc<PoolSettings> {
        let cluster = settings.cluster.as_ref().and_then(|name| self.clusters.get(name));
        if let Some(primary) = cluster.and_then(|state| state.primary.as_ref()) {
            Arc::make_mut(&mut settings).targets = vec![primary.target.clone()];
        }
        settings
    }

    /// Sends the pool's servers to the primary of its cluster. Returns false if that has none.
    fn follow_primary<T>(&self, pool: &mut Pool<T>) -> bool {
        let Some(name) = pool.settings.cluster.clone() else {
            pool.follow_nobody();
            return true;
        };
        let Some(state) = self.clusters.get(&name) else {
            let why = "its nodes were not asked yet".to_owned();
            pool.outage.get_or_insert_with(|| Arc::new(Outage { why, since: 0 }));
            return false;
        };
        if let Some(primary) = &state.primary {
            pool.follow(name, primary);
        }
        pool.outage.clone_from(&state.outage);
        state.outage.is_none()
    }

    /// Sets the pool's gate. `exists`: the pool's database is still configured.
    pub fn apply<T>(&self, pool: &mut Pool<T>, exists: bool) {
        let database = self.database(&pool.key.database);
        pool.disabled = database.disabled;
        let has_primary = self.follow_primary(pool);
        pool.set_gate(match () {
            () if self.closed => Gate::Closed(CloseReason::ShuttingDown),
            () if !exists => Gate::Closed(CloseReason::DatabaseRemoved),
            () if self.paused || database.paused => Gate::Paused,
            () if self.held => Gate::Held,
            () if !has_primary => Gate::NoPrimary,
            () => Gate::Open,
        });
    }
}
