//! The statistics of each `stats_period`: the averages behind the console's `avg_` columns and
//! the `stats:` line of the log.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use engine::{
    ids::{Micros, PoolId},
    stats::Stats,
};

use crate::{
    controller::{Controller, Period},
    log,
};

/// Works through one period after the other, for ever.
pub(super) async fn keep(controller: Controller) {
    let mut before: HashMap<PoolId, Stats> = HashMap::new();
    let mut began = controller.now();
    loop {
        let seconds = controller.config().global.stats_period.max(1);
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        let snapshot = controller.snapshot().await;
        let now: HashMap<_, _> = snapshot.pools.iter().map(|pool| (pool.id, pool.stats)).collect();
        let pools: HashMap<_, _> = now
            .iter()
            .map(|(id, stats)| (*id, since(stats, &before.get(id).copied().unwrap_or_default())))
            .collect();
        let period = Period { micros: snapshot.now.saturating_sub(began), pools };
        if controller.config().global.log_stats {
            log!("{}", line(&period));
        }
        let latest = &controller.0.period;
        *latest.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(period);
        (before, began) = (now, snapshot.now);
    }
}

/// What was counted between two moments.
fn since(now: &Stats, before: &Stats) -> Stats {
    Stats {
        assignments: now.assignments.saturating_sub(before.assignments),
        transactions: now.transactions.saturating_sub(before.transactions),
        queries: now.queries.saturating_sub(before.queries),
        received: now.received.saturating_sub(before.received),
        sent: now.sent.saturating_sub(before.sent),
        transaction_time: now.transaction_time.saturating_sub(before.transaction_time),
        query_time: now.query_time.saturating_sub(before.query_time),
        wait_time: now.wait_time.saturating_sub(before.wait_time),
        client_parses: now.client_parses.saturating_sub(before.client_parses),
        server_parses: now.server_parses.saturating_sub(before.server_parses),
        binds: now.binds.saturating_sub(before.binds),
    }
}

/// In PgBouncer's words: rates a second, times per transaction, query and assignment.
fn line(period: &Period) -> String {
    let mut all = Stats::default();
    period.pools.values().for_each(|stats| all += *stats);
    let rate = |count: u64| per(count.saturating_mul(1_000_000), period.micros);
    format!(
        "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} binds/s, in \
         {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
        rate(all.transactions),
        rate(all.queries),
        rate(all.client_parses),
        rate(all.server_parses),
        rate(all.binds),
        rate(all.received),
        rate(all.sent),
        per(all.transaction_time, all.transactions),
        per(all.query_time, all.queries),
        per(all.wait_time, all.assignments),
    )
}

fn per(total: u64, count: Micros) -> u64 {
    total.checked_div(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let pools = [(PoolId(0), stats), (PoolId(1), stats)].into();
        assert_eq!(
            line(&Period { micros: 2_000_000, pools }),
            "stats: 20 xacts/s, 40 queries/s, 0 client parses/s, 0 server parses/s, 0 binds/s, in \
             4000 B/s, out 8000 B/s, xact 100 us, query 30 us, wait 5 us"
        );
        assert!(line(&Period::default()).starts_with("stats: 0 xacts/s"));
    }
}
