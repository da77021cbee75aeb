//! A change of the primary, with the agreement of the other members.

use std::time::Duration;

use ::cluster::fleet::{Hesitation, Membership, Phase, Succession, Turn, Writer};
use net::sys::process;
use tokio::time::{Instant, sleep};

use super::state::Fleet;
use crate::log;

/// The interval at which the records are looked at.
const LOOK: Duration = Duration::from_millis(5);
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

    /// Has the members close their connections to the old primary.
    pub(in crate::cold::cluster) fn close(&mut self) {
        let succession = &mut self.succession;
        self.fleet.with(|own| succession.close(own, process::boottime_us()));
    }

    /// The fence has succeeded.
    pub(in crate::cold::cluster) fn fenced(&mut self) {
        let succession = &mut self.succession;
        self.fleet.with(|own| succession.fenced(own, process::boottime_us()));
    }

    /// The node is about to be ordered to promote itself.
    pub(in crate::cold::cluster) fn orders(&mut self, node: &str) {
        let succession = &mut self.succession;
        self.fleet.with(|own| succession.orders(node, own, process::boottime_us()));
    }

    /// Ends the change with this primary, and waits until the members know.
    pub(in crate::cold::cluster) async fn end(mut self, writer: Writer) {
        let succession = &mut self.succession;
        self.fleet.with(|own| succession.ends(writer, own, process::boottime_us()));
        let _ = self.turn(ENDING).await;
    }
}

/// A change that has failed must not go on later by itself.
impl Drop for Agreement<'_> {
    fn drop(&mut self) {
        self.fleet.with(Membership::withdraw);
    }
}
