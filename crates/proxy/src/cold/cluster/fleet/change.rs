//! A change of the primary, with the agreement of the other members.

use std::time::Duration;

use ::cluster::fleet::{Hesitation, Membership, Phase, Succession, TTL, Turn, Writer};
use net::sys::process;
use tokio::time::{Instant, sleep};

use super::state::Fleet;
use crate::log;

/// The interval at which the records are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The time for the other members to wait: their leases end within it.
pub(in crate::cold::cluster) const AGREEING: Duration = Duration::from_secs(TTL as u64 + 5);
/// The time for the last term to be written. The leader writes it later, too.
const ENDING: Duration = Duration::from_secs(5);

/// A change that this Weir leads.
#[derive(Debug)]
pub(in crate::cold::cluster) struct Agreement<'a> {
    fleet: &'a Fleet,
    cluster: &'a str,
    succession: Succession,
}

impl<'a> Agreement<'a> {
    /// Begins to replace a lost primary.
    ///
    /// # Errors
    /// Why this Weir may not.
    pub(in crate::cold::cluster) fn after_loss(
        fleet: &'a Fleet,
        cluster: &'a str,
        node: &str,
    ) -> Result<Self, Hesitation> {
        Self::begin(fleet, cluster, |membership, now| Succession::after_loss(membership, node, now))
    }

    /// Begins a planned change.
    ///
    /// # Errors
    /// Why this Weir may not.
    pub(in crate::cold::cluster) fn by_order(
        fleet: &'a Fleet,
        cluster: &'a str,
        to: &str,
    ) -> Result<Self, Hesitation> {
        Self::begin(fleet, cluster, |membership, now| Succession::by_order(membership, to, now))
    }

    fn begin(
        fleet: &'a Fleet,
        cluster: &'a str,
        step: impl FnOnce(&mut Membership, u64) -> Result<Succession, Hesitation>,
    ) -> Result<Self, Hesitation> {
        let succession = fleet.with(|membership| step(membership, process::boottime_us()))?;
        Ok(Self { fleet, cluster, succession })
    }

    /// Returns what the last leader has done about this loss: is the primary fenced, and which node was
    /// ordered to promote itself?
    pub(in crate::cold::cluster) fn done_before(&self) -> (bool, Option<&str>) {
        match &self.succession.term().phase {
            Phase::Closed { is_fenced, ordered } => (*is_fenced, ordered.as_deref()),
            Phase::Serving | Phase::Draining { .. } => (false, None),
        }
    }

    /// Waits until the last term is written and all members wait in it. `limit`: how long.
    ///
    /// # Errors
    /// Why the change cannot go on. [`Hesitation::Awaited`]: the limit is over.
    pub(in crate::cold::cluster) async fn turn(
        &mut self,
        limit: Duration,
    ) -> Result<(), Hesitation> {
        let end = Instant::now() + limit;
        let mut told = None;
        loop {
            let turn = {
                let succession = &self.succession;
                self.fleet.with(|own| succession.turn(own, process::boottime_us()))
            };
            match turn {
                Turn::Now => return Ok(()),
                Turn::Lost(why) => return Err(why),
                Turn::Later(why) if Instant::now() >= end => return Err(why),
                Turn::Later(why) => {
                    if told.as_ref() != Some(&why) && matches!(why, Hesitation::Awaited(_)) {
                        log!("cluster {}: {why}", self.cluster);
                        told = Some(why);
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Proposes the next term, and waits until it is written and all members wait in it. Only then may
    /// another one be proposed.
    async fn advance(
        &mut self,
        step: impl FnOnce(&mut Succession, &mut Membership, u64),
        limit: Duration,
    ) -> Result<(), Hesitation> {
        let succession = &mut self.succession;
        self.fleet.with(|own| step(succession, own, process::boottime_us()));
        self.turn(limit).await
    }

    /// Has the members close their connections to the old primary.
    ///
    /// # Errors
    /// As those of [`Self::turn`].
    pub(in crate::cold::cluster) async fn close(&mut self) -> Result<(), Hesitation> {
        self.advance(Succession::close, AGREEING).await
    }

    /// Writes down that the fence has succeeded.
    ///
    /// # Errors
    /// As those of [`Self::turn`].
    pub(in crate::cold::cluster) async fn fenced(&mut self) -> Result<(), Hesitation> {
        self.advance(Succession::fenced, AGREEING).await
    }

    /// Writes down that the node is about to be ordered to promote itself.
    ///
    /// # Errors
    /// As those of [`Self::turn`].
    pub(in crate::cold::cluster) async fn orders(&mut self, node: &str) -> Result<(), Hesitation> {
        self.advance(|own, membership, now| own.orders(node, membership, now), AGREEING).await
    }

    /// Ends the change with this primary, and waits until the members know.
    pub(in crate::cold::cluster) async fn end(mut self, writer: Writer) {
        let ends = |own: &mut Succession, membership: &mut Membership, now| {
            own.ends(writer, membership, now);
        };
        let _ = self.advance(ends, ENDING).await;
    }
}

/// A change that has failed must not go on later by itself.
impl Drop for Agreement<'_> {
    fn drop(&mut self) {
        self.fleet.with(Membership::withdraw);
    }
}
