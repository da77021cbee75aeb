//! The statistics of each `stats_period`: the averages of the console's `avg_` columns, the log's
//! `stats:` line, and what the figures of a pool tell its operator.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use engine::{averages::Averages, settings::PoolKey, stats::Stats};
use tokio::time::{Instant, sleep};

use crate::{
    cold::controller::{Controller, PoolInfo},
    log, warning,
};

/// The interval of checks whether `stats_period` has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Records one period after the other, forever.
pub(super) async fn keep(controller: Controller) {
    let mut averages = Averages::new(controller.now());
    let mut told = Told::default();
    loop {
        until_the_end_of_a_period(&controller).await;
        let snapshot = controller.snapshot().await;
        averages.record(snapshot.now, snapshot.pools.iter().map(|pool| (pool.id, pool.stats)));
        told.retain(&snapshot.pools);
        for pool in &snapshot.pools {
            told.tell(pool, &averages.of([pool.id]));
        }
        let line = line(&averages);
        if controller.config().global.log_stats {
            log!("{line}");
        }
        controller.0.notifier.status(&line);
        let latest = &controller.0.averages;
        *latest.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(averages.clone());
    }
}

/// Statements that a pool's servers prepare again each second, on average, below which nothing is said.
const AGAIN_MIN: u64 = 10;
/// A tenth of the Binds.
const AGAIN_SHARE: u64 = 10;

/// The pools of which the log has told something.
#[derive(Default)]
struct Told {
    process_ids: HashSet<PoolKey>,
    statements: HashSet<PoolKey>,
}

impl Told {
    /// Forgets pools that no longer exist.
    fn retain(&mut self, pools: &[PoolInfo]) {
        let keys: HashSet<_> = pools.iter().map(|pool| &pool.key).collect();
        for told in [&mut self.process_ids, &mut self.statements] {
            told.retain(|key| keys.contains(key));
        }
    }

    /// Tells what an operator can change: once for each pool, and statements anew when they had become
    /// rare.
    fn tell(&mut self, pool: &PoolInfo, average: &Stats) {
        let (database, user) = (pool.settings.database_name(), &pool.key.user);
        if pool.stats.process_ids > 0 && self.process_ids.insert(pool.key.clone()) {
            warning!(
                "{database}/{user}: clients ask for pg_backend_pid(), which may differ in their next \
                 transaction; programs that keep it need pin_functions = pg_backend_pid (weir advise \
                 names the texts)"
            );
        }
        let Some(again) = prepared_again(average) else {
            self.statements.remove(&pool.key);
            return;
        };
        if self.statements.insert(pool.key.clone()) {
            warning!(
                "{database}/{user}: servers prepare {again} statements a second again, at {} Binds a \
                 second: clients use more of them than max_prepared_statements ({}), or discard \
                 those of others",
                average.binds,
                pool.settings.max_prepared_statements
            );
        }
    }
}

/// Returns how many statements servers prepare each second that they have had before, if they are many.
/// Each statement of a client that is new to all servers counts as one Parse of the client.
fn prepared_again(average: &Stats) -> Option<u64> {
    let again = average.server_parses.saturating_sub(average.client_parses);
    (again >= AGAIN_MIN && again >= average.binds / AGAIN_SHARE).then_some(again)
}

async fn until_the_end_of_a_period(controller: &Controller) {
    let began = Instant::now();
    loop {
        let seconds = controller.config().global.stats_period.max(1);
        let left = Duration::from_secs(seconds.into()).saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

/// Returns the line in PgBouncer's words: rates per second, times per transaction, query and
/// assignment.
fn line(averages: &Averages) -> String {
    let all = averages.total();
    format!(
        "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} binds/s, in \
         {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
        all.transactions,
        all.queries,
        all.client_parses,
        all.server_parses,
        all.binds,
        all.received,
        all.sent,
        all.transaction_time,
        all.query_time,
        all.wait_time,
    )
}

#[cfg(test)]
mod tests {
    use engine::ids::PoolId;

    use super::*;

    #[test]
    fn statements_that_are_prepared_again_and_again_are_told() {
        let of = |client_parses, server_parses, binds| {
            prepared_again(&Stats { client_parses, server_parses, binds, ..Stats::default() })
        };
        assert_eq!(of(0, 640, 1000), Some(640));
        assert_eq!(of(640, 640, 1000), None, "each client has its own statements");
        assert_eq!(of(0, 9, 9), None, "few");
        assert_eq!(of(5, 100, 1000), None, "servers are new");
    }

    #[test]
    fn the_line_is_pgbouncers() {
        let stats = Stats {
            assignments: 10,
            transactions: 20,
            queries: 40,
            received: 4000,
            sent: 8000,
            transaction_time: 2000,
            query_time: 1200,
            wait_time: 50,
            ..Stats::default()
        };
        let mut averages = Averages::new(0);
        assert!(line(&averages).starts_with("stats: 0 xacts/s"));
        averages.record(2_000_000, [(PoolId(0), stats), (PoolId(1), stats)]);
        assert_eq!(
            line(&averages),
            "stats: 20 xacts/s, 40 queries/s, 0 client parses/s, 0 server parses/s, 0 binds/s, in \
             4000 B/s, out 8000 B/s, xact 100 us, query 30 us, wait 5 us"
        );
    }
}
