//! The reads of a session do not go back in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, RawClient};

use super::{cluster, setup, until_routed};
use crate::support;

/// The time for which the sessions read.
const TIME: Duration = Duration::from_secs(3);

/// The reads of sessions.
#[derive(Debug, Default)]
struct Tally {
    reads: u32,
    /// Reads that have shown less than the one before.
    back: u32,
    /// Reads on the primary that lack only the last commit, behind one on a standby. PostgreSQL makes
    /// a commit visible on the primary when standbys may have it already.
    early: u32,
    on_standbys: u32,
    /// Reads on another node than the one before.
    moves: u32,
}

/// Reads for a while as one session, with a pause behind every eighth read.
fn reads(client: &mut RawClient, primary: u16, texts: &[&str], time: Duration) -> Tally {
    let mut tally = Tally::default();
    let (mut shown, mut place) = (0, String::new());
    let began = Instant::now();
    while began.elapsed() < time {
        let text = texts[tally.reads as usize % texts.len()];
        let row = client.rows(text).remove(0);
        let [count, here] = [0, 1].map(|at| row[at].clone().expect("a value"));
        let count: u64 = count.parse().expect("a number");
        tally.reads += 1;
        let is_early =
            count + 1 == shown && here == primary.to_string() && place != primary.to_string();
        tally.back += u32::from(count < shown && !is_early);
        tally.early += u32::from(is_early);
        tally.on_standbys += u32::from(here != primary.to_string());
        tally.moves += u32::from(here != place);
        (shown, place) = (count, here);
        if tally.reads.is_multiple_of(8) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    tally
}

/// Has sessions read while somebody else writes past Weir.
fn read_beside_a_writer(nodes: &[Postgres], pooler: &Pooler, texts: &[&str]) -> Tally {
    let over = AtomicBool::new(false);
    let primary = nodes[0].port();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut direct = nodes[0].superuser("postgres");
            while !over.load(Ordering::Relaxed) {
                direct.rows("INSERT INTO acts VALUES (1, 'direct')");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let read = || reads(&mut pooler.client("app"), primary, texts, TIME);
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        let mut sum = Tally::default();
        for reader in readers {
            let own = reader.join().expect("no read fails");
            sum.reads += own.reads;
            sum.back += own.back;
            sum.early += own.early;
            sum.on_standbys += own.on_standbys;
            sum.moves += own.moves;
        }
        over.store(true, Ordering::Relaxed);
        writer.join().expect("no write fails");
        sum
    })
}

const READ: &str = "SELECT count(*), here() FROM acts";

#[test]
fn a_sessions_reads_do_not_go_back_in_time_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    // One standby is always behind the other one.
    let delay = "ALTER SYSTEM SET recovery_min_apply_delay = '60ms'";
    nodes[2].sql("postgres", delay);
    nodes[2].sql("postgres", "SELECT pg_reload_conf()");
    let by_name = ["b", "c"].map(|node| format!("/* weir: node={node} */ {READ}"));
    let by_name = by_name.each_ref().map(String::as_str);
    let with_primary = [READ, READ, "/* weir: primary */ SELECT count(*), here() FROM acts"];
    for (keys, texts) in [
        ("balance=statement", &[READ][..]),
        ("balance=statement", &with_primary[..]),
        ("balance=session", &with_primary[..]),
        ("balance=session", &by_name[..]),
    ] {
        let pooler = setup(&nodes, "", keys).workers(2).start();
        until_routed(&pooler, &nodes[0]);
        let tally = read_beside_a_writer(&nodes, &pooler, texts);
        println!("{keys}, {} texts: {tally:?}", texts.len());
        assert_eq!(tally.back, 0, "{keys}, {texts:?}: {tally:?}");
        assert!(tally.on_standbys > 20 && tally.moves > 8, "{keys}, {texts:?}: {tally:?}");
    }
}
