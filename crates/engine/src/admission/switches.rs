//! What the operator has switched off, for databases there are pools of and for those there are
//! not. Plain data; the pools are told of it by [`Switches::apply`].

use crate::lifecycle::close_reason::CloseReason;
use std::collections::BTreeMap;

use crate::admission::pool::{Gate, Pool};

/// One database, as clients call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSwitches {
    /// PAUSE or KILL with its name.
    pub paused: bool,
    /// DISABLE: nobody new is let in.
    pub disabled: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// PAUSE without a name.
    pub paused: bool,
    /// SUSPEND: nothing is read. The pools need not know.
    pub suspended: bool,
    /// Another process is taking over: nothing is linked.
    pub held: bool,
    /// The pooler waits for its servers to be released, and then ends.
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

    /// What is remembered of a database ends with its entry in the configuration.
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

    /// The databases of which a switch is on.
    pub fn switched(&self) -> impl Iterator<Item = &String> {
        let is_on = |own: &DatabaseSwitches| *own != DatabaseSwitches::default();
        self.databases.iter().filter(move |(_, own)| is_on(own)).map(|(name, _)| name)
    }

    /// The databases nobody new is let into.
    pub fn disabled(&self) -> impl Iterator<Item = &String> {
        self.databases.iter().filter(|(_, own)| own.disabled).map(|(name, _)| name)
    }

    /// `exists`: is the pool's database still configured?
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
