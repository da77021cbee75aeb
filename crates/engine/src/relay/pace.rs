//! Limits on a client that sends ahead: the requests under way, and its turn at the server.
//!
//! A request that was sent cannot be taken back, and a client that always has another one under way
//! never gives its server back. Other clients of the pool would wait until it pauses.
//!
//! * Few requests are under way. Their number doubles only as long as the server answers more of them
//!   a second for it, as a server far away does. A few requests keep a near server busy, and the next
//!   requests may take much longer than those before. The server must answer the requests under way
//!   in [`AHEAD`], or in twice the time of a trip to the server.
//! * If others wait and the client has had the server for a [`TURN`], its next request waits until
//!   all are answered. Between two transactions the server is free then, and the client joins the
//!   end of the queue.

use crate::ids::Micros;
use crate::relay::ledger::{DEPTH_UNKNOWN, OWED_MAX};

/// The longest time, in microseconds, that a server should need for the requests under way.
const AHEAD: Micros = 80_000;
/// A server is taken to be this far away at most. The first request may simply be slow.
const TRIP_MAX: Micros = 500_000;
/// The time in microseconds after which a client gives its server back if others wait.
pub(crate) const TURN: Micros = 20_000;
/// The interval at which Weir checks whether others wait.
const LOOKS: Micros = 5_000;
/// The number of requests of a transaction that are sent one by one.
const STEPS_MAX: u32 = 100;
/// More requests may be under way if the server has become faster by this part.
const GAIN: Micros = 8;
const SECOND: Micros = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// With so many requests under way, the next one waits until half of them are answered.
    pub(crate) depth: u32,
    /// The highest speed so far, in requests a second.
    fastest: Micros,
    /// Requests that were answered since `since`.
    answered: u32,
    /// When the present measurement began; 0 = there is none.
    since: Micros,
    /// Was the server at rest before the present measurement?
    from_rest: bool,
    /// Requests under way that were sent before the server became slow.
    stale: u32,
    /// The shortest time to the first answer of a server that was at rest; 0 = unknown.
    trip: Micros,
    /// When it was last checked whether others wait.
    looked_at: Micros,
    /// The client waits, and then gives its server back.
    pub(crate) ends_turn: bool,
    /// Requests that were sent one by one since, because a transaction was open.
    steps: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            depth: DEPTH_UNKNOWN,
            fastest: 0,
            answered: 0,
            since: 0,
            from_rest: false,
            stale: 0,
            trip: 0,
            looked_at: 0,
            ends_turn: false,
            steps: 0,
        }
    }
}

impl Pace {
    /// The server begins to work after a pause, so what came before says nothing about its speed. It
    /// may answer all requests at once.
    pub(crate) fn begin(&mut self, now: Micros) {
        self.measure_anew(now);
        self.from_rest = true;
    }

    fn measure_anew(&mut self, now: Micros) {
        (self.since, self.answered, self.from_rest) = (now, 0, false);
    }

    /// Of `before` requests under way, the server has answered `answered`, and has others to answer.
    /// Its speed is measured over as many as may be under way: those arrive at once if the server is
    /// far away. Stale requests are left out: the burst of their answers does not show how fast the
    /// server answers the next ones.
    pub(crate) fn note(&mut self, answered: u32, before: u32, now: Micros) {
        if self.since == 0 {
            return self.measure_anew(now);
        }
        let was_stale = self.stale > 0;
        self.stale = self.stale.saturating_sub(answered);
        self.answered += answered;
        let taken = now.saturating_sub(self.since).max(1);
        if self.answered > 0 && self.from_rest {
            self.note_trip(taken);
        }
        let enough = self.answered >= self.depth || taken >= AHEAD;
        if self.answered > 0 && enough {
            let speed = SECOND * Micros::from(self.answered) / taken;
            let most = self.most_at(speed);
            if self.depth > most {
                (self.depth, self.fastest) = (most, speed);
                self.stale = before.saturating_sub(answered);
            } else if !was_stale {
                self.go_further(speed);
            }
            self.measure_anew(now);
        } else if was_stale && self.stale == 0 {
            self.measure_anew(now);
        }
    }

    /// The next server may be farther away, so the shortest time is not kept for ever. Its speed with
    /// few requests says nothing about that with many.
    fn note_trip(&mut self, taken: Micros) {
        self.from_rest = false;
        let most = if self.trip == 0 { TRIP_MAX } else { 2 * self.trip };
        if taken >= most {
            self.fastest = 0;
        }
        self.trip = taken.min(most).min(TRIP_MAX);
    }

    /// Returns the number of requests that are answered in time at this speed.
    fn most_at(&self, speed: Micros) -> u32 {
        let ahead = AHEAD.max(2 * self.trip);
        (ahead * speed / SECOND).clamp(1, OWED_MAX as Micros) as u32
    }

    /// More requests may be under way if the last doubling has made the server faster.
    fn go_further(&mut self, speed: Micros) {
        if speed > self.fastest + self.fastest / GAIN {
            self.depth = (2 * self.depth).min(self.most_at(speed));
            self.fastest = speed;
        }
    }

    /// Is the turn over, although the server was at rest? A transaction was open. Its requests are
    /// sent one by one, so that its end is not missed, unless it is a long one.
    pub(crate) fn still_ends_turn(&mut self, now: Micros) -> bool {
        self.steps += u32::from(self.ends_turn);
        if self.steps > STEPS_MAX {
            self.end_turn();
            // Another turn begins.
            self.looked_at = now + (TURN - LOOKS);
        }
        self.ends_turn
    }

    /// Between two transactions. Returns whether the turn is over.
    pub(crate) fn end_turn(&mut self) -> bool {
        self.steps = 0;
        std::mem::take(&mut self.ends_turn)
    }

    /// Is it time to check whether others wait?
    pub(crate) fn looks(&mut self, now: Micros) -> bool {
        let looks = now.saturating_sub(self.looked_at) >= LOOKS;
        if looks {
            self.looked_at = now;
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depth for a server that answers one request after the other.
    fn depth_at(pace: &mut Pace, now: &mut Micros, each: Micros) -> u32 {
        pace.begin(*now);
        for _ in 0..1_000 {
            *now += each;
            pace.note(1, pace.depth, *now);
        }
        pace.depth
    }

    #[test]
    fn a_server_that_is_always_busy_needs_few_requests() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        for (each, few) in [(1, 8), (1_000, 16), (20_000, 4), (1_000_000, 1), (20, 2)] {
            assert_eq!(depth_at(&mut pace, &mut now, each), few, "{each} µs each");
        }
    }

    #[test]
    fn the_depth_follows_a_server_far_away() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        let mut after_trips = |trips: usize, trip: Micros| {
            for _ in 0..trips {
                pace.begin(now);
                now += trip;
                pace.note(pace.depth, pace.depth, now);
            }
            pace.depth
        };
        assert_eq!(after_trips(5, 20_000), 128);
        assert_eq!(after_trips(20, 20_000), OWED_MAX as u32);
        // The server has become slow.
        assert_eq!(after_trips(1, 10_000_000), 32);
    }

    #[test]
    fn a_server_behind_an_ocean_gets_many_requests() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        for trips in 1..=12 {
            pace.begin(now);
            now += 250_000;
            pace.note(pace.depth, pace.depth, now);
            assert!(pace.depth >= (1 << trips).min(OWED_MAX as u32), "{}", pace.depth);
        }
    }

    /// After a failover, for example.
    #[test]
    fn the_depth_grows_when_the_server_is_farther_away() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        assert_eq!(depth_at(&mut pace, &mut now, 1_000), 8);
        for _ in 0..40 {
            pace.begin(now);
            now += 50_000;
            pace.note(pace.depth, pace.depth, now);
        }
        assert_eq!(pace.depth, OWED_MAX as u32);
    }

    /// Beside a lock: one answer takes long, and those behind it come in a burst.
    #[test]
    fn the_depth_grows_again_after_one_slow_answer() {
        let (mut pace, mut now) = (Pace::default(), 1_000_000);
        let far = |pace: &mut Pace, now: &mut Micros| {
            for _ in 0..20 {
                pace.begin(*now);
                *now += 20_000;
                pace.note(pace.depth, pace.depth, *now);
            }
        };
        far(&mut pace, &mut now);
        assert_eq!(pace.depth, OWED_MAX as u32);
        now += 10_000_000;
        for before in (1..=2_000).rev() {
            pace.note(1, before, now);
            now += 20;
        }
        assert!(pace.depth < 8, "{}", pace.depth);
        far(&mut pace, &mut now);
        assert_eq!(pace.depth, OWED_MAX as u32);
    }
}
