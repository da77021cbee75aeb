//! Spare servers: the number of a pool's idle servers follows its demand (`min_spare_servers`,
//! `max_spare_servers`).
//!
//! A request only counts the demand (`demand.rs`). At each tick, the pool compares its servers with it:
//!
//! * It opens servers up to the demand and `min_spare_servers`, so a load that rises finds them
//!   logged in. The longer the pool stays short of them, the more are opened at once.
//! * It closes idle servers above the demand and `max_spare_servers`, a part of them at a time, the
//!   least recently used ones first.
//!
//! A short lull changes nothing, because the demand remembers the busiest moment.

use super::{Gate, Idle, OPENING_MAX, OPENING_PATIENCE, Pool};
use crate::ids::Micros;
use crate::routing::Place;

/// Of the idle servers above `max_spare_servers`, one in so many is closed at each tick, and at least
/// one.
const CLOSED_PART: u32 = 8;

impl<T> Pool<T> {
    /// Counts a client that has just got a server.
    #[inline]
    pub(super) fn note_demand(&mut self) {
        if self.settings.spares.are_wanted() {
            self.demand.note(self.in_use_here());
        }
    }

    /// Returns how many servers clients of this process use. Servers that are asked for the pool's
    /// principal are free for them.
    fn in_use_here(&self) -> u32 {
        (self.in_use() - self.elsewhere).saturating_sub(self.asked())
    }

    /// Returns the demand. A client that waits only as long as another one's transaction takes needs
    /// no further server.
    fn largest_demand(&mut self, now: Micros) -> u32 {
        let present = self.in_use_here() + self.waiting_for(OPENING_PATIENCE, now);
        self.demand.largest(present, now)
    }

    /// Returns the number of servers with which the pool is not short of spare ones; 0 if it needs
    /// none, because it has neither clients nor a demand.
    fn size_with_spares(&mut self, now: Micros) -> u32 {
        let spares = self.settings.spares.min;
        if spares == 0 || self.welcome.is_none() {
            return 0;
        }
        let demand = self.largest_demand(now);
        // Clients of another pool use the servers of a reader.
        let is_used = match self.key.place {
            Place::Writer => self.clients > 0,
            Place::Reader(_) => demand > 0,
        };
        if is_used { demand.saturating_add(spares) } else { 0 }
    }

    /// Returns the number of servers below which none is closed for having been idle.
    pub(super) fn least_size(&mut self, now: Micros) -> u32 {
        self.size_with_spares(now).max(self.settings.min_size)
    }

    /// Returns how many servers may be under way at once because spare ones are missing; 0 if none is
    /// missing.
    pub(super) fn spares_at_once(&mut self, now: Micros) -> u32 {
        if self.places() >= self.size_with_spares(now) {
            self.demand.is_met();
            return 0;
        }
        self.demand.at_once(now).min(OPENING_MAX)
    }

    /// Returns how many idle servers are to be closed now, because the pool has too many.
    pub(super) fn spare_to_close(&mut self, now: Micros) -> u32 {
        let spares = self.settings.spares.max;
        if spares == 0 || self.gate != Gate::Open {
            return 0;
        }
        let demand = self.largest_demand(now);
        if !self.demand.is_known(now) {
            return 0;
        }
        let kept = demand.saturating_add(spares).max(self.settings.min_size);
        let open = self.places() - self.places_opening();
        open.saturating_sub(kept).div_ceil(CLOSED_PART)
    }

    /// Has this worker the server of the pool that has been idle for longest?
    pub(super) fn has_coldest(&self, home: usize) -> bool {
        let idle_since = |idle: &Idle<T>| idle.get(0).map(|one| one.server.times.released_at());
        let coldest = self.idle.iter().filter_map(idle_since).min();
        coldest.is_some() && idle_since(&self.idle[home]) == coldest
    }
}
