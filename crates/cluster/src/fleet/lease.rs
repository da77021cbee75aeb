//! The view lease of a member: how long it may send to a writer without an answer from etcd.

use crate::Micros;

/// A lease holds so long after the moment at which it was asked for.
pub const VIEW: Micros = 10_000_000;

/// The life time of a member's records in etcd, in seconds. It is longer than [`VIEW`], so that a
/// member has stopped, by its own clock, before the others see its records vanish.
pub const TTL: i64 = 12;

/// Times are of a clock that goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    until: Micros,
}

impl Lease {
    /// Returns the lease that a predecessor has left.
    #[must_use]
    pub fn inherited(until: Micros) -> Self {
        Self { until }
    }

    /// Etcd has granted or renewed the lease by a request that was sent at `asked_at`. The answer may
    /// have taken any time.
    pub fn renewed(&mut self, asked_at: Micros) {
        self.until = self.until.max(asked_at + VIEW);
    }

    /// Etcd says that there is no such lease.
    pub fn end(&mut self) {
        self.until = 0;
    }

    #[must_use]
    pub fn holds(self, now: Micros) -> bool {
        now < self.until
    }

    /// Returns when it ends, or has ended; 0 if there was none.
    #[must_use]
    pub fn until(self) -> Micros {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_question_and_never_gets_shorter() {
        let mut lease = Lease::default();
        assert!(!lease.holds(0));
        lease.renewed(5);
        // The answer to an earlier question comes late.
        lease.renewed(3);
        assert!(lease.holds(VIEW + 4) && !lease.holds(VIEW + 5));
        lease.end();
        assert!(!lease.holds(6));
    }

    #[test]
    fn records_live_longer_than_a_lease() {
        assert!(TTL as Micros * 1_000_000 > VIEW);
    }
}
