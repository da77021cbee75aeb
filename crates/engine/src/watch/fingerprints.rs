//! Requests by the fingerprint of their text: the most frequent ones, in a table of fixed size.
//!
//! The table is filled by the algorithm "space-saving" (Metwally and others, 2005). When it is full,
//! a new text takes the place of the least frequent one, and takes over its count as a possible
//! error. A text with more than 1/500 of all requests is always in the table.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::texts::Text;
use crate::ids::{Micros, PoolId};
use crate::operator::histogram::Histogram;

/// Entries for each worker.
pub const ENTRIES_MAX: usize = 500;

type Key = (PoolId, u64);

#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    places: HashMap<Key, usize, RandomState>,
    /// The counts with their possible errors, by which the least frequent entry is found.
    ranks: Vec<u64>,
    rows: Vec<Row>,
}

/// The requests with one fingerprint, in one pool.
#[derive(Clone, Debug)]
pub struct Row {
    pub pool: PoolId,
    pub text: Arc<Text>,
    /// Requests since the text is in the table.
    pub count: u64,
    /// The maximum number of requests that may have come before.
    pub missed: u64,
    /// Microseconds.
    pub time: u64,
    pub times: Histogram,
    /// Bytes from clients, and from servers.
    pub received: u64,
    pub sent: u64,
}

impl Row {
    fn new(pool: PoolId, text: Arc<Text>, missed: u64) -> Self {
        let times = Histogram::default();
        Self { pool, text, count: 0, missed, time: 0, times, received: 0, sent: 0 }
    }

    /// Adds the figures of another worker.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.missed += other.missed;
        self.time += other.time;
        self.times += &other.times;
        self.received += other.received;
        self.sent += other.sent;
    }
}

impl Fingerprints {
    pub(super) fn count(
        &mut self,
        pool: PoolId,
        text: &Arc<Text>,
        taken: Micros,
        (received, sent): (u64, u64),
    ) {
        let key = (pool, text.fingerprint);
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None => self.enter(key, text),
        };
        self.ranks[at] += 1;
        let row = &mut self.rows[at];
        row.count += 1;
        row.time += taken;
        row.times.record(taken);
        row.received += received;
        row.sent += sent;
    }

    fn enter(&mut self, key: Key, text: &Arc<Text>) -> usize {
        let at = if self.rows.len() < ENTRIES_MAX {
            self.rows.push(Row::new(key.0, text.clone(), 0));
            self.ranks.push(0);
            self.rows.len() - 1
        } else {
            let least = self.ranks.iter().enumerate().min_by_key(|(_, rank)| **rank);
            let (at, rank) = least.map_or((0, 0), |(at, rank)| (at, *rank));
            let old = &self.rows[at];
            self.places.remove(&(old.pool, old.text.fingerprint));
            self.rows[at] = Row::new(key.0, text.clone(), rank);
            at
        };
        self.places.insert(key, at);
        at
    }

    pub(super) fn forget_pool(&mut self, pool: PoolId) {
        if self.rows.iter().all(|row| row.pool != pool) {
            return;
        }
        let rows = std::mem::take(&mut self.rows);
        (self.places, self.ranks) = (HashMap::default(), Vec::new());
        for row in rows.into_iter().filter(|row| row.pool != pool) {
            self.places.insert((row.pool, row.text.fingerprint), self.rows.len());
            self.ranks.push(row.count + row.missed);
            self.rows.push(row);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.rows.iter().cloned()
    }
}
