//! The demand for servers of one pool: the largest number of servers in use at any moment of the last
//! two periods, or in use and waited for when a worker looked.

use crate::ids::Micros;

/// The demand remembers its busiest moment for this long, and at most twice as long.
const PERIOD: Micros = 1_000_000;

/// When a pool has been short of spare servers for this long, twice as many are opened at once.
const DOUBLED_AFTER: Micros = 200_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// The largest number of the present period, and of the one before.
    peak: u32,
    before: u32,
    began_at: Micros,
    /// Since when the demand has been looked at in each period.
    asked_at: Option<Micros>,
    /// Since when the pool has been short of spare servers.
    short_since: Option<Micros>,
}

impl Demand {
    /// Counts the present number, which may be the largest one.
    #[inline]
    pub(super) fn note(&mut self, present: u32) {
        self.peak = self.peak.max(present);
    }

    /// Returns the demand. A period that is over ends.
    pub(super) fn largest(&mut self, present: u32, now: Micros) -> u32 {
        self.asked_at.get_or_insert(now);
        let periods = now.saturating_sub(self.began_at) / PERIOD;
        if periods > 1 {
            // Nobody has looked in between.
            self.asked_at = Some(now);
        }
        if periods > 0 {
            self.before = if periods == 1 { self.peak } else { present };
            (self.peak, self.began_at) = (present, now);
        }
        self.note(present);
        self.peak.max(self.before)
    }

    /// Is the demand of two whole periods known? It is not after a start, and not after a restart that
    /// has taken servers over.
    pub(super) fn is_known(&self, now: Micros) -> bool {
        self.asked_at.is_some_and(|asked_at| now.saturating_sub(asked_at) >= 2 * PERIOD)
    }

    /// The pool is not short of spare servers any more.
    pub(super) fn is_met(&mut self) {
        self.short_since = None;
    }

    /// Returns how many servers may be opened at once, since the pool is short of spare ones.
    pub(super) fn at_once(&mut self, now: Micros) -> u32 {
        let since = *self.short_since.get_or_insert(now);
        let doublings = now.saturating_sub(since) / DOUBLED_AFTER;
        let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
        1_u32.checked_shl(doublings).unwrap_or(u32::MAX)
    }
}
