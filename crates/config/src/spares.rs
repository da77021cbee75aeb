//! `min_spare_servers` and `max_spare_servers`: how many idle servers a pool has beyond its demand.

use crate::config::Config;
use crate::reason::Reason;
use crate::table::{Database, Global};

/// The bounds of a pool's spare servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spares {
    /// 0 = none are opened.
    pub min: u32,
    /// 0 = none are closed.
    pub max: u32,
}

impl Spares {
    /// Returns the bounds for pools of a database, or the global ones.
    pub(crate) fn of(global: &Global, database: Option<&Database>) -> Self {
        let own = |key: fn(&Database) -> Option<u32>, or| database.and_then(key).unwrap_or(or);
        Self {
            min: own(|database| database.min_spare_servers, global.min_spare_servers),
            max: own(|database| database.max_spare_servers, global.max_spare_servers),
        }
    }

    /// Does the number of spare servers follow the demand at all?
    #[must_use]
    pub fn are_wanted(self) -> bool {
        self != Self::default()
    }

    /// Returns the mistake if the bounds contradict each other.
    pub(crate) fn mistake(self) -> Option<Reason> {
        let Self { min, max } = self;
        (max > 0 && min > max).then_some(Reason::SparesCrossed { min, max })
    }
}

impl Config {
    /// Returns how many spare servers each pool of `database` has.
    pub fn spares(&self, database: &Database) -> Spares {
        Spares::of(&self.global, Some(database))
    }

    /// Returns the mistake if the bounds contradict each other, for all databases or for one.
    pub(crate) fn crossed_spares(&self) -> Option<Reason> {
        let databases = self.databases.values().chain(&self.fallback);
        let own = databases.map(|database| Spares::of(&self.global, Some(database)));
        std::iter::once(Spares::of(&self.global, None)).chain(own).find_map(Spares::mistake)
    }
}
