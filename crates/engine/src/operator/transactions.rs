//! The transactions that a worker remembers, of those that took at least a millisecond: the last ones,
//! and the slowest of each minute of the last hour. The memory is fixed: at most 70 KB for each worker.

use std::collections::VecDeque;

use crate::ids::{Micros, PoolId};
use crate::operator::timings::Timings;

/// The last transactions that are remembered; a power of two, so that an index needs no division.
const LAST: usize = 256;
/// The slowest transactions of a minute that are remembered.
const SLOWEST: usize = 8;
/// The minutes that are remembered.
const MINUTES: usize = 60;
const MINUTE: Micros = 60_000_000;

/// A transaction that takes fewer microseconds is not remembered: it is too fast to be blamed, and an
/// entry would cost a part of its time.
pub(crate) const REMEMBERED_FROM: Micros = 1_000;

/// A transaction with its stages, in microseconds since it was queued. A transaction of more than 71
/// minutes has the longest possible time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The client's serial number.
    pub client: u64,
    /// When its client asked for a server.
    pub queued_at: Micros,
    /// The client got the server.
    pub linked: u32,
    /// The server had the client's state.
    pub applied: u32,
    /// The first message was sent.
    pub sent: u32,
    /// The server answered.
    pub first_byte: u32,
    pub done: u32,
    /// The time in which a query was running.
    pub busy: u32,
    pub pool: PoolId,
    /// Did the client and its server both last until its end?
    pub is_complete: bool,
    /// The client's `application_name`, cut.
    pub name: Name,
    /// The fingerprint of the query that took longest, including the client's pause after it; 0 =
    /// unknown.
    pub fingerprint: u64,
}

/// The beginning of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name([u8; 24]);

impl Name {
    pub(crate) fn new(name: &[u8]) -> Self {
        let mut kept = Self::default();
        let len = name.len().min(kept.0.len());
        kept.0[..len].copy_from_slice(&name[..len]);
        kept
    }

    /// A name contains no zero byte, so the rest is not part of it.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..len]
    }
}

/// The slowest transactions of one minute.
#[derive(Clone, Debug, Default)]
struct Minute {
    began_at: Micros,
    slowest: Vec<Transaction>,
}

#[derive(Debug)]
pub(crate) struct Transactions {
    last: Box<[Transaction; LAST]>,
    /// The number of remembered transactions so far.
    count: usize,
    /// The present minute is at the back.
    minutes: VecDeque<Minute>,
    /// A transaction of fewer microseconds is not among the slowest of the present minute.
    floor: u32,
    /// Set if `connection_timings` is.
    pub(crate) timings: Option<Box<Timings>>,
}

impl Default for Transactions {
    fn default() -> Self {
        Self {
            last: Box::new([Transaction::default(); LAST]),
            count: 0,
            minutes: VecDeque::from([Minute::default()]),
            floor: REMEMBERED_FROM as u32,
            timings: None,
        }
    }
}

impl Transactions {
    /// `kept`: `connection_timings`.
    pub(crate) fn new(kept: u32) -> Self {
        Self { timings: Timings::configured(None, kept), ..Self::default() }
    }

    /// A transaction is over that was described.
    pub(crate) fn over(&mut self, transaction: Transaction) {
        if let Some(timings) = &mut self.timings {
            timings.transaction(&transaction);
        }
        if Micros::from(transaction.done) >= REMEMBERED_FROM {
            self.add(transaction);
        }
    }

    fn add(&mut self, transaction: Transaction) {
        self.last[self.count % LAST] = transaction;
        self.count += 1;
        if transaction.done >= self.floor {
            self.add_slow(transaction);
        }
    }

    fn add_slow(&mut self, transaction: Transaction) {
        let Some(minute) = self.minutes.back_mut() else { return };
        let slowest = &mut minute.slowest;
        let at = slowest.partition_point(|other| other.done >= transaction.done);
        slowest.insert(at, transaction);
        slowest.truncate(SLOWEST);
        if let Some(last) = slowest.get(SLOWEST - 1) {
            self.floor = last.done.saturating_add(1);
        }
    }

    /// Begins a new minute, if it is time.
    pub(crate) fn tick(&mut self, now: Micros) {
        let began_at = self.minutes.back().map_or(0, |minute| minute.began_at);
        if now.saturating_sub(began_at) < MINUTE {
            return;
        }
        self.minutes.push_back(Minute { began_at: now, slowest: Vec::new() });
        self.floor = REMEMBERED_FROM as u32;
        while self.minutes.len() > MINUTES {
            self.minutes.pop_front();
        }
    }

    /// Forgets the transactions of a pool, whose number may be used again.
    pub(crate) fn forget(&mut self, pool: PoolId) {
        for transaction in self.last.iter_mut().filter(|own| own.pool == pool) {
            *transaction = Transaction::default();
        }
        for minute in &mut self.minutes {
            minute.slowest.retain(|transaction| transaction.pool != pool);
        }
    }

    /// Returns all that are remembered, each once.
    pub(crate) fn all(&self) -> Vec<Transaction> {
        let slowest = self.minutes.iter().flat_map(|minute| &minute.slowest);
        let last = self.last.iter().filter(|transaction| transaction.client != 0);
        let mut all: Vec<_> = slowest.chain(last).copied().collect();
        all.sort_by_key(|transaction| (transaction.queued_at, transaction.client));
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasting(client: u64, done: u32) -> Transaction {
        Transaction { client, done, queued_at: client, pool: PoolId(7), ..Transaction::default() }
    }

    fn clients(transactions: &Transactions) -> Vec<u64> {
        transactions.all().iter().map(|transaction| transaction.client).collect()
    }

    #[test]
    fn the_last_ones_are_remembered() {
        let mut transactions = Transactions::default();
        assert!(transactions.all().is_empty());
        let count = LAST as u64 + 3;
        (1..=count).for_each(|client| transactions.add(lasting(client, 1)));
        assert_eq!(clients(&transactions), (4..=count).collect::<Vec<_>>());
    }

    #[test]
    fn the_slowest_of_a_minute_outlast_any_number_of_fast_ones() {
        let mut transactions = Transactions::default();
        for client in 1..=20 {
            transactions.add(lasting(client, 1_000 + client as u32));
        }
        (100..1_000).for_each(|client| transactions.add(lasting(client, 5)));
        let all = clients(&transactions);
        assert_eq!(all[..SLOWEST], (13..=20).collect::<Vec<u64>>());
        assert_eq!(all.len(), SLOWEST + LAST);
    }

    #[test]
    fn every_minute_has_its_own_and_an_hour_is_remembered() {
        let mut transactions = Transactions::default();
        for minute in 0..=MINUTES as u64 {
            transactions.tick(minute * MINUTE);
            // Less than any of the minute before.
            let done = 1_000_000 - minute as u32;
            (0..20).for_each(|_| transactions.add(lasting(1 + minute, done)));
        }
        (100_000..101_000).for_each(|client| transactions.add(lasting(client, 5)));
        let all = clients(&transactions);
        assert!(!all.contains(&1), "an hour and a minute ago");
        assert!((2..=1 + MINUTES as u64).all(|client| all.contains(&client)));
        assert!(all.len() <= LAST + MINUTES * SLOWEST);
    }

    #[test]
    fn a_forgotten_pool_has_none() {
        let mut transactions = Transactions::default();
        transactions.add(lasting(1, 2_000));
        transactions.add(Transaction { pool: PoolId(8), ..lasting(2, 2_000) });
        transactions.forget(PoolId(7));
        assert_eq!(clients(&transactions), [2]);
    }

    #[test]
    fn the_memory_is_what_the_documentation_says() {
        let transactions = LAST + MINUTES * SLOWEST;
        assert!(transactions * size_of::<Transaction>() <= 70_000, "{transactions}");
    }

    #[test]
    fn a_name_is_cut() {
        assert_eq!(Name::new(b"web").as_bytes(), b"web");
        assert_eq!(Name::new(&[b'x'; 100]).as_bytes(), [b'x'; 24]);
        assert_eq!(Name::default().as_bytes(), b"");
    }
}
