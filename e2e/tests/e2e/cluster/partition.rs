//! The primary does not answer, and its connections stay open: the network drops everything, in one
//! direction or both, or the node is frozen.

use std::time::{Duration, Instant};

use testkit::{Postgres, Relay, Way, eventually, frontend};

use super::change::synchronous;
use super::hooks::{check_rows, write_during};
use super::lost::{answer, goes_on};
use super::{PATIENCE, cluster, farewell, setup_at, until_nodes_are, write};
use crate::support;

const KEYS: &str = "sample_interval=0.2 health_timeout=0.5 failover_wait=2";
/// `failover_wait`, the time until the loss is known, and as much again for a busy machine.
const BOUND: Duration = Duration::from_secs(8);
const BOTH: &[Way] = &[Way::There, Way::Back];

fn count(node: &Postgres, act: &str) -> String {
    let count = format!("SELECT count(*) FROM acts WHERE act = '{act}'");
    node.sql("postgres", &count)[0][0].clone().expect("a number")
}

#[test]
fn a_silent_primary_costs_an_error_in_time_and_nothing_runs_twice_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let relay = Relay::before(a.port());
    let pooler = setup_at(a, &[relay.port(), b.port()], KEYS).start();
    for ways in [Some(BOTH), Some(&[Way::There]), Some(&[Way::Back]), None] {
        until_nodes_are(&pooler, &["writable", "readable"]);
        let [mut idle, mut alone, mut begun, mut ending] = [(); 4].map(|()| pooler.client("app"));
        idle.rows("SET work_mem = '7MB'");
        // Its next request waits until Weir has found out what this session has.
        idle.rows("SELECT 1");
        for client in [&mut begun, &mut ending] {
            client.rows("BEGIN");
            write(client, "in a transaction");
        }
        // Another server than those of the transactions is there.
        write(&mut alone, "before");
        match ways {
            Some(ways) => relay.cut(ways),
            None => a.freeze(),
        }
        let began = Instant::now();
        let act = format!("alone {ways:?}");
        alone.send(frontend::query(&format!("INSERT INTO acts (act) VALUES ('{act}')")));
        begun.send(frontend::query("INSERT INTO acts (act) VALUES ('lost')"));
        ending.send(frontend::query("COMMIT"));
        until_nodes_are(&pooler, &["down", "unfit"]);
        let mut late = pooler.client("app");
        late.send(frontend::query("SELECT 1"));
        for (client, code, status) in
            [(&mut alone, "08007", b'I'), (&mut begun, "40001", b'E'), (&mut ending, "08007", b'I')]
        {
            let (error, after) = answer(client);
            assert_eq!((error.code(), after), (code, status), "{ways:?}: {error:?}");
            assert!(error.field('D').contains("the node does not answer"), "{error:?}");
        }
        assert_eq!(farewell(&mut late).code(), "57P03");
        assert!(began.elapsed() < BOUND, "{ways:?}: {:?}", began.elapsed());

        match ways {
            Some(_) => relay.heal(),
            None => a.thaw(),
        }
        begun.rows("ROLLBACK");
        for client in [&mut idle, &mut alone, &mut begun, &mut ending] {
            goes_on(client, a);
        }
        assert_eq!(idle.value("SHOW work_mem"), "7MB");
        // Only the answer was lost, so it is there. Otherwise it may be.
        let counted = count(a, &act);
        assert!(counted == "1" || counted == "0" && ways != Some(&[Way::Back]), "{ways:?}");
        assert_eq!(count(a, "lost"), "0");
    }
    let acts = a.sql(
        "postgres",
        "SELECT act FROM acts WHERE act LIKE 'alone %' GROUP BY act HAVING count(*) > 1",
    );
    assert!(acts.is_empty(), "{acts:?}");
    assert_eq!(pooler.admin("SHOW FAILOVERS").column("to_node"), ["a"; 5]);
}

/// Waits until both standbys have all of the primary's log, and it has stopped to grow.
fn until_all_is_received(primary: &Postgres, standbys: [&Postgres; 2]) {
    eventually("the standbys have everything", PATIENCE, || {
        let ends = standbys.map(|one| one.sql("postgres", "SELECT pg_last_wal_receive_lsn()"));
        let end = primary.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
        ends.iter().all(|own| *own == end).then_some(())
    });
}

#[test]
fn a_promotion_behind_a_partition_loses_no_acknowledged_row_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let relay = Relay::before(a.port());
    let ports = [relay.port(), b.port(), c.port()];
    let keys = "sample_interval=0.2 health_timeout=0.5";
    let pooler = setup_at(a, &ports, keys).workers(2).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    let told = write_during(&pooler, || {
        relay.cut(BOTH);
        until_nodes_are(&pooler, &["down", "unfit", "unfit"]);
        until_all_is_received(a, [b, c]);
        b.promote();
        c.follow(b);
        until_nodes_are(&pooler, &["down", "writable", "readable"]);
    });
    check_rows(b, &told);
    for (row, why) in told.iter().flat_map(|writer| &writer.errors) {
        assert!(["40001", "08007"].iter().any(|code| why.starts_with(code)), "{row}: {why}");
    }
    // The old primary accepts writes still, and gets none.
    relay.heal();
    until_nodes_are(&pooler, &["false primary", "writable", "readable"]);
    for _ in 0..20 {
        write(&mut pooler.client("app"), "healed");
    }
    assert_eq!((count(a, "healed"), count(b, "healed")), ("0".to_owned(), "20".to_owned()));
}
