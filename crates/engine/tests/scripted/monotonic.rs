//! The reads of a session do not go back in time, also when the session changes its node.

use config::Balance;
use engine::ids::{Micros, NodeId};

use crate::balance::{Cluster, STALE_WAIT};
use crate::messages::*;
use crate::rig::Client;

/// A cluster whose standbys have everything, and a client. Server 0 is at the primary.
fn begun(balance: Balance) -> (Cluster, Client) {
    let cluster = Cluster::new(balance, 1);
    let client = cluster.rig.client();
    client.send([query("update t set a = 1")]);
    cluster.rig.server(0).answers("update t set a = 1");
    client.expect([done("OK")]);
    both_have_all_before(&cluster, Micros::MAX);
    (cluster, client)
}

fn both_have_all_before(cluster: &Cluster, moment: Micros) {
    [1, 2].into_iter().for_each(|standby| cluster.has_all_before(standby, moment));
}

/// Loses the standbys, and with them their servers.
fn both_are_lost(cluster: &Cluster) {
    for node in [1, 2].map(NodeId) {
        cluster.readers.get(node).expect("a node").lose();
    }
}

#[test]
pub(crate) fn another_standby_must_have_what_was_read() {
    for balance in [Balance::Session, Balance::Statement] {
        let (cluster, client) = begun(balance);
        let before = cluster.rig.now();
        both_have_all_before(&cluster, before + 1);
        let place = cluster.reads(&client);
        assert_ne!(place, 0);
        for _ in 0..20 {
            assert_eq!(cluster.reads(&client), place, "{balance:?}: the other one may lack it");
        }
        // It was lost and may have less now, although it has all that was committed before the read.
        both_are_lost(&cluster);
        both_have_all_before(&cluster, before + 1);
        assert_eq!(cluster.reads(&client), 0, "{balance:?}");
        // The primary may have shown more.
        both_have_all_before(&cluster, cluster.rig.now() - 1_000);
        assert_eq!(cluster.reads(&client), 0, "{balance:?}");
        both_have_all_before(&cluster, cluster.rig.now());
        assert_ne!(cluster.reads(&client), 0, "{balance:?}");
    }
}

#[test]
pub(crate) fn what_a_lost_transaction_has_read_counts() {
    let (cluster, client) = begun(Balance::Session);
    client.send([query("BEGIN READ ONLY")]);
    let place = cluster.rig.servers() - 1;
    let server = cluster.rig.server(place);
    server.expect([query("BEGIN READ ONLY")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    cluster.rig.later(1_000);
    client.send([query("select 1")]);
    server.expect([query("select 1")]);
    server.send([complete("SELECT 1"), ready('T')]);
    client.expect([complete("SELECT 1"), ready('T')]);
    both_have_all_before(&cluster, cluster.rig.now());
    server.die();
    client.send([query("COMMIT")]);
    assert!(!client.take().is_empty() && client.is_open());
    assert_eq!(cluster.reads(&client), 0, "the other one may lack it");
}

#[test]
pub(crate) fn a_busy_session_returns_to_a_standby() {
    let (cluster, client) = begun(Balance::Session);
    both_are_lost(&cluster);
    assert_eq!(cluster.reads(&client), 0);
    let began = cluster.rig.now();
    let late = || both_have_all_before(&cluster, cluster.rig.now() - 2_000);
    let mut reads = 0;
    // Each sample is older than the last read.
    while cluster.rig.now() - began < 1_000_000 {
        late();
        assert_eq!(cluster.reads(&client), 0);
        reads += 1;
    }
    assert!(reads > 100);
    late();
    cluster.rig.later(5_000);
    let read = cluster.rig.now();
    client.send([query("select 1")]);
    let asked = |number: &usize| !cluster.rig.server(*number).take().is_empty();
    assert_eq!((0..cluster.rig.servers()).find(asked), None, "one read waits");
    both_have_all_before(&cluster, read);
    cluster.rig.sample();
    let place = (0..cluster.rig.servers()).find(asked).expect("a server has the read");
    assert_ne!(place, 0);
    cluster.rig.server(place).send([done("OK")]);
    client.expect([done("OK")]);
    assert_eq!(cluster.reads(&client), place);
}

#[test]
pub(crate) fn a_session_does_not_wait_in_vain_again() {
    let (cluster, client) = begun(Balance::Session);
    both_are_lost(&cluster);
    cluster.rig.later(1_000);
    let read = cluster.rig.now();
    assert_eq!(cluster.reads(&client), 0);
    both_have_all_before(&cluster, read);
    let mut waits = 0;
    let began = cluster.rig.now();
    while cluster.rig.now() - began < 5_000_000 {
        client.send([query("select 1")]);
        let server = cluster.rig.server(0);
        if server.take().is_empty() {
            waits += 1;
            cluster.rig.wait_ms(2 * STALE_WAIT / 1_000);
            let asked = |number: &usize| !cluster.rig.server(*number).take().is_empty();
            let place = (0..cluster.rig.servers()).find(asked);
            assert_eq!(place, Some(0));
        }
        server.send([done("OK")]);
        client.expect([done("OK")]);
        cluster.rig.later(10_000);
    }
    assert!((3..=5).contains(&waits), "{waits} waits in 5 s");
}
