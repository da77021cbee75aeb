//! Whose servers somebody lacks: those of whoever counts in a limit that has no room for a pool that
//! starves. What others have is nobody's debt (`shares.rs`), be they in another database that has
//! a limit of its own.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::Scope;
use crate::ids::Identity;

#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    all: bool,
    databases: HashSet<&'a str, RandomState>,
    users: HashSet<&'a str, RandomState>,
}

impl<'a> Wanted<'a> {
    /// That limit has no room for one of this identity.
    pub(super) fn add(&mut self, scope: Scope, identity: &'a Identity) {
        match scope {
            Scope::Database => drop(self.databases.insert(&identity.database)),
            Scope::User => drop(self.users.insert(&identity.user)),
            Scope::Process => self.all = true,
        }
    }

    pub(super) fn includes(&self, identity: &Identity) -> bool {
        self.all
            || self.databases.contains(&*identity.database)
            || self.users.contains(&*identity.user)
    }
}
