//! A cluster without a primary: its standbys run what they may.

use std::sync::Arc;

use engine::ids::Micros;
use engine::pool::Outage;
use engine::routing::freshness::Limits;
use engine::routing::rules::ReadRules;
use engine::settings::{Primary, Target};
use engine::switches::{Fitness, PrimaryState, Switches};

use crate::balance::Cluster;
use crate::messages::*;
use crate::rig::Client;

const READ: &str = "select 1";
const HINTED: &str = "/* weir: standby */ select 2";
const AGE_MAX: Micros = 5_000_000;

/// A cluster, and a client that has read on a standby. Server 0 is at the primary.
fn begun() -> (Cluster, Client) {
    let limits = Limits { age_max: AGE_MAX, lag_bytes_max: 0 };
    let cluster = Cluster::by(ReadRules { limits, ..ReadRules::default() }, 20, 1);
    let client = cluster.rig.client();
    client.send([query("update t set a = 1")]);
    cluster.rig.server(0).answers("update t set a = 1");
    client.expect([done("OK")]);
    cluster.rig.later(1_000);
    both_have_all_until_now(&cluster);
    assert_ne!(cluster.reads(&client), 0);
    (cluster, client)
}

fn both_have_all_until_now(cluster: &Cluster) {
    [1, 2].into_iter().for_each(|node| cluster.has_all_before(node, cluster.rig.now()));
}

/// Tells the pools that the primary is lost, or is there again.
fn tell(cluster: &Cluster, is_lost: bool) {
    cluster.readers.set_orphaned(is_lost);
    let mut switches = Switches::default();
    switches.set_readers("main", cluster.readers.clone());
    let fitness = vec![Fitness::Unfit, Fitness::Readable, Fitness::Readable];
    switches.set_fitness("main", &cluster.readers, fitness);
    let primary = Primary { target: Target::Tcp("10.0.0.1".to_owned(), 5432), timeline: 1 };
    let lost = || Outage { why: "lost".to_owned(), since: 0, kind: Default::default() };
    let outage = is_lost.then(|| Arc::new(lost()));
    switches.set_primary("main", PrimaryState { primary: Some(primary), outage });
    cluster.rig.order_all(|pool| switches.apply(pool, true));
}

/// Returns the server that has got a request, if one has.
fn asked(cluster: &Cluster) -> Option<usize> {
    let is_asked = |number: &usize| {
        let server = cluster.rig.server(*number);
        server.is_open() && !server.take().is_empty()
    };
    (0..cluster.rig.servers()).find(is_asked)
}

/// The client asks, and gets its answer from a standby.
#[track_caller]
fn asks_a_standby(cluster: &Cluster, client: &Client, text: &str) {
    client.send([query(text)]);
    is_answered_by_a_standby(cluster, client);
}

#[track_caller]
fn is_answered_by_a_standby(cluster: &Cluster, client: &Client) {
    let server = asked(cluster).expect("it runs");
    assert_ne!(server, 0);
    cluster.rig.server(server).send([done("OK")]);
    client.expect([done("OK")]);
}

#[test]
pub(crate) fn a_hint_needs_no_primary() {
    let (cluster, client) = begun();
    cluster.rig.later(2 * AGE_MAX);
    client.send([query(HINTED)]);
    assert_eq!(asked(&cluster), Some(0), "its data would be too old");
    cluster.rig.server(0).send([done("OK")]);
    client.expect([done("OK")]);
    tell(&cluster, true);
    // It has read on the primary, and no standby is known to have that.
    client.send([query(HINTED)]);
    assert_eq!(asked(&cluster), None);
    let other = cluster.rig.client();
    asks_a_standby(&cluster, &other, HINTED);
    asks_a_standby(&cluster, &other, HINTED);
    other.send([query(READ)]);
    assert_eq!(asked(&cluster), None, "it has not asked");
}

#[test]
pub(crate) fn a_set_needs_no_primary() {
    let (cluster, client) = begun();
    cluster.rig.later(2 * AGE_MAX);
    tell(&cluster, true);
    client.send([query("set a.b = 'd'; delete from t")]);
    assert_eq!(asked(&cluster), None);
    asks_a_standby(&cluster, &cluster.rig.client(), "set a.b = 'c'");
}

#[test]
pub(crate) fn a_waiting_read_runs_on_a_standby() {
    let (cluster, client) = begun();
    let writer = cluster.rig.client();
    writer.send([query("update t set a = 2")]);
    assert_eq!(asked(&cluster), Some(0));
    cluster.rig.server(0).send([done("OK")]);
    writer.expect([done("OK")]);
    cluster.rig.later(2 * AGE_MAX);
    tell(&cluster, true);
    writer.send([query(READ)]);
    client.send([query(READ)]);
    assert_eq!(asked(&cluster), None);
    // The standbys are sampled, and have what the first client has read.
    both_have_all_until_now(&cluster);
    cluster.has_all_before(2, 1);
    let fresh = cluster.rig.now() - 2 * AGE_MAX;
    cluster.has_all_before(1, fresh);
    tell(&cluster, true);
    assert_eq!(asked(&cluster), None, "they are too old");
    both_have_all_until_now(&cluster);
    tell(&cluster, true);
    let mut servers: Vec<_> = std::iter::from_fn(|| asked(&cluster)).collect();
    servers.dedup();
    assert!(!servers.contains(&0) && !servers.is_empty(), "{servers:?}");
}
