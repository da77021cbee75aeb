//! Clients that leave in an open transaction: their backends end, and are replaced at once.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use testkit::{Pooler, Postgres};

use super::Direct;
use crate::support;

/// Clients that come, begin a transaction, and leave, at a time.
const LEAVERS: usize = 4;
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

/// Returns how many clients have left in a round, while another one is served.
fn left(pooler: &Pooler, database: &str) -> u32 {
    let (is_over, count) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..LEAVERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pooler.client(database).rows("BEGIN");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut client = pooler.client(database);
        let began = Instant::now();
        while began.elapsed() < ROUND {
            assert_eq!(client.value("SELECT 1"), "1");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    count.into_inner()
}

/// A proxied pool opens another server at once, too. Each client costs a login to PostgreSQL.
#[test]
fn clients_that_leave_in_a_transaction_cost_a_direct_pool_no_more_than_a_proxied_one() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let own = Postgres::start();
    let database = own.database();
    let proxied = Pooler::before(&own)
        .set("pool_mode", "auto")
        .set("data_path", "proxy")
        .set("default_pool_size", 2)
        .database(&database, "")
        .start();
    let rounds =
        (0..ROUNDS).map(|_| (left(&direct.pooler, &direct.database), left(&proxied, &database)));
    let mut all = Vec::new();
    for (direct, proxied) in rounds {
        all.push((direct, proxied));
        if 4 * direct >= 3 * proxied {
            return;
        }
    }
    panic!("clients that have left a direct pool and a proxied one: {all:?}");
}
