//! Keeps the flight recorder: a second of each pool, every second. It asks the workers for counters and
//! the pools for their queues, and neither for a row of a connection.

use std::{collections::HashMap, time::Duration};

use engine::{
    ids::{Micros, PoolId},
    journal::{Entry, ErrorCount, EventKind},
    pulse::Pulse,
    recorder::{Sample, Track},
    settings::PoolKey,
    timings::Connection,
    transactions::Transaction,
};
use tokio::time::{MissedTickBehavior, interval};

use super::controller::Controller;
use crate::exchange::{hub::lock, mail::ShellMail};

const SECOND: Duration = Duration::from_secs(1);

/// The content of the flight recorder.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub now: Micros,
    pub tracks: Vec<Track>,
    pub events: Vec<Entry>,
    /// The transactions that the workers remember, with the keys of their pools.
    pub transactions: Vec<(PoolKey, Transaction)>,
    /// The last connections that have ended, the oldest first.
    pub connections: Vec<Connection>,
}

/// Records for ever.
pub(crate) async fn keep(controller: Controller) {
    let mut seconds = interval(SECOND);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        if controller.record().await.is_none() {
            return;
        }
    }
}

impl Controller {
    /// Returns the content of the flight recorder.
    pub async fn recording(&self) -> Recording {
        let remembered = self.ask(ShellMail::Transactions).await.unwrap_or_default();
        let keys: HashMap<PoolId, PoolKey> =
            self.0.shared.hub.pools().iter().fold(HashMap::new(), |mut keys, pool| {
                let pool = lock(pool);
                keys.insert(pool.id, pool.key.clone());
                keys
            });
        let known = |transaction: Transaction| {
            keys.get(&transaction.pool).map(|key| (key.clone(), transaction))
        };
        let transactions = remembered.into_iter().flatten().filter_map(known).collect();
        Recording { transactions, ..self.recorded() }
    }

    /// Returns what this process knows without its workers.
    #[must_use]
    pub fn recorded(&self) -> Recording {
        let now = self.now();
        Recording {
            now,
            tracks: lock(&self.0.recorder).tracks().cloned().collect(),
            events: lock(&self.0.shared.journal).entries(now),
            transactions: Vec::new(),
            connections: Vec::new(),
        }
    }

    /// Returns the last connections that have ended, and nothing else.
    #[must_use]
    pub fn timings(&self) -> Recording {
        let connections = lock(&self.0.shared.ended).iter().cloned().collect();
        Recording { now: self.now(), connections, ..Recording::default() }
    }

    /// Notes an order of the operator.
    pub fn note_order(&self, what: &str) {
        self.note(EventKind::Order, what);
    }

    /// Notes an event of the whole process.
    pub(crate) fn note(&self, kind: EventKind, text: &str) {
        lock(&self.0.shared.journal).note(kind, ("", ""), text, self.now());
    }

    /// Records the present second. `None` when the pooler has ended.
    async fn record(&self) -> Option<()> {
        let answers = self.ask(ShellMail::Pulse).await?;
        let mut pulses: HashMap<PoolId, Pulse> = HashMap::new();
        for (pool, pulse) in answers.into_iter().flatten() {
            *pulses.entry(pool).or_default() += pulse;
        }
        let shared = &self.0.shared;
        let now = self.now();
        let mut errors = lock(&shared.journal).take_counts();
        let mut states = Vec::new();
        for pool in shared.hub.pools() {
            let pool = lock(&pool);
            let (_, opening) = pool.counts();
            let state = State {
                waiting: pool.waiting_total(),
                maxwait: pool.oldest_wait().map_or(0, |since| now.saturating_sub(since)),
                idle: u32::try_from(pool.parked().count()).unwrap_or(u32::MAX),
                opening,
                key: pool.key.clone(),
            };
            states.push((pool.id, state));
        }
        let samples: Vec<Sample<'_>> = states
            .iter()
            .map(|(pool, state)| Sample {
                pool: *pool,
                database: &state.key.database,
                user: &state.key.user,
                waiting: state.waiting,
                maxwait: state.maxwait,
                idle: state.idle,
                opening: state.opening,
                pulse: pulses.get(pool).copied().unwrap_or_default(),
                errors: take_errors(&mut errors, &state.key),
            })
            .collect();
        let others = errors.iter().map(|error| error.count).sum();
        lock(&self.0.recorder).record(now, &samples, others);
        Some(())
    }
}

/// A pool's own state.
struct State {
    key: PoolKey,
    waiting: u32,
    maxwait: Micros,
    idle: u32,
    opening: u32,
}

fn take_errors(errors: &mut Vec<ErrorCount>, key: &PoolKey) -> u32 {
    let is_of = |error: &ErrorCount| (&*error.database, &*error.user) == (&key.database, &key.user);
    let at = errors.iter().position(is_of);
    at.map_or(0, |at| errors.swap_remove(at).count)
}
