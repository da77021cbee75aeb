//! Reads on standbys while the cluster has no primary.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

use super::{PATIENCE, cluster, here, read_while, setup, until_routed};
use crate::support;

const QUICK: &str = "sample_interval=0.2 health_timeout=0.5 failover_wait=60";

/// Kills the primary, and waits until Weir knows.
fn lose_primary(nodes: &[Postgres], pooler: &Pooler) {
    nodes[0].kill9();
    eventually("the primary is lost", PATIENCE, || {
        let cluster = pooler.admin("SHOW CLUSTERS");
        cluster.only("primary").is_empty().then_some(())
    });
    // `max_staleness` is over.
    std::thread::sleep(Duration::from_millis(1_200));
}

fn is_standby(nodes: &[Postgres], client: &mut RawClient) -> bool {
    let here = here(client);
    nodes[1..].iter().any(|node| node.port() == here)
}

/// Does the request get no answer for a while?
fn waits(client: &mut RawClient, text: &str) -> bool {
    client.set_timeout(Duration::from_millis(1_500));
    client.send(frontend::query(text));
    let answer = client.try_read();
    client.set_timeout(PATIENCE);
    answer.is_err()
}

#[test]
fn standbys_are_read_without_a_primary_by_those_who_ask() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, QUICK, "").workers(2).start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let [mut early, mut writer, mut transaction] = [(); 3].map(|()| pooler.client("app"));
    assert!(is_standby(&nodes, &mut early));
    lose_primary(&nodes, &pooler);
    let hint = "sessions with weir.route = 'standby'";
    assert!(pooler.log().contains(hint), "the log tells what would serve");
    // Also sessions that have been there before, and new ones.
    for mut own in [early, pooler.client("app")] {
        assert_eq!(own.value("/* weir: standby */ SELECT count(*) FROM acts"), "0");
        own.rows("SET weir.route = 'standby'");
        for _ in 0..10 {
            assert!(is_standby(&nodes, &mut own));
        }
        own.rows("BEGIN READ ONLY");
        assert_eq!(own.value("SELECT count(*) FROM acts"), "0");
        own.rows("COMMIT");
        own.rows("BEGIN");
        assert!(is_standby(&nodes, &mut own));
        own.rows("COMMIT");
    }
    transaction.rows("SET weir.route = 'standby'");
    assert!(waits(&mut transaction, "INSERT INTO acts VALUES (1, 'late')"), "a write");
    assert!(waits(&mut client, "SELECT here()"), "the default");
    // All go on at the next primary.
    nodes[1].promote();
    for late in [&mut transaction, &mut client] {
        let answer = late.read_to_ready();
        assert!(answer.iter().all(|message| message.error().is_none()), "{answer:?}");
    }
    writer.rows("INSERT INTO acts VALUES (2, 'own')");
    assert_eq!(writer.value("SELECT count(*) FROM acts"), "2");
}

#[test]
fn without_a_limit_of_age_reads_go_on_without_a_primary() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let keys = "max_staleness=0";
    let pooler = setup(&nodes, QUICK, keys).workers(2).start();
    let mut writer = until_routed(&pooler, &nodes[0]);
    eventually("both standbys are read", PATIENCE, || {
        let places: BTreeSet<_> = (0..4).map(|_| here(&mut pooler.client("app"))).collect();
        (places.len() == 2).then_some(())
    });
    let [mut reader, mut unsure] = [(); 2].map(|()| pooler.client("app"));
    for client in [&mut reader, &mut unsure] {
        assert!(is_standby(&nodes, client));
    }
    let (count, longest) = read_while(&pooler, 4, || {
        nodes[1..]
            .iter()
            .for_each(|node| drop(node.sql("postgres", "SELECT pg_wal_replay_pause()")));
        writer.rows("INSERT INTO acts VALUES (1, 'own')");
        // No standby has what it reads here.
        unsure.rows("/* weir: primary */ SELECT count(*) FROM acts");
        lose_primary(&nodes, &pooler);
    });
    println!("{count} reads, the longest took {longest:?}");
    assert!(longest < Duration::from_secs(5), "{count} reads, {longest:?}");
    let routes = pooler.admin("SHOW ROUTES").with("reason", "read").sum("requests");
    for mut client in [reader, pooler.client("app")] {
        // As drivers begin.
        client.rows("SET extra_float_digits = 3");
        assert!(is_standby(&nodes, &mut client));
        client.rows("BEGIN READ ONLY");
        assert_eq!(client.value("SELECT count(*) FROM acts"), "0");
        client.rows("COMMIT");
    }
    assert!(pooler.admin("SHOW ROUTES").with("reason", "read").sum("requests") > routes);
    for client in [&mut writer, &mut unsure] {
        assert!(waits(client, "SELECT count(*) FROM acts"), "it may not go back in time");
    }
    nodes[1..].iter().for_each(|node| drop(node.sql("postgres", "SELECT pg_wal_replay_resume()")));
    nodes[1].promote();
    for late in [&mut writer, &mut unsure] {
        let answer = late.read_to_ready();
        let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
        assert_eq!(row[0].as_deref(), Some("1"));
    }
}
