//! The end of the primary's log, which may not be flushed yet.
//!
//! Standbys get only what the primary has flushed. A commit flushes its own records, or has PostgreSQL
//! do so within `wal_writer_delay`. But a transaction that has only read may write to the log, too
//! (it prunes pages), and nobody flushes these records if it is rolled back. On a quiet primary the
//! standbys would lack them for 15 s, and would count as stale. So Weir has the primary commit
//! something then. The flushed position alone would not do as a sample: PostgreSQL acknowledges
//! commits with `synchronous_commit = off` before it flushes them.

use engine::{ids::Micros, routing::freshness::Position};

/// The log has to be unflushed for so long. PostgreSQL flushes the commits of others earlier.
const PATIENCE: Micros = 250_000;

/// Commits, which has PostgreSQL's WAL writer flush the log. It costs the number of a transaction, and
/// needs no right.
pub(super) const FLUSH: &str = "SELECT pg_catalog.txid_current()";

#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The end of an unflushed log, and when it was seen first.
    unflushed: Option<(Micros, Position)>,
    /// A later sample has not found it flushed.
    lingers: bool,
    is_due: bool,
}

impl Tail {
    /// Learns a sample of the primary.
    pub(super) fn learn(&mut self, inserted: Position, flushed: Position, asked_at: Micros) {
        match self.unflushed {
            Some((since, end)) if flushed < end => {
                self.lingers = true;
                self.is_due = asked_at.saturating_sub(since) >= PATIENCE;
            }
            Some(_) | None => {
                (self.lingers, self.is_due) = (false, false);
                self.unflushed = (flushed < inserted).then_some((asked_at, inserted));
            }
        }
    }

    /// Since when has the primary not flushed its log? Only if two samples say so.
    pub(super) fn lingers_since(&self) -> Option<Micros> {
        self.unflushed.filter(|_| self.lingers).map(|(since, _)| since)
    }

    /// Is the primary to flush its log now? Not again for a while, whether it does or not.
    pub(super) fn take_due(&mut self, now: Micros) -> bool {
        let is_due = std::mem::take(&mut self.is_due);
        if let Some((since, _)) = self.unflushed.as_mut().filter(|_| is_due) {
            *since = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_flushes_is_flushed_at_a_bounded_rate() {
        let mut tail = Tail::default();
        let mut orders = Vec::new();
        for now in (0..2_000_000).step_by(20_000) {
            // Nothing is flushed before 1.5 s.
            tail.learn(900, if now < 1_500_000 { 800 } else { 900 }, now);
            if tail.take_due(now) {
                orders.push(now / 1_000);
            }
        }
        assert_eq!(orders, [260, 520, 780, 1_040, 1_300]);
        assert_eq!(tail.lingers_since(), None);
    }

    #[test]
    fn a_log_that_others_flush_needs_nothing() {
        let mut tail = Tail::default();
        for now in 1..100 {
            // Each sample finds new records, and those of the one before are flushed.
            tail.learn(now * 100, now * 100 - 50, now * 200_000);
            assert!(!tail.take_due(now * 200_000) && tail.lingers_since().is_none(), "{now}");
        }
    }
}
