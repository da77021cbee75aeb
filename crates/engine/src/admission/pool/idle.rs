//! The idle servers of a pool, each with the worker that it stays with, in the order in which they
//! were parked; and which of them is given out.
//!
//! Whoever needs one gets one that has its own values, if there is any: it need not be asked to take
//! them. In a pool whose clients have set nothing all are alike, and the first one looked at is it.

use std::collections::VecDeque;

use super::{Gate, Parked, Pool};
use crate::ids::WorkerId;
use crate::values::Digest;

/// So many servers of a worker are looked at for one with the right values.
const SEARCHED_MAX: usize = 64;

/// Who finds no such server changes another one: of so many that were used last, the one used longest
/// ago. Were it the one used last, a few servers would change their values all the time while others
/// keep values that nobody asks for any more. Were it the oldest of all, none would ever be idle for
/// `server_idle_timeout`.
const SPARED_MAX: usize = 16;

impl<T> Pool<T> {
    pub(super) fn take_open(
        &mut self,
        worker: WorkerId,
        values: Option<Digest>,
    ) -> Option<Parked<T>> {
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
    /// Has it these values, if that matters?
    fn has(&self, values: Option<Digest>) -> bool {
        values.is_none_or(|values| self.values == values)
    }
}

impl<T> Idle<T> {
    pub(super) fn push(&mut self, parked: Parked<T>) {
        self.0.push_back(Idler { values: parked.server.vars.digest(), parked });
    }

    /// The one used last, if it has these values.
    fn take_latest(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        let latest = self.0.pop_back_if(|idler| idler.has(values))?;
        Some(latest.parked)
    }

    /// The one of these values that was used last.
    fn take_fitting(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        let from_back = self.0.iter().rev().take(SEARCHED_MAX).position(|one| one.has(values))?;
        self.remove(self.0.len() - 1 - from_back)
    }

    /// The one of these values that was used longest ago.
    fn take_coldest(&mut self, values: Option<Digest>) -> Option<Parked<T>> {
        self.remove(self.0.iter().take(SEARCHED_MAX).position(|one| one.has(values))?)
    }

    /// The one that can best do without its values.
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

    /// Oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Parked<T>> {
        self.0.iter().map(|idler| &idler.parked)
    }

    pub(super) fn get(&self, at: usize) -> Option<&Parked<T>> {
        self.0.get(at).map(|idler| &idler.parked)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<Parked<T>> {
        self.0.remove(at).map(|idler| idler.parked)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
