//! Standbys that are frozen, far behind, or refuse a read in the middle of it.

use std::time::{Duration, Instant};

use testkit::{Message, Pooler, Postgres, eventually, frontend, send_signal};

use super::{PATIENCE, cluster, here, read_while, setup, until_routed};
use crate::cluster::promoting::signal_replay;
use crate::support;

/// A node that is silent for twice `health_timeout` is down. Its reads get as much again, and a busy
/// machine some seconds.
const QUICK: &str = "sample_interval=0.2 health_timeout=0.5";
const BOUND: Duration = Duration::from_secs(6);

#[track_caller]
fn until_node_is(pooler: &Pooler, name: &str, state: &str) {
    eventually(&format!("node {name} is {state}"), PATIENCE, || {
        let node = pooler.admin("SHOW NODES").with("node", name);
        (node.only("state") == state).then_some(())
    });
}

#[test]
fn a_frozen_standby_costs_no_reader_an_error() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, QUICK, "").workers(2).start();
    until_routed(&pooler, &nodes[0]);
    until_node_is(&pooler, "b", "readable");
    let (count, longest) = read_while(&pooler, 8, || {
        for (name, node) in [("b", &nodes[1]), ("c", &nodes[2])] {
            node.freeze();
            until_node_is(&pooler, name, "down");
            // In turn with a node that serves: those that hung on the frozen one are served.
            eventually("no read hangs", PATIENCE, || {
                let servers = pooler.admin("SHOW SERVERS").with("state", "active");
                let port = node.port().to_string();
                (!servers.column("port").contains(&port.as_str())).then_some(())
            });
            node.thaw();
            until_node_is(&pooler, name, "readable");
        }
    });
    println!("{count} reads, the longest took {longest:?}");
    assert!(count > 1_000 && longest < BOUND, "{count} reads, {longest:?}");
}

#[test]
fn a_transaction_on_a_frozen_standby_fails_in_time() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let pooler = setup(&nodes, QUICK, "").start();
    let mut clients = [(); 2].map(|()| until_routed(&pooler, &nodes[0]));
    for client in &mut clients {
        client.rows("BEGIN READ ONLY");
        assert_eq!(here(client), nodes[1].port());
    }
    nodes[1].freeze();
    let began = Instant::now();
    for (client, text) in clients.iter_mut().zip(["SELECT here()", "COMMIT"]) {
        client.send(frontend::query(text));
    }
    for (client, code) in clients.iter_mut().zip(["40001", "08007"]) {
        let told = client.read_to_ready();
        let error = told.iter().find_map(Message::error).expect("an error");
        assert_eq!(error.code(), code, "{error:?}");
    }
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    clients[0].rows("ROLLBACK");
    for client in &mut clients {
        assert_eq!(here(client), nodes[0].port(), "the primary reads meanwhile");
    }
    nodes[1].thaw();
    let standby = nodes[1].port();
    eventually("reads return", PATIENCE, || (here(&mut clients[0]) == standby).then_some(()));
}

#[test]
fn a_read_that_conflicts_with_the_replay_runs_on_the_primary() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    for line in ["ALTER SYSTEM SET max_standby_streaming_delay = 0", "SELECT pg_reload_conf()"] {
        nodes[1].sql("postgres", line);
    }
    nodes[0].sql(
        "postgres",
        "CREATE TABLE victims AS SELECT 1 AS id; GRANT SELECT ON victims TO app;
         CREATE FUNCTION nap(float8) RETURNS void LANGUAGE internal STABLE AS 'pg_sleep'",
    );
    let pooler = setup(&nodes, QUICK, "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    client.send(frontend::query("SELECT here(), count(*), nap(3) FROM victims"));
    let sleeps = |node: &Postgres| {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        node.sql("postgres", count)[0][0].as_deref() == Some("1")
    };
    eventually("it runs on the standby", PATIENCE, || sleeps(&nodes[1]).then_some(()));
    nodes[0].sql("postgres", "TRUNCATE victims");
    let told = client.read_to_ready();
    let row = told.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row[..2], [Some(nodes[0].port().to_string()), Some("0".to_owned())]);
    assert!(pooler.admin("SHOW ROUTES").with("reason", "refused").sum("requests") > 0);
}

/// A session that is idle in a transaction cannot be told at once, so PostgreSQL ends it.
#[test]
fn a_client_outlives_a_conflict_with_the_replay() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    for line in ["ALTER SYSTEM SET max_standby_streaming_delay = 0", "SELECT pg_reload_conf()"] {
        nodes[1].sql("postgres", line);
    }
    nodes[0]
        .sql("postgres", "CREATE TABLE victims AS SELECT 1 AS id; GRANT SELECT ON victims TO app");
    let pooler = setup(&nodes, QUICK, "").start();
    let standby = nodes[1].port();
    for text in ["SELECT count(*) FROM victims", "COMMIT"] {
        let mut client = until_routed(&pooler, &nodes[0]);
        client.rows("BEGIN READ ONLY");
        assert_eq!(client.value("SELECT count(*) FROM victims"), "1");
        assert_eq!(here(&mut client), standby);
        nodes[0].sql("postgres", "TRUNCATE victims; INSERT INTO victims VALUES (1)");
        eventually("the standby ends the session", PATIENCE, || {
            let held = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
            (nodes[1].sql("postgres", held)[0][0].as_deref() == Some("0")).then_some(())
        });
        let error = client.query(text).error.expect("its transaction is lost");
        assert_eq!(error.code(), "40001", "{error:?}");
        client.query("ROLLBACK");
        assert_eq!(client.value("SELECT count(*) FROM victims"), "1", "it keeps its connection");
    }
}

#[test]
fn a_standby_that_is_far_behind_is_neither_read_nor_promoted() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let keys = format!("{QUICK} stop_command=false start_command=true");
    let pooler = setup(&nodes, &keys, "max_lag_bytes=1000000 max_staleness=0").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    until_node_is(&pooler, "b", "readable");
    signal_replay(&nodes[1], "STOP");
    nodes[0].sql(
        "postgres",
        "INSERT INTO acts SELECT n, md5(n::text) FROM generate_series(1, 300000) n",
    );
    let refused = || {
        let error = pooler.try_admin("SWITCHOVER app TO b").error.expect("it is refused");
        error.message().to_owned()
    };
    eventually("the lag is known", PATIENCE, || refused().contains("behind").then_some(()));
    let standby = nodes[2].port();
    eventually("reads go to the other one", PATIENCE, || {
        (here(&mut client) == standby).then_some(())
    });
    for _ in 0..20 {
        let mut client = pooler.client("app");
        assert_eq!(here(&mut client), standby);
        assert_eq!(client.value("SELECT count(*) FROM acts"), "300000");
    }
    assert_eq!(client.value("/* weir: primary */ SELECT here()"), nodes[0].port().to_string());
    signal_replay(&nodes[1], "CONT");
    eventually("it is read again", PATIENCE, || {
        (here(&mut pooler.client("app")) == nodes[1].port()).then_some(())
    });
}

#[test]
fn a_standby_that_receives_no_log_gets_no_stale_reads() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [primary, standby] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&nodes, QUICK, "max_staleness=0.6").start();
    let mut client = until_routed(&pooler, primary);
    // The process that receives it is stopped: the standby still says that it streams.
    let receiver = standby.sql("postgres", "SELECT pid FROM pg_stat_wal_receiver");
    let receiver = receiver[0][0].as_ref().and_then(|pid| pid.parse().ok()).expect("it streams");
    send_signal(receiver, "STOP");
    for id in 1..=50 {
        client.rows(&format!("INSERT INTO acts VALUES ({id}, 'own')"));
        assert_eq!(client.value("SELECT max(id) FROM acts"), id.to_string());
    }
    primary.sql("postgres", "INSERT INTO acts VALUES (51, 'direct')");
    eventually("reads go to the primary", PATIENCE, || {
        (here(&mut client) == primary.port()).then_some(())
    });
    assert_eq!(client.value("SELECT max(id) FROM acts"), "51");
    send_signal(receiver, "CONT");
    let routed = |client: &mut _| (here(client) == standby.port()).then_some(());
    eventually("reads return", PATIENCE, || routed(&mut client));
    // It has no primary any more, and the process ends.
    standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("postgres", "SELECT pg_reload_conf()");
    until_node_is(&pooler, "b", "unfit");
    let node = pooler.admin("SHOW NODES").with("node", "b");
    assert_eq!(node.only("reason"), "does not stream from a primary");
    for id in 52..=80 {
        client.rows(&format!("INSERT INTO acts VALUES ({id}, 'own')"));
        assert_eq!(client.value("SELECT max(id) FROM acts"), id.to_string());
        assert_eq!(here(&mut client), primary.port());
    }
    standby.follow(primary);
    until_node_is(&pooler, "b", "readable");
    eventually("reads return again", PATIENCE, || routed(&mut client));
    assert_eq!(client.value("SELECT max(id) FROM acts"), "80");
}
