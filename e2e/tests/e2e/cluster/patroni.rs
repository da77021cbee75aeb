//! Debian's Patroni and etcd: Weir finds the nodes, follows a failover, and has Patroni carry out a
//! switchover.

mod modes;

use std::time::{Duration, Instant};

use testkit::{Member, Patroni, Pooler, Setup, eventually};

use super::hooks::{check_no_errors, check_rows, write_during};
use super::{PATIENCE, node_of};
use crate::support;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The page of the documentation with the example.
const PAGE: &str = include_str!("../../../../docs/cluster.md");

/// Returns the keys and values of a table in the example for `weir.toml` in docs/cluster.md, in the
/// form of `pgbouncer.ini`.
fn example(table: &str) -> String {
    let part = PAGE.split("\n### Example with Patroni\n").nth(1).expect("there is an example");
    let block = part.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = block.expect("the example is in a block").lines().map(str::trim);
    let lines = lines.skip_while(|line| *line != format!("[{table}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let settings = lines.filter_map(|line| line.split_once(" = "));
    let settings = settings.map(|(key, value)| {
        let value = value.replace(['[', ']', '"'], "");
        format!("{key}='{value}'")
    });
    settings.collect::<Vec<_>>().join(" ")
}

/// Returns a pooler configured as in the documentation, with the addresses of these members.
fn setup(cluster: &Patroni, members: &[Member]) -> Setup {
    setup_with(cluster, members, "")
}

/// Does the same with more keys of the cluster.
fn setup_with(cluster: &Patroni, members: &[Member], more: &str) -> Setup {
    let mut keys = example("clusters.main");
    for (member, address) in members.iter().zip(["10.0.0.1", "10.0.0.2", "10.0.0.3"]) {
        keys = keys.replace(&format!("https://{address}:8008"), &member.api());
    }
    for (own, tests) in [
        ("/etc/weir/patroni-ca.pem", cluster.authority()),
        ("patroni_user='weir'", &format!("patroni_user='{}'", Patroni::API_USER)),
        ("'api-secret'", &format!("'{}'", Patroni::API_PASSWORD)),
        (" password='secret'", " password='weir-secret'"),
    ] {
        assert!(keys.contains(own), "{keys}");
        keys = keys.replace(own, tests);
    }
    let sample = SAMPLE_INTERVAL.as_secs();
    let keys = format!("{keys} discovery_interval=0.5 sample_interval={sample} {more}");
    Pooler::before(&members[0].postgres)
        .set("pool_mode", "auto")
        .cluster("main", &keys)
        .database_at("app", &format!("{} dbname=postgres", example("databases.app")))
}

/// Waits until SHOW NODES has these nodes and states, by name.
#[track_caller]
fn until_nodes_are(pooler: &Pooler, expected: &[(&str, &str)]) {
    eventually(&format!("the nodes are {expected:?}"), Duration::from_secs(40), || {
        let nodes = pooler.admin("SHOW NODES");
        let (names, states) = (nodes.column("node"), nodes.column("state"));
        let mut found: Vec<_> = names.into_iter().zip(states).collect();
        found.sort_unstable();
        (found == expected).then_some(())
    });
}

#[test]
fn patroni_names_the_nodes_and_changes_the_primary() {
    if !support::only_weir() {
        return;
    }
    let (cluster, mut members) = Patroni::start_cluster("a", &["b", "c"]);
    members[0].postgres.sql("postgres", "CREATE TABLE acts (node int, act text)");
    members[0].postgres.sql("postgres", "GRANT ALL ON acts TO app");
    let pooler = setup(&cluster, &members).workers(2).start();
    until_nodes_are(&pooler, &[("a", "writable"), ("b", "readable"), ("c", "readable")]);
    let clusters = pooler.admin("SHOW CLUSTERS");
    assert_eq!((clusters.only("source"), clusters.only("source_error")), ("patroni", ""));
    let mut idle = pooler.client("app");
    idle.rows("SET work_mem = '7MB'");
    assert_eq!(node_of(&mut idle), members[0].postgres.port());

    // A switchover costs no client an error.
    let told = write_during(&pooler, || {
        pooler.admin("SWITCHOVER app TO b");
        until_nodes_are(&pooler, &[("a", "readable"), ("b", "writable"), ("c", "readable")]);
    });
    let errors: Vec<_> = told.iter().flat_map(|writer| &writer.errors).collect();
    assert!(errors.is_empty(), "{errors:?}\n{}", pooler.log());
    let longest = check_rows(&members[1].postgres, &told);
    println!("the longest wait of a switchover was {longest:?}");
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    assert_eq!(node_of(&mut idle), members[1].postgres.port());
    assert_eq!(idle.value("SHOW work_mem"), "7MB");
    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("reason")[1], "switchover to node b");

    // A node that leaves is forgotten, and a new one is found.
    members[2].leave();
    until_nodes_are(&pooler, &[("a", "readable"), ("b", "writable")]);
    let new = cluster.member("d");
    new.wait_until_it_streams();
    until_nodes_are(&pooler, &[("a", "readable"), ("b", "writable"), ("d", "readable")]);

    // Patroni replaces a primary that is killed, and Weir follows.
    members[1].kill9();
    let standbys = [&members[0], &new];
    let promoted = eventually("Patroni promotes a standby", Duration::from_secs(40), || {
        standbys.into_iter().find(|member| member.is_primary())
    });
    let began = Instant::now();
    let port = eventually("a client is served", PATIENCE, || {
        let mut client = pooler.login("app", "app", "app-secret").ok()?;
        Some(node_of(&mut client))
    });
    let took = began.elapsed();
    println!("a client was served {took:?} after the promotion");
    assert_eq!(port, promoted.postgres.port());
    assert!(took < 2 * SAMPLE_INTERVAL, "{took:?}");
    assert_eq!(node_of(&mut idle), port);
    assert_eq!(idle.value("SHOW work_mem"), "7MB");
    let other = if promoted.name == "a" { "d" } else { "a" };
    let mut left = [(&*promoted.name, "writable"), (other, "readable")];
    left.sort_unstable();
    until_nodes_are(&pooler, &left);
    pooler.log_contains("cluster main: its nodes are ");
}

/// Some minutes long, so it runs with `WEIR_TESTS=full` only.
#[test]
fn many_changes_by_patroni_lose_no_acknowledged_row_strict() {
    let is_full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    if !is_full || !support::only_weir() {
        return;
    }
    let (cluster, members) = Patroni::start_cluster("a", &["b", "c"]);
    members[0].postgres.sql("postgres", "CREATE TABLE acts (node int, act text)");
    members[0].postgres.sql("postgres", "GRANT ALL ON acts TO app");
    let pooler = setup(&cluster, &members).workers(2).start();
    let until_primary_is = |primary: &str| {
        let state = |name| (name, if name == primary { "writable" } else { "readable" });
        until_nodes_are(&pooler, &["a", "b", "c"].map(state));
    };
    until_primary_is("a");
    let told = write_during(&pooler, || {
        for to in ["b", "c", "a", "c", "b", "a"] {
            pooler.admin(&format!("SWITCHOVER app TO {to}"));
            until_primary_is(to);
        }
    });
    check_no_errors(&told);
    println!("the longest wait was {:?}", check_rows(&members[0].postgres, &told));
    members[0].postgres.sql("postgres", "TRUNCATE acts");

    // A switchover of which Weir does not know.
    let told = write_during(&pooler, || {
        let mut command = members[0].control();
        command.args(["switchover", "weir", "--force", "--master", "a", "--candidate", "b"]);
        support::run(&mut command);
        until_primary_is("b");
    });
    check_rows(&members[1].postgres, &told);
    for (_, why) in told.iter().flat_map(|writer| &writer.errors) {
        assert!(["40001", "08007", "08006"].iter().any(|code| why.starts_with(code)), "{why}");
    }

    // Without etcd there is no primary, and the nodes stay known.
    cluster.freeze_etcd();
    eventually("the primary is a standby", Duration::from_secs(60), || {
        let clusters = pooler.admin("SHOW CLUSTERS");
        let is_lost = clusters.only("primary").is_empty() && clusters.only("nodes") == "3";
        (is_lost && !clusters.only("source_error").is_empty()).then_some(())
    });
    cluster.thaw_etcd();
    let mut client = pooler.client("app");
    let port = node_of(&mut client);
    assert!(members.iter().any(|member| member.postgres.port() == port && member.is_primary()));
    eventually("all nodes are used again", Duration::from_secs(60), || {
        let clusters = pooler.admin("SHOW CLUSTERS");
        (clusters.only("readable_nodes") == "2").then_some(())
    });
}
