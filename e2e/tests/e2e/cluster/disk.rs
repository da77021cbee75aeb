//! The disk of the primary is full. A limit of the length of files stands for it: PostgreSQL treats
//! both errors alike.

use testkit::{Postgres, eventually};

use super::change::synchronous;
use super::hooks::{check_rows, write_during};
use super::{PATIENCE, cluster, node_of, setup, until_nodes_are, write};
use crate::support;

/// More than a file of the write-ahead log.
const TABLE_MAX: u64 = 20 << 20;

#[test]
fn a_table_that_cannot_grow_is_no_failover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let pooler = setup(&[a, b], "sample_interval=0.2").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    let mut other = pooler.client("app");
    write(&mut client, "before");
    a.limit_files(Some(TABLE_MAX));
    let much = "INSERT INTO acts (act) SELECT md5(n::text) FROM generate_series(1, 1000000) n";
    let error = client.query(much).error.expect("the table cannot grow");
    assert!(error.message().starts_with("could not extend file"), "{error:?}");
    client.rows("BEGIN");
    assert_eq!(client.query(much).error.expect("as before").code(), error.code());
    assert_eq!(client.query("SELECT 1").error.expect("it has failed").code(), "25P02");
    client.rows("ROLLBACK");
    assert_eq!((node_of(&mut client), node_of(&mut other)), (a.port(), a.port()));
    a.limit_files(None);
    write(&mut client, "after");
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(pooler.admin("SHOW FAILOVERS").column("to_node"), ["a"]);
}

/// Returns the standby with more of the log first.
fn by_log<'a>(one: &'a Postgres, other: &'a Postgres) -> [&'a Postgres; 2] {
    let question = "SELECT pg_last_wal_receive_lsn() - '0/0'";
    let received = |node: &Postgres| {
        let text = node.sql("postgres", question)[0][0].clone().expect("a position");
        text.parse::<u64>().expect("a number")
    };
    if received(one) >= received(other) { [one, other] } else { [other, one] }
}

#[test]
fn a_log_that_cannot_grow_loses_no_acknowledged_row_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = synchronous(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let pooler = setup(&[a, b, c], "sample_interval=0.2").workers(2).start();
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    let mut primary = None;
    let told = write_during(&pooler, || {
        // PostgreSQL ends, and cannot recover.
        a.limit_files(Some(8_192));
        eventually("the primary is down", PATIENCE, || {
            let shown = pooler.admin("SHOW NODES");
            (shown.column("state")[0] == "down").then_some(())
        });
        a.wait_until_gone();
        let [first, second] = by_log(b, c);
        first.promote();
        second.follow(first);
        primary = Some(first);
        eventually("another primary serves", PATIENCE, || {
            let name = pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
            (name == "b" || name == "c").then_some(())
        });
    });
    let primary = primary.expect("it was promoted");
    println!("the longest wait was {:?}", check_rows(primary, &told));
    assert_eq!(node_of(&mut pooler.client("app")), primary.port());
    a.stop();
}
