//! Tells whose servers a starving pool lacks: those that count in a full limit. Servers of other
//! databases, with limits of their own, cost their pools nothing (`shares.rs`).

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
    /// Notes that this limit has no room for a server of this identity.
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
