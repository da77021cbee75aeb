//! The figures of the pooler and of its pools, for the metrics. A snapshot has a row for each
//! connection; this has none, so that it costs little when there are many connections.

use std::{collections::HashMap, sync::Arc};

use engine::{
    failures::Failures,
    figures::{ClientCounts, PoolFigures},
    ids::{Micros, PoolId},
    report::CancelTarget,
    server_state,
    settings::{PoolKey, PoolSettings},
    switches::Switches,
};

use super::{
    controller::{Controller, ReloadResult},
    passwords::PasswordInfo,
};
use crate::exchange::{hub::lock, mail::ShellMail, reports::CancelInfo};

/// The whole pooler at one moment. Counters count from the start of the process.
#[derive(Clone, Debug)]
pub struct Measures {
    pub now: Micros,
    pub workers: u16,
    pub switches: Switches,
    pub reload: ReloadResult,
    /// Clients without a pool: those that log in, and cancel requests.
    pub clients: ClientCounts,
    /// Failures of all workers together.
    pub failures: Failures,
    /// The certificates that Weir shows: the key of each, and the end of its validity in seconds since
    /// 1970.
    pub certificates: Vec<(&'static str, i64)>,
    /// The passwords of databases with a `password_command`.
    pub passwords: Vec<PasswordInfo>,
    /// The pools by number.
    pub pools: Vec<PoolMeasures>,
    /// Prepared statements that differ in text or types, and the bytes they take.
    pub statements: (usize, usize),
}

/// A pool at one moment.
#[derive(Clone, Debug)]
pub struct PoolMeasures {
    pub key: PoolKey,
    pub settings: Arc<PoolSettings>,
    /// Since when the first in the queue waits.
    pub oldest_wait: Option<Micros>,
    /// The figures of all workers together, with the parked servers.
    pub figures: PoolFigures,
    /// Cancel requests for its servers: sent, and not sent yet.
    pub cancels: (u64, u64),
}

impl Controller {
    /// Measures. `None` when the pooler has ended.
    pub async fn measures(&self) -> Option<Measures> {
        let answers = self.ask(ShellMail::Figures).await?;
        let now = self.now();
        let (mut clients, mut failures) = (ClientCounts::default(), Failures::default());
        let mut figures: HashMap<PoolId, PoolFigures> = HashMap::new();
        let mut cancels: HashMap<PoolId, (u64, u64)> = HashMap::new();
        for answer in answers {
            clients += answer.figures.clients;
            failures += answer.figures.failures;
            for (pool, own) in answer.figures.pools {
                *figures.entry(pool).or_default() += &own;
            }
            for CancelInfo { sent, row } in answer.cancels {
                if let CancelTarget::Pool(pool) = row.to {
                    let (sent_ones, others) = cancels.entry(pool).or_default();
                    *(if sent { sent_ones } else { others }) += 1;
                }
            }
        }
        let shared = &self.0.shared;
        let mut pools = Vec::new();
        for pool in shared.hub.pools() {
            let pool = lock(&pool);
            if pool.is_abandoned() {
                continue;
            }
            let mut own = figures.remove(&pool.id).unwrap_or_default();
            for parked in pool.parked() {
                own.servers.add(server_state(&parked.server, pool.settings.check_delay, now));
            }
            pools.push(PoolMeasures {
                key: pool.key.clone(),
                settings: Arc::clone(&pool.settings),
                oldest_wait: pool.oldest_wait(),
                figures: own,
                cancels: cancels.remove(&pool.id).unwrap_or_default(),
            });
        }
        Some(Measures {
            now,
            workers: shared.hub.worker_count(),
            switches: shared.hub.switches(),
            reload: self.last_reload(),
            clients,
            failures,
            certificates: shared.tls().certificates(),
            passwords: self.passwords(),
            pools,
            statements: shared.hub.statement_memory(),
        })
    }

    /// Returns the figures of all pools together; they are zero when the pooler has ended.
    pub async fn totals(&self) -> PoolFigures {
        let measures = self.measures().await;
        let mut totals = PoolFigures::default();
        measures.iter().flat_map(|all| &all.pools).for_each(|pool| totals += &pool.figures);
        totals
    }
}
