//! Standbys of a quiet primary stay fresh, whatever its sessions leave in its log.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, eventually};

use super::{PATIENCE, cluster, furnished, here, setup, until_routed};
use crate::support;

/// Reads for a while in new sessions. Returns the number of reads, and of those on a standby.
fn read_in_new_sessions(pooler: &Pooler, primary: u16, time: Duration) -> (u32, u32) {
    let (mut all, mut on_standbys) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        all += 1;
        on_standbys += u32::from(here(&mut pooler.client("app")) != primary);
        thread::sleep(Duration::from_millis(20));
    }
    (all, on_standbys)
}

#[test]
fn a_read_that_is_rolled_back_makes_no_standby_stale() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    // The next read of this table prunes its pages, which it writes to the log.
    nodes[0].sql(
        "postgres",
        "CREATE TABLE pruned AS SELECT n AS id FROM generate_series(1, 20000) n;
         ALTER TABLE pruned SET (autovacuum_enabled = off);
         GRANT SELECT ON pruned TO app",
    );
    nodes[0].sql("postgres", "DELETE FROM pruned WHERE id % 2 = 0");
    nodes[0].sql("postgres", "CHECKPOINT");
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let position = || nodes[0].sql("postgres", "SELECT pg_current_wal_insert_lsn()")[0][0].clone();
    let before = position();
    client.rows("BEGIN");
    client.rows("SELECT count(*) FROM pruned");
    client.rows("ROLLBACK");
    assert_ne!(position(), before, "the read has written nothing");
    let time = Duration::from_secs(6);
    let (all, on_standbys) = read_in_new_sessions(&pooler, nodes[0].port(), time);
    println!("{on_standbys} of {all} reads on standbys behind a read that was rolled back");
    assert!(on_standbys * 100 >= all * 95, "{on_standbys} of {all} reads on standbys");
    // A log that is flushed is left alone.
    let flushed = || {
        let text = "SELECT pg_current_wal_insert_lsn() = pg_current_wal_flush_lsn()";
        nodes[0].sql("postgres", text)[0][0].as_deref() == Some("t")
    };
    eventually("all is flushed", PATIENCE, || flushed().then_some(()));
    let number = || nodes[0].sql("postgres", "SELECT txid_current()")[0][0].clone();
    let (before, began) = (number(), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let spent = number(nodes[0].sql("postgres", "SELECT txid_current()")[0][0].clone());
    let spent = spent - number(before) - 1;
    assert!(spent <= 2, "{spent} transactions in {:?} of rest", began.elapsed());
}

#[test]
fn a_commit_that_is_not_flushed_counts_as_a_write() {
    if !support::only_weir() {
        return;
    }
    let nodes = furnished(testkit::Postgres::start_cluster(1));
    for line in [
        "ALTER SYSTEM SET wal_writer_delay = '2s'",
        "ALTER SYSTEM SET wal_writer_flush_after = '1GB'",
        "SELECT pg_reload_conf()",
    ] {
        nodes[0].sql("postgres", line);
    }
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    client.rows("SET synchronous_commit = off");
    let (mut stale, mut on_standbys) = (0, 0);
    for id in 1..=60 {
        client.rows(&format!("INSERT INTO acts VALUES ({id}, 'own')"));
        // Some samples are taken meanwhile.
        thread::sleep(Duration::from_millis(60));
        let row = client.rows("SELECT max(id), here() FROM acts").remove(0);
        stale += u32::from(row[0].as_ref() != Some(&id.to_string()));
        on_standbys += u32::from(row[1].as_ref() != Some(&nodes[0].port().to_string()));
    }
    println!("synchronous_commit = off: {stale} of 60 stale, {on_standbys} on standbys");
    assert_eq!(stale, 0, "{on_standbys} on standbys");
}
