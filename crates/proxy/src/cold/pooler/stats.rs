//! The statistics of each `stats_period`: the averages of the console's `avg_` columns and the
//! log's `stats:` line.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use engine::averages::Averages;
use tokio::time::{Instant, sleep};

use crate::{cold::controller::Controller, log};

/// The interval of checks whether `stats_period` has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Records one period after the other, forever.
pub(super) async fn keep(controller: Controller) {
    let mut averages = Averages::new(controller.now());
    loop {
        until_the_end_of_a_period(&controller).await;
        let snapshot = controller.snapshot().await;
        averages.record(snapshot.now, snapshot.pools.iter().map(|pool| (pool.id, pool.stats)));
        let line = line(&averages);
        if controller.config().global.log_stats {
            log!("{line}");
        }
        controller.0.notifier.status(&line);
        let latest = &controller.0.averages;
        *latest.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(averages.clone());
    }
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
    use engine::{ids::PoolId, stats::Stats};

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
