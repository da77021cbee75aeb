//! The flight recorder: a few numbers of each pool for each second of the last hour, in fixed memory of
//! at most 3.5 MB. The cold side records a second; nothing here touches the data path.
//!
//! The first [`POOLS_MAX`] pools that are in use have a track each. All other pools are summed in one
//! more. A pool that has not been used for an hour gives its track to another one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::{Micros, PoolId};
use crate::operator::pulse::Pulse;
use crate::operator::stats::Stats;

/// The pools that have a track of their own.
pub const POOLS_MAX: usize = 32;
/// The seconds that are remembered.
pub const SECONDS_MAX: usize = 3_600;

/// A pool at the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    pub pool: PoolId,
    pub database: &'a str,
    pub user: &'a str,
    pub waiting: u32,
    /// The wait of the first client in the queue.
    pub maxwait: Micros,
    pub idle: u32,
    pub opening: u32,
    /// The pulse of all workers. Its counters count from the start.
    pub pulse: Pulse,
    /// Errors in this second.
    pub errors: u32,
}

/// The figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    pub waiting: u32,
    /// Milliseconds.
    pub maxwait: u32,
    /// Servers with a request under way.
    pub active: u16,
    /// Servers whose clients are idle in transaction.
    pub in_transaction: u16,
    /// Servers that clients keep without a transaction.
    pub kept: u16,
    pub idle: u16,
    /// Servers that are not logged in yet.
    pub opening: u16,
    pub errors: u16,
    pub transactions: u32,
    pub queries: u32,
}

impl Second {
    fn add(&mut self, sample: &Sample<'_>, counted: Stats) {
        let Pulse { active, in_transaction, kept, .. } = sample.pulse;
        self.waiting = self.waiting.saturating_add(sample.waiting);
        self.maxwait = self.maxwait.max(narrow(sample.maxwait / 1_000));
        add(&mut self.active, active);
        add(&mut self.in_transaction, in_transaction);
        add(&mut self.kept, kept);
        add(&mut self.idle, sample.idle);
        add(&mut self.opening, sample.opening);
        add(&mut self.errors, sample.errors);
        self.transactions = self.transactions.saturating_add(narrow(counted.transactions));
        self.queries = self.queries.saturating_add(narrow(counted.queries));
    }

    /// Was the pool used? Idle servers alone are no use.
    fn is_busy(&self) -> bool {
        *self != Self { idle: self.idle, ..Self::default() }
    }
}

fn add(to: &mut u16, more: u32) {
    *to = to.saturating_add(u16::try_from(more).unwrap_or(u16::MAX));
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The hour of one pool, or of all that have no track.
#[derive(Clone, Debug)]
pub struct Track {
    /// The pool; None for the track of all pools without their own.
    pub pool: Option<PoolId>,
    pub database: Arc<str>,
    pub user: Arc<str>,
    /// One for each second up to the last that was recorded.
    pub seconds: VecDeque<Second>,
    /// The counters at the end of the last second.
    before: Stats,
    /// The seconds since the pool was used.
    unused: u64,
}

impl Track {
    fn new(pool: Option<PoolId>, database: &str, user: &str) -> Self {
        Self {
            pool,
            database: database.into(),
            user: user.into(),
            seconds: VecDeque::new(),
            before: Stats::default(),
            unused: 0,
        }
    }

    fn is_of(&self, sample: &Sample<'_>) -> bool {
        // A pool's number may be used again.
        self.pool == Some(sample.pool)
            && (&*self.database, &*self.user) == (sample.database, sample.user)
    }

    /// Adds a second, behind as many empty ones as were missed.
    fn push(&mut self, second: Second, missed: u64) {
        let missed = usize::try_from(missed).unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
        self.seconds.extend(std::iter::repeat_n(Second::default(), missed));
        self.seconds.push_back(second);
        self.unused = if second.is_busy() { 0 } else { self.unused + 1 };
        let surplus = self.seconds.len().saturating_sub(SECONDS_MAX);
        self.seconds.drain(..surplus);
    }
}

#[derive(Clone, Debug)]
pub struct Recorder {
    tracks: Vec<Track>,
    other: Track,
    /// The last second that was recorded, by the pooler's clock; 0 = none.
    second: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { tracks: Vec::new(), other: Track::new(None, "other", "other"), second: 0 }
    }
}

impl Recorder {
    /// Records a second, unless it was recorded before. `other_errors` are of no pool.
    pub fn record(&mut self, now: Micros, samples: &[Sample<'_>], other_errors: u32) {
        let second = now / 1_000_000;
        if second <= self.second {
            return;
        }
        let missed = if self.second == 0 { 0 } else { second - self.second - 1 };
        self.second = second;
        let mut is_new = false;
        for sample in samples {
            is_new |= self.make_track(sample);
        }
        let (mut rest, mut counted) = (Second::default(), Stats::default());
        let mut is_there = vec![false; self.tracks.len()];
        for sample in samples {
            let at = self.tracks.iter().position(|track| track.is_of(sample));
            let Some(at) = at else {
                rest.add(sample, Stats::default());
                counted += sample.pulse.stats;
                continue;
            };
            let track = &mut self.tracks[at];
            let mut own = Second::default();
            own.add(sample, sample.pulse.stats - track.before);
            track.before = sample.pulse.stats;
            track.push(own, missed);
            is_there[at] = true;
        }
        // Pools that were removed.
        let gone = self.tracks.iter_mut().zip(is_there).filter(|(_, is_there)| !is_there);
        gone.for_each(|(track, _)| track.push(Second::default(), missed));
        // If a pool has got a track or lost it, the sums are of different pools.
        if !is_new {
            let since = counted - self.other.before;
            (rest.transactions, rest.queries) = (narrow(since.transactions), narrow(since.queries));
        }
        add(&mut rest.errors, other_errors);
        self.other.before = counted;
        self.other.push(rest, missed);
    }

    /// Gives a pool that is in use a track, if it has none and there is one. Returns whether it did.
    fn make_track(&mut self, sample: &Sample<'_>) -> bool {
        let mut own = Second::default();
        own.add(sample, sample.pulse.stats);
        if !own.is_busy() || self.tracks.iter().any(|track| track.is_of(sample)) {
            return false;
        }
        let mut track = Track::new(Some(sample.pool), sample.database, sample.user);
        if self.tracks.len() < POOLS_MAX {
            self.tracks.push(track);
            return true;
        }
        let unused = |track: &&mut Track| track.unused >= SECONDS_MAX as u64;
        let Some(place) = self.tracks.iter_mut().find(unused) else { return false };
        std::mem::swap(place, &mut track);
        true
    }

    /// Returns the tracks; the last one is of all pools without a track, if one of them was in use.
    pub fn tracks(&self) -> impl Iterator<Item = &Track> {
        let is_used = self.other.seconds.iter().any(Second::is_busy);
        self.tracks.iter().chain(Some(&self.other).filter(|_| is_used))
    }
}

#[cfg(test)]
mod tests;
