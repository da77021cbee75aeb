//! Several nodes accept writes. Weir writes to one of them, or to none.

use std::collections::HashMap;

use testkit::{Pooler, Postgres, eventually, frontend};

use super::hooks::{Told, write_during};
use super::{PATIENCE, cluster, farewell, node_of, setup, until_nodes_are, until_replayed, write};
use crate::support;

/// Returns the greatest number of each writer's rows that were written at `node`, and the least.
fn numbers(on: &Postgres, node: &Postgres) -> HashMap<String, (u64, u64)> {
    let text = format!(
        "SELECT split_part(act, '-', 1), max(split_part(act, '-', 2)::int), \
         min(split_part(act, '-', 2)::int) FROM acts WHERE node = {} GROUP BY 1",
        node.port()
    );
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    let rows = on.sql("postgres", &text).into_iter();
    let entry =
        |row: Vec<Option<String>>| Some((row[0].clone()?, (number(&row[1])?, number(&row[2])?)));
    rows.filter_map(entry).collect()
}

/// Asserts that each writer has left the old primary for good.
fn assert_one_at_a_time(old: &Postgres, new: &Postgres, told: &[Told]) {
    let (before, after) = (numbers(old, old), numbers(new, new));
    assert_eq!(after.len(), told.len(), "all writers have gone on");
    for (writer, (_, first)) in after {
        let last = before.get(&writer).map(|(last, _)| *last);
        assert!(last < Some(first), "writer {writer}: {last:?} at the old one, {first} at the new");
    }
}

fn writes_go_only_to(pooler: &Pooler, act: &str, nodes: &[Postgres], at: usize) {
    for _ in 0..20 {
        write(&mut pooler.client("app"), act);
    }
    for (number, node) in nodes.iter().enumerate() {
        let count = format!("SELECT count(*) FROM acts WHERE act = '{act}'");
        let expected = if number == at { "20" } else { "0" };
        assert_eq!(node.sql("postgres", &count)[0][0].as_deref(), Some(expected), "node {number}");
    }
}

#[test]
fn a_second_primary_of_a_new_timeline_is_the_only_one_that_is_written_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let pooler = setup(&[a, b, c], "sample_interval=0.2").workers(2).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    // Nobody has told the old primary. It serves until Weir knows of the new one.
    let told = write_during(&pooler, || {
        b.promote();
        eventually("the new primary is known", PATIENCE, || {
            (pooler.admin("SHOW CLUSTERS").only("primary") == "b").then_some(())
        });
    });
    assert_one_at_a_time(a, b, &told);
    for (row, why) in told.iter().flat_map(|writer| &writer.errors) {
        assert!(["40001", "08007"].iter().any(|code| why.starts_with(code)), "{row}: {why}");
    }

    // A third one, of the same timeline as the second one.
    c.promote();
    let shown = until_nodes_are(&pooler, &["false primary", "writable", "false primary"]);
    assert_eq!(shown.column("reason")[2], "the primary of timeline 2 is node b");
    writes_go_only_to(&pooler, "three", &nodes, 1);
    drop(pooler);

    // Another process cannot know which one of the two is right.
    let pooler = setup(&[a, b, c], "sample_interval=0.2 failover_wait=1").start();
    eventually("there is no primary", PATIENCE, || {
        let clusters = pooler.admin("SHOW CLUSTERS");
        let why = "nodes b and c claim to be primary on timeline 2";
        (clusters.only("reason") == why).then_some(())
    });
    let mut client = testkit::RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", "app"), ("database", "app")]));
    let error = farewell(&mut client);
    assert_eq!(error.code(), "57P03");
    assert!(error.message().ends_with("b and c claim to be primary on timeline 2"), "{error:?}");
    c.stop();
    until_nodes_are(&pooler, &["false primary", "writable", "down"]);
    assert_eq!(node_of(&mut pooler.client("app")), b.port());
}

#[test]
fn a_second_primary_of_the_same_timeline_gets_nothing_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], "sample_interval=0.2 failover_wait=1").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    write(&mut pooler.client("app"), "before");
    until_replayed(&[b], "1");
    // As a node is that was restored from a backup and started without recovery.
    b.stop();
    b.start_alone();
    let shown = until_nodes_are(&pooler, &["writable", "false primary"]);
    assert_eq!(shown.column("reason")[1], "the primary of timeline 1 is node a");
    writes_go_only_to(&pooler, "two", &nodes, 0);
    // It does not replace a lost primary either: it may lack commits.
    a.stop();
    until_nodes_are(&pooler, &["down", "false primary"]);
    let mut client = pooler.client("app");
    client.send(frontend::query("SELECT 1"));
    assert_eq!(farewell(&mut client).code(), "57P03");
    a.launch();
    until_nodes_are(&pooler, &["writable", "false primary"]);
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}
