//! The leases of clusters with several Weirs, for the workers.
//!
//! The cold side shuts the pools before a lease ends. A process that was stopped meanwhile cannot: each
//! worker compares the end with a fresh clock before it sends to a writer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use engine::{ids::Micros, records::MembershipRecord};
use net::sys::process;

use super::hub::lock;

/// The end of one lease, by [`process::boottime_us`].
#[derive(Debug, Default)]
pub(crate) struct LeaseEnd(AtomicU64);

impl LeaseEnd {
    pub(crate) fn set(&self, until: Micros) {
        self.0.store(until, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        process::boottime_us() >= self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// There is one, or was one.
    exist: AtomicBool,
    /// By the names of clusters.
    ends: Mutex<BTreeMap<String, Arc<LeaseEnd>>>,
    /// The memberships of the predecessor.
    inherited: Mutex<BTreeMap<String, MembershipRecord>>,
}

impl Leases {
    #[inline]
    pub(crate) fn exist(&self) -> bool {
        self.exist.load(Ordering::Relaxed)
    }

    /// Has writers of this cluster need a lease from now on.
    pub(crate) fn require(&self, cluster: &str) -> Arc<LeaseEnd> {
        self.exist.store(true, Ordering::Relaxed);
        Arc::clone(lock(&self.ends).entry(cluster.to_owned()).or_default())
    }

    /// Takes over the lease of the predecessor, before its connections come.
    pub(crate) fn inherit(&self, record: MembershipRecord) {
        // Nobody needs a lease with `failover = follow`.
        if record.until > 0 {
            self.require(&record.cluster).set(record.until);
        }
        lock(&self.inherited).insert(record.cluster.clone(), record);
    }

    /// Returns the membership of the predecessor, once.
    pub(crate) fn take_inherited(&self, cluster: &str) -> Option<MembershipRecord> {
        lock(&self.inherited).remove(cluster)
    }

    /// Has the writers of this cluster need none any more.
    pub(crate) fn forget(&self, cluster: &str) {
        if let Some(end) = lock(&self.ends).remove(cluster) {
            end.set(Micros::MAX);
        }
    }

    /// Returns the lease that a new writer of this cluster needs.
    pub(crate) fn of(&self, cluster: &str) -> Option<Arc<LeaseEnd>> {
        if !self.exist() {
            return None;
        }
        lock(&self.ends).get(cluster).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_over_until_it_is_set_and_after_its_end() {
        let leases = Leases::default();
        assert!(leases.of("main").is_none());
        let end = leases.require("main");
        assert!(end.is_over());
        end.set(process::boottime_us() + 60_000_000);
        assert!(!leases.of("main").expect("required").is_over());
        leases.forget("main");
        assert!(leases.of("main").is_none());
    }
}
