//! An operator's orders for the failovers of clusters, with one Weir or several.

use std::time::Duration;

use ::cluster::fleet::{Membership, Pause};
use config::FailoverKind;
use tokio::time::{sleep, timeout};

use super::state::Fleet;
use crate::{cold::controller::Controller, exchange::hub::lock, log};

/// An operator waits for etcd for so long.
const PATIENCE: Duration = Duration::from_secs(5);

impl Fleet {
    /// Waits until the records show that an order is carried out.
    async fn await_records(&self, is_done: impl Fn(&Membership) -> bool) -> Result<(), String> {
        let done = async {
            while !is_done(&lock(&self.membership)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, done).await.map_err(|_| {
            let mut membership = lock(&self.membership);
            membership.withdraw();
            let why = membership.trouble().unwrap_or("it has not answered in time");
            format!("etcd does not have the order: {why}")
        })
    }

    /// Has the members replace no lost primary from now on, or ends that.
    async fn pause(&self, is_paused: bool) -> Result<(), String> {
        self.with(|membership| {
            let by = membership.me().member.clone();
            membership.propose_pause(is_paused.then_some(Pause { by }));
        });
        self.await_records(|membership| membership.view().pause.is_some() == is_paused).await
    }

    /// Removes a member that is silent. Returns false if there is none of this name.
    async fn forget(&self, member: &str) -> Result<bool, String> {
        if !self.with(|membership| membership.propose_removal(member))? {
            return Ok(false);
        }
        let is_gone = |own: &Membership| !own.view().members.contains_key(member);
        self.await_records(is_gone).await.map(|()| true)
    }
}

impl Controller {
    /// Carries out FAILOVER PAUSE or RESUME, for one cluster or for all that have `failover = own`.
    ///
    /// # Errors
    /// When there is no such cluster, or etcd does not have the order in time.
    pub(crate) async fn pause_failovers(
        &self,
        cluster: Option<&str>,
        is_paused: bool,
    ) -> Result<(), String> {
        let mut watched = match cluster {
            Some(name) => vec![self.watched(name)?],
            None => self.all_watched(),
        };
        watched.retain(|own| own.configured.failover == FailoverKind::Own);
        if watched.is_empty() {
            return Err("no such cluster has failover = own".to_owned());
        }
        let mut troubles = Vec::new();
        for own in watched {
            if let Some(fleet) = &own.fleet {
                let told = fleet.pause(is_paused).await;
                troubles.extend(told.err().map(|why| format!("cluster {}: {why}", own.name)));
                continue;
            }
            let mut paused = lock(&self.0.clusters.paused);
            match is_paused {
                true => drop(paused.insert(own.name.clone())),
                false => drop(paused.remove(&own.name)),
            }
            log!(
                "cluster {}: {}",
                own.name,
                if is_paused {
                    "no failover: FAILOVER PAUSE"
                } else {
                    "failovers are allowed again"
                }
            );
        }
        if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
    }

    /// Carries out FAILOVER FORGET.
    ///
    /// # Errors
    /// When the member is unknown or takes part, or etcd does not have the order in time.
    pub(crate) async fn forget_member(&self, member: &str) -> Result<(), String> {
        let (mut is_known, mut troubles) = (false, Vec::new());
        for own in self.all_watched() {
            let Some(fleet) = &own.fleet else { continue };
            match fleet.forget(member).await {
                Ok(is_there) => is_known |= is_there,
                Err(why) => troubles.push(format!("cluster {}: {why}", own.name)),
            }
        }
        match (is_known, troubles.is_empty()) {
            (_, false) => Err(troubles.join("; ")),
            (true, true) => Ok(()),
            (false, true) => Err(format!("no such member: {member}")),
        }
    }
}
