//! The only definition of every configuration key.
//!
//! A row of a table has name, type, unit and default. It also says when a change takes effect, why
//! the key has no effect if it has none, and its purpose. To add a key, add a row; `key.rs` describes
//! the form of a row. CONTRIBUTING.md lists the tests and documents that name each key.

mod cluster;
mod database;
mod global;
mod peer;
mod user;

pub use self::cluster::Cluster;
pub use self::database::Database;
pub use self::global::Global;
pub use self::peer::Peer;
pub use self::user::UserSettings;

use crate::key::{Key, Keyed as _, Scope};

impl Key {
    /// Returns every key: the global ones in the order of `SHOW CONFIG`, then those of databases,
    /// users, peers, clusters.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let global = Global::ROWS.iter().map(|row| &row.key);
        let database = Database::ROWS.iter().map(|row| &row.key);
        let user = UserSettings::ROWS.iter().map(|row| &row.key);
        let peer = Peer::ROWS.iter().map(|row| &row.key);
        let cluster = Cluster::ROWS.iter().map(|row| &row.key);
        global.chain(database).chain(user).chain(peer).chain(cluster)
    }

    /// Does PgBouncer have this key?
    #[must_use]
    pub fn is_pgbouncers(&self) -> bool {
        match self.scope {
            Scope::Global => Global::is_pgbouncers(self.name),
            Scope::Database | Scope::User => !self.own,
            Scope::Peer => true,
            Scope::Cluster => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keyed;
    use crate::source::Source;

    fn check_defaults<T: Keyed>() {
        for source in [Source::Ini, Source::Toml, Source::Url] {
            let mut target = T::default();
            for row in T::ROWS {
                if let Some(default) = row.key.default_in(source) {
                    assert_eq!((row.set)(&mut target, default), Ok(()), "{}", row.key.name);
                }
            }
            assert_eq!(target.changed(source).count(), 0);
        }
    }

    #[test]
    fn every_default_is_a_valid_value() {
        check_defaults::<Global>();
        check_defaults::<Database>();
        check_defaults::<UserSettings>();
        check_defaults::<Peer>();
        check_defaults::<Cluster>();
    }

    #[test]
    fn names_are_unique_and_helps_are_sentences() {
        let mut seen = std::collections::HashSet::new();
        for key in Key::all() {
            assert!(seen.insert((key.scope as u8, key.name)), "{} twice", key.name);
            assert!(key.help.ends_with('.') && key.help.len() > 10, "{}", key.name);
        }
    }
}
