//! The idle servers of a pool, each with the worker that it stays with, in the order in which they
//! were parked; and which of them is given out.
//!
//! Whoever needs one gets one that has its own values, if there is any: it need not be asked to take
//! them. In a pool whose clients have set nothing all are alike, and the first one looked at is it.

use std::collections::VecDeque;

use super::{Gate, Pool};
use crate::ids::{Handle, WorkerId};
use crate::server::Server;
use crate::values::Digest;

/// So many servers of a worker are looked at for one with the right values.
const SEARCHED_MAX: usize = 64;

/// Who finds no such server changes another one: of so many that were used last, the one used longest
/// ago. Were it the one used last, a few servers would change their values all the time while others
/// keep values that nobody asks for any more. Were it the oldest of all, none would ever be idle for
/// `server_idle_timeout`.
const SPARED_MAX: usize = 16;

impl Pool {
    pub(super) fn take_open(
        &mut self,
        worker: WorkerId,
        values: Option<Digest>,
    ) -> Option<Box<Server>> {
        // A held pool may have idle servers, an other one that is not open has none.
        if self.gate == Gate::Held { None } else { self.take_idle(worker, values) }
    }

    /// Own servers come first, the one used last before all others, since its process is warm; then
    /// one that has to be stolen from another worker: its coldest. Among them those with these values
    /// are preferred: to steal a server costs less than to have one take other values. With
    /// `server_round_robin` all own ones are taken in turn, whatever they have.
    pub(super) fn take_idle(
        &mut self,
        worker: WorkerId,
        values: Option<Digest>,
    ) -> Option<Box<Server>> {
        let own = usize::from(worker.0);
        if self.settings.round_robin {
            let oldest = self.idle[own].0.pop_front().map(|parked| parked.server);
            return oldest.or_else(|| self.steal(None));
        }
        let latest = self.idle[own].take_latest(values);
        if latest.is_some() || self.idle.iter().all(Idle::is_empty) {
            return latest;
        }
        self.search_idle(own, values)
    }

    #[cold]
    fn search_idle(&mut self, own: usize, values: Option<Digest>) -> Option<Box<Server>> {
        self.idle[own]
            .take_fitting(values)
            .or_else(|| self.steal(values))
            .or_else(|| self.idle[own].take_spare())
            .or_else(|| self.steal(None))
    }

    fn steal(&mut self, values: Option<Digest>) -> Option<Box<Server>> {
        let mut stolen = self.idle.iter_mut().find_map(|idle| idle.take_coldest(values))?;
        stolen.leave_worker();
        Some(stolen)
    }
}

#[derive(Debug, Default)]
pub(super) struct Idle(VecDeque<Parked>);

#[derive(Debug)]
struct Parked {
    values: Digest,
    server: Box<Server>,
}

impl Parked {
    /// Has it these values, if that matters?
    fn has(&self, values: Option<Digest>) -> bool {
        values.is_none_or(|values| self.values == values)
    }
}

impl Idle {
    pub(super) fn push(&mut self, server: Box<Server>) {
        self.0.push_back(Parked { values: server.vars.digest(), server });
    }

    /// The one used last, if it has these values.
    fn take_latest(&mut self, values: Option<Digest>) -> Option<Box<Server>> {
        let latest = self.0.pop_back_if(|parked| parked.has(values))?;
        Some(latest.server)
    }

    /// The one of these values that was used last.
    fn take_fitting(&mut self, values: Option<Digest>) -> Option<Box<Server>> {
        let from_back = self.0.iter().rev().take(SEARCHED_MAX).position(|one| one.has(values))?;
        self.remove(self.0.len() - 1 - from_back)
    }

    /// The one of these values that was used longest ago.
    fn take_coldest(&mut self, values: Option<Digest>) -> Option<Box<Server>> {
        self.remove(self.0.iter().take(SEARCHED_MAX).position(|one| one.has(values))?)
    }

    /// The one that can best do without its values.
    fn take_spare(&mut self) -> Option<Box<Server>> {
        self.remove(self.0.len().saturating_sub(SPARED_MAX))
    }

    pub(super) fn take(&mut self, handle: Handle) -> Option<Box<Server>> {
        let at = self.all().position(|server| server.handle == handle)?;
        self.remove(at)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Box<Server>> {
        self.0.drain(..).map(|parked| parked.server)
    }

    pub(super) fn take_where(
        &mut self,
        fits: impl Fn(&Server) -> bool,
    ) -> impl Iterator<Item = Box<Server>> {
        let all = std::mem::take(&mut self.0);
        let (gone, kept): (VecDeque<_>, _) = all.into_iter().partition(|one| fits(&one.server));
        self.0 = kept;
        gone.into_iter().map(|parked| parked.server)
    }

    /// Oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Server> {
        self.0.iter().map(|parked| &*parked.server)
    }

    pub(super) fn get(&self, at: usize) -> Option<&Server> {
        self.0.get(at).map(|parked| &*parked.server)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Box<Server>> {
        self.0.remove(at).map(|parked| parked.server)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
