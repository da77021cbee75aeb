//! The idle servers of a pool, by home and in the order in which they were parked, and the choice
//! among them.
//!
//! A client gets a server that has its own values, if there is one, so no SET is needed. In a pool
//! whose clients set nothing, all servers are equal and the first one fits.

use std::collections::VecDeque;

use super::{Gate, Parked, Pool};
use crate::ids::WorkerId;
use crate::values::Digest;

/// Maximal number of a worker's servers to search for one with the right values.
const SEARCHED_MAX: usize = 64;

/// If no server has the right values, another server changes its values: of this many most recently
/// used ones, the least recently used. The most recent one would make a few servers change their
/// values all the time, while others keep values that no client uses. The oldest of all would keep
/// every server from reaching `server_idle_timeout`.
const SPARED_MAX: usize = 16;

impl<T> Pool<T> {
    /// Takes an idle server for a client of `worker`, if servers are given out now.
    pub(crate) fn take_open(
        &mut self,
        worker: WorkerId,
        values: Option<Digest>,
    ) -> Option<Parked<T>> {
        // A held pool may have idle servers; any other pool that is not open has none.
        if self.gate == Gate::Held { None } else { self.take_idle(worker, values) }
    }

    /// Takes an idle server of this worker that `is_it` selects, the least recently used one first, if
    /// servers are given out now.
    pub(crate) fn take_resting(
        &mut self,
        worker: WorkerId,
        is_it: impl Fn(&Parked<T>) -> bool,
    ) -> Option<Parked<T>> {
        if self.gate == Gate::Held {
            return None;
        }
        self.idle[usize::from(worker.0)].take(is_it)
    }

    /// The server that was parked last was idle before: it gets its place among the others back.
    pub(crate) fn sort_last(&mut self, worker: WorkerId) {
        let idle = &mut self.idle[usize::from(worker.0)].0;
        let Some(last) = idle.pop_back() else { return };
        let released_at = |idler: &Idler<T>| idler.parked.server.times.released_at();
        let at = idle.partition_point(|other| released_at(other) <= released_at(&last));
        idle.insert(at, last);
    }

    /// Takes an idle server for a client of `worker`. Own servers come first, the most recently
    /// used one before all others, since its process is warm. Then the coldest one is stolen from
    /// another worker. Servers with the right values come before others, because stealing costs
    /// less than setting values. With `server_round_robin`, own servers are taken in turn,
    /// regardless of their values.
    pub(super) fn take_idle(
        &mut self,
        worker: WorkerId,
        values: Option<Digest>,
    ) -> Option<Parked<T>> {
        let own = usize::from(worker.0);
        if self.settings.round_robin {
            let oldest = self.idle[own].0.pop_front().map(|idler| idler.parked);
            return oldest.or_else(|| self.steal(None));
        }
        let latest = self.idle[own].take_latest(values);
        if latest.is_some() || self.idle.iter().all(Idle::is_empty) {
            return latest;
        }
        self.search_idle(own, values)
    }

    #[cold]
    fn search_idle(&mut self, own: usize, values: Option<Digest>) -> Option<Parked<T>> {
        self.idle[own]
            .take_fitting(values)
            .or_else(|| self.steal(values))
            .or_else(|| self.idle[own].take_spare())
            .or_else(|| self.steal(None))
    }

    fn steal(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        let mut stolen = self.idle.iter_mut().find_map(|idle| idle.take_coldest(values))?;
        stolen.server.leave_worker();
        Some(stolen)
    }
}

#[derive(Debug)]
pub(super) struct Idle<T>(VecDeque<Idler<T>>);

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[derive(Debug)]
struct Idler<T> {
    values: Digest,
    parked: Parked<T>,
}

impl<T> Idler<T> {
    /// Does the server have these values, if any are asked for?
    fn has(&self, values: Option<Digest>) -> bool {
        values.is_none_or(|values| self.values == values)
    }
}

impl<T> Idle<T> {
    pub(super) fn push(&mut self, parked: Parked<T>) {
        self.0.push_back(Idler { values: parked.server.vars.digest(), parked });
    }

    /// Takes the most recently used server, if it has these values.
    fn take_latest(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        let latest = self.0.pop_back_if(|idler| idler.has(values))?;
        Some(latest.parked)
    }

    /// Takes the most recently used server that has these values.
    fn take_fitting(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        let from_back = self.0.iter().rev().take(SEARCHED_MAX).position(|one| one.has(values))?;
        self.remove(self.0.len() - 1 - from_back)
    }

    /// Takes the least recently used server that has these values.
    fn take_coldest(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        self.remove(self.0.iter().take(SEARCHED_MAX).position(|one| one.has(values))?)
    }

    /// Takes the server whose values are least likely to be needed.
    fn take_spare(&mut self) -> Option<Parked<T>> {
        self.remove(self.0.len().saturating_sub(SPARED_MAX))
    }

    pub(super) fn take(&mut self, is_it: impl Fn(&Parked<T>) -> bool) -> Option<Parked<T>> {
        let at = self.all().position(is_it)?;
        self.remove(at)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Parked<T>> {
        self.0.drain(..).map(|idler| idler.parked)
    }

    pub(super) fn take_where(
        &mut self,
        fits: impl Fn(&Parked<T>) -> bool,
    ) -> impl Iterator<Item = Parked<T>> {
        let all = std::mem::take(&mut self.0);
        let (gone, kept): (VecDeque<_>, _) = all.into_iter().partition(|one| fits(&one.parked));
        self.0 = kept;
        gone.into_iter().map(|idler| idler.parked)
    }

    /// Returns the servers, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Parked<T>> {
        self.0.iter().map(|idler| &idler.parked)
    }

    pub(super) fn get(&self, at: usize) -> Option<&Parked<T>> {
        self.0.get(at).map(|idler| &idler.parked)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Parked<T>> {
        self.0.remove(at).map(|idler| idler.parked)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
