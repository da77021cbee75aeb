//! The operator's switches for all databases, with and without pools. Plain data;
//! [`Switches::apply`] tells the pools.

use crate::lifecycle::close_reason::CloseReason;
use std::collections::BTreeMap;

use crate::admission::pool::{Gate, Pool};

/// The switches of one database, by the name that clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSwitches {
    /// PAUSE or KILL with this database's name.
    pub paused: bool,
    /// DISABLE: no new client is let in.
    pub disabled: bool,
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

    /// Sets the pool's gate. `exists`: the pool's database is still configured.
    pub fn apply<T>(&self, pool: &mut Pool<T>, exists: bool) {
        let database = self.database(&pool.key.database);
        pool.disabled = database.disabled;
        pool.set_gate(match () {
            () if self.closed => Gate::Closed(CloseReason::ShuttingDown),
            () if !exists => Gate::Closed(CloseReason::DatabaseRemoved),
            () if self.paused || database.paused => Gate::Paused,
            () if self.held => Gate::Held,
            () => Gate::Open,
        });
    }
}
