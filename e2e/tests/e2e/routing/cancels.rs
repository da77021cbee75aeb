//! Cancel requests for statements that run on a standby.

use std::time::Instant;

use testkit::{Message, Pooler, Postgres, RawClient, eventually, frontend};

use super::{PATIENCE, cluster, setup, until_routed};
use crate::support;

/// Has a new client sleep on this node, until it is canceled.
fn sleeper(pooler: &Pooler, node: &str) -> RawClient {
    let mut client = pooler.client("app");
    client.send(frontend::query(&format!("/* weir: node={node} */ SELECT pg_sleep(60)")));
    client
}

fn sleepers(node: &Postgres) -> String {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    node.sql("postgres", count)[0][0].clone().expect("a number")
}

#[track_caller]
fn until_sleep(node: &Postgres, expected: &str) {
    eventually(&format!("{expected} sleep"), PATIENCE, || {
        (sleepers(node) == expected).then_some(())
    });
}

#[track_caller]
fn assert_canceled(client: &mut RawClient) {
    let told = client.read_to_ready();
    let error = told.iter().find_map(Message::error).expect("it is canceled");
    assert_eq!(error.code(), "57014", "{error:?}");
}

#[test]
fn a_cancel_request_reaches_its_statement_on_a_standby() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "").workers(2).start();
    for (name, node) in ["b", "c"].into_iter().zip(&nodes[1..]) {
        eventually("the standby is read", PATIENCE, || {
            let read = format!("/* weir: node={name} */ SELECT here()");
            (pooler.client("app").value(&read) == node.port().to_string()).then_some(())
        });
        let mut other = sleeper(&pooler, name);
        let mut victim = sleeper(&pooler, name);
        until_sleep(node, "2");
        victim.cancel(pooler.port());
        assert_canceled(&mut victim);
        assert_eq!(sleepers(node), "1", "the other statement runs on");
        assert_eq!(victim.value("SELECT 'usable'"), "usable");
        other.cancel(pooler.port());
        assert_canceled(&mut other);
    }
}

#[test]
fn a_late_cancel_request_does_not_hit_the_standbys_next_client_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let pooler = setup(&nodes, "", "pool_size=1").workers(2).start();
    let mut next = until_routed(&pooler, &nodes[0]);
    let mut hasty = pooler.client("app");
    let (mut on_standby, began) = (0, Instant::now());
    while on_standby < 50 {
        hasty.send(frontend::query("/* weir: node=b */ SELECT pg_sleep(0.003)"));
        next.send(frontend::query("SELECT here(), count(*) FROM generate_series(1, 20000)"));
        // It arrives before the statement, while it runs, or behind its end.
        hasty.cancel(pooler.port());
        hasty.read_to_ready();
        let told = next.read_to_ready();
        let row = told.iter().find(|message| message.tag == b'D');
        let row = row.unwrap_or_else(|| panic!("the next client is canceled: {told:?}")).row();
        // If it has waited for a while, the primary runs it.
        on_standby += u32::from(row[0] == Some(nodes[1].port().to_string()));
        assert!(began.elapsed() < 3 * PATIENCE, "{on_standby} ran on the standby");
    }
}
