//! This Weir's membership in one cluster, which the tasks of `fleet.rs` and the console share.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use ::cluster::fleet::{Gate, Me, Membership, VIEW, Writer};
use config::{Cluster as Configured, FailoverKind};
use net::sys::process;
use tokio::sync::{Notify, watch};

use super::means::{self, Means, State};
use crate::exchange::{
    hub::lock,
    leases::{LeaseEnd, Leases},
};

#[derive(Debug)]
pub(in crate::cold::cluster) struct Fleet {
    pub(super) membership: Mutex<Membership>,
    /// For the workers. None with `failover = follow`: nobody needs a lease then.
    end: Option<Arc<LeaseEnd>>,
    /// The highest number of a term in which all pools wait: `waits_in` of `cluster::fleet::Own`.
    pub(super) waits_in: AtomicU64,
    /// The records have changed.
    pub(super) changed: Notify,
    /// The number of times that all records were read, and the last revision.
    pub(super) loaded: watch::Sender<(u64, i64)>,
    pub(super) is_leaving: AtomicBool,
    pub(super) address: Mutex<State>,
    /// Why etcd cannot be used at all, for example for a file that cannot be read.
    pub(super) trouble: Mutex<Option<String>>,
}

/// Returns the name of this Weir among those of the cluster.
fn member_name(port: u16, configured: &Configured) -> String {
    let usual = || format!("{}:{port}", process::host_name());
    configured.member.clone().unwrap_or_else(usual)
}

fn random_word() -> String {
    let mut word = [0; 8];
    net::random::fill(&mut word);
    format!("{:016x}", u64::from_ne_bytes(word))
}

impl Fleet {
    /// Returns this Weir's membership in a cluster; None without etcd. It stays the same over a reload
    /// that does not change the keys for etcd.
    pub(in crate::cold::cluster) fn of(
        (leases, port): (&Leases, u16),
        name: &str,
        configured: &Configured,
        known: Option<(&Configured, &Arc<Self>)>,
    ) -> Option<Arc<Self>> {
        if configured.etcd.is_empty() {
            leases.forget(name);
            return None;
        }
        let keys = |own: &Configured| (own.etcd_prefix.clone(), own.member.clone(), own.failover);
        if let Some((_, known)) = known.filter(|(own, _)| keys(own) == keys(configured)) {
            return Some(Arc::clone(known));
        }
        let is_own = configured.failover == FailoverKind::Own;
        if !is_own {
            leases.forget(name);
        }
        let inherited = leases.take_inherited(name);
        // An earlier process may have left it. Its life time is shorter.
        let (by, ends_at) = (Means::of(configured), process::boottime_us() + VIEW);
        let me = Me {
            member: member_name(port, configured),
            instance: inherited.as_ref().map_or_else(random_word, |own| own.instance.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            follows: !is_own,
            // The predecessor has renewed its lease before now.
            address_until: inherited.as_ref().map_or(0, |_| process::boottime_us() + VIEW),
            shared_until: inherited.map_or(0, |own| own.until),
        };
        Some(Arc::new(Self {
            membership: Mutex::new(Membership::new(me)),
            end: is_own.then(|| leases.require(name)),
            waits_in: AtomicU64::new(0),
            changed: Notify::new(),
            loaded: watch::Sender::new((0, 0)),
            is_leaving: AtomicBool::new(false),
            address: Mutex::new(State { by, ends_at, ..State::default() }),
            trouble: Mutex::default(),
        }))
    }

    /// This Weir is not one of several any more: removes the virtual address, unless commands do that.
    pub(in crate::cold::cluster) fn abandon_address(&self) {
        match lock(&self.address).by.take() {
            // The kernel ends what cannot be removed.
            Some(Means::Kernel(all)) => drop(means::remove(&all)),
            Some(Means::Commands { .. }) | None => {}
        }
    }

    /// Does the membership decide whether clients may use the primary (`failover = own`)?
    pub(in crate::cold::cluster) fn guards(&self) -> bool {
        self.end.is_some()
    }

    /// Changes the membership, and tells the workers the end of the lease.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Membership) -> T) -> T {
        let mut membership = lock(&self.membership);
        let outcome = change(&mut membership);
        if let Some(end) = &self.end {
            end.set(membership.lease().until());
        }
        drop(membership);
        self.changed.notify_waiters();
        outcome
    }

    /// Returns why this Weir does not begin to replace the lost primary `node`.
    pub(in crate::cold::cluster) fn hesitation(&self, node: &str) -> Option<String> {
        let membership = lock(&self.membership);
        membership.may_begin(node, process::boottime_us()).err().map(|why| why.to_string())
    }

    /// Returns why no member replaces a lost primary, whatever happens.
    pub(in crate::cold::cluster) fn paused_because(&self) -> Option<String> {
        let membership = lock(&self.membership);
        let pause = membership.view().pause.as_ref()?;
        Some(format!("FAILOVER PAUSE by member {}", pause.by))
    }

    /// May clients use this writer, which the pools have?
    pub(super) fn gate_to(&self, writer: Option<&Writer>) -> Gate {
        let membership = lock(&self.membership);
        match self.guards() {
            true => membership.gate(writer, process::boottime_us()),
            false => Gate::Open,
        }
    }

    /// Returns why this Weir carries out no SWITCHOVER: another member may replace the primary meanwhile.
    pub(in crate::cold::cluster) fn defers(&self) -> Option<String> {
        let membership = lock(&self.membership);
        let view = membership.view();
        let other = view.members.iter().find(|(_, own)| !own.follows)?.0;
        let leader = view.leader.as_ref().map_or(other, |leader| &leader.record.member);
        (!self.guards()).then(|| format!("member {leader} leads: order it there"))
    }
}
