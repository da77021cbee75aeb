//! Pools of a cluster: clients wait while there is no primary, and servers follow the next one.

use std::sync::Arc;

use config::{Cluster, Config, Database, Host, Node, PoolMode};
use engine::pool::{Outage, OutageKind};
use engine::settings::{Primary, Target};
use engine::switches::{PrimaryState, Switches};

use crate::messages::*;
use crate::rig::{Client, Rig};

/// Why there is no primary, if the last one does not answer.
pub(crate) const SILENT: &str = "primary a is lost: no answer";

fn at(ip: &str) -> Target {
    Target::Tcp(ip.to_owned(), 5432)
}

/// Puts the database `app` into a cluster.
pub(crate) fn clustered(config: &mut Config) {
    let host = Host::Tcp("10.0.0.1".to_owned());
    let nodes = vec![Node { name: "a".to_owned(), host, port: 5432, weight: 1 }];
    config.clusters.insert("main".to_owned(), Cluster { nodes, ..Cluster::default() });
    let app = config.databases.get_mut("app").expect("the base has it");
    let app: &mut Database = Arc::make_mut(app);
    app.cluster = Some("main".to_owned());
}

pub(crate) fn rig() -> Rig {
    let rig = Rig::new(clustered);
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    rig
}

/// Tells the pool of its cluster's primary, or why there is none.
pub(crate) fn tell(rig: &Rig, primary: Option<&str>, outage: Option<&str>) {
    tell_as(rig, primary, 1, outage, false);
}

/// `reloads`: as the shell does once the configuration was read again.
fn tell_as(rig: &Rig, primary: Option<&str>, timeline: u32, outage: Option<&str>, reloads: bool) {
    let mut switches = Switches::default();
    let outage = outage.map(|why| {
        Arc::new(Outage {
            why: why.to_owned(),
            since: 0,
            kind: match why {
                SILENT => OutageKind::Silent,
                why if why.starts_with("switchover") => OutageKind::Planned,
                "resuming" => OutageKind::Resuming,
                _ => OutageKind::Other,
            },
        })
    });
    let primary = primary.map(|ip| Primary { target: at(ip), timeline });
    switches.set_primary("main", PrimaryState { primary, outage });
    rig.order(|pool| {
        if reloads {
            pool.set_settings(switches.aimed(pool.settings.clone(), pool.key.place));
        }
        switches.apply(pool, true);
    });
}

#[test]
fn clients_wait_for_the_next_primary() {
    let rig = rig();
    let client = rig.client();
    client.send([query("one")]);
    let old = rig.servers() - 1;
    rig.server(old).answers("one");
    client.expect([done("OK")]);
    tell(&rig, Some("10.0.0.1"), Some("it is gone"));
    assert!(!rig.server(old).is_open(), "it was idle");
    client.send([query("two")]);
    assert_eq!(rig.servers(), old + 1, "nothing is opened");
    rig.wait(5);
    tell(&rig, Some("10.0.0.2"), None);
    rig.server(old + 1).answers("two");
    client.expect([done("OK")]);
    assert_eq!(rig.pool(|pool| pool.settings.targets.clone()), [at("10.0.0.2")]);
}

#[test]
fn a_client_that_waits_too_long_is_told_the_cluster_and_the_reason() {
    let rig = rig();
    let client = rig.client();
    tell(&rig, Some("10.0.0.1"), Some(SILENT));
    client.send([query("one")]);
    rig.wait(29);
    assert!(client.is_open());
    rig.wait(2);
    let queued = "No server connection available in postgres backend, client being queued";
    let text = format!("cluster main has no primary: {SILENT}");
    client.expect([notice(queued), fatal("57P03", &text)]);
    assert!(!client.is_open());
}

/// Returns a rig, a client within a transaction, and the number of its server.
fn in_transaction() -> (Rig, Client, usize) {
    let rig = rig();
    let client = rig.client();
    client.send([query("begin")]);
    let old = rig.servers() - 1;
    rig.server(old).expect([query("begin")]);
    rig.server(old).send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    (rig, client, old)
}

/// The client is told so with its next request.
#[track_caller]
fn is_rolled_back(client: &Client) {
    client.expect([]);
    client.send([query("insert")]);
    let told = show(&client.take()).concat();
    assert!(told.contains("40001"), "{told}");
    assert!(told.contains("Reason: the cluster has another primary."), "{told}");
    assert!(client.is_open());
}

#[test]
fn a_busy_server_of_the_old_primary_is_closed_when_there_is_another_one() {
    for reloads in [false, true] {
        let (rig, client, old) = in_transaction();
        tell_as(&rig, Some("10.0.0.1"), 1, Some("it does not answer"), reloads);
        assert!(rig.server(old).is_open(), "it may be the primary again");
        tell_as(&rig, Some("10.0.0.2"), 2, None, reloads);
        assert!(!rig.server(old).is_open());
        is_rolled_back(&client);
    }
}

#[test]
fn another_node_behind_the_same_address_is_another_primary() {
    for reloads in [false, true] {
        let (rig, client, old) = in_transaction();
        tell_as(&rig, Some("10.0.0.1"), 2, None, reloads);
        assert!(!rig.server(old).is_open());
        is_rolled_back(&client);
    }
}

#[test]
fn the_same_primary_keeps_its_servers() {
    let (rig, client, old) = in_transaction();
    tell(&rig, Some("10.0.0.1"), Some("a moment"));
    tell(&rig, Some("10.0.0.1"), None);
    assert!(rig.server(old).is_open());
    client.send([query("commit")]);
    rig.server(old).expect([query("commit")]);
    rig.server(old).send([done("COMMIT")]);
    client.expect([done("COMMIT")]);
}

#[test]
fn a_planned_change_is_not_limited_by_failover_wait() {
    let rig = rig();
    let client = rig.client();
    tell(&rig, Some("10.0.0.1"), Some("switchover to node b"));
    client.send([query("one")]);
    rig.wait(60);
    assert!(client.is_open());
    tell(&rig, Some("10.0.0.2"), None);
    rig.server(rig.servers() - 1).answers("one");
}

/// The server is released by a client of one worker, for a client of another one. The primary
/// changes before the other worker gets it.
#[test]
fn a_server_on_its_way_to_another_worker_is_closed_with_the_others() {
    let rig = Rig::with_workers(2, |config| {
        clustered(config);
        config.global.default_pool_size = 1;
    });
    rig.client_at(0).leave();
    tell(&rig, Some("10.0.0.1"), None);
    let [here, there] = [0, 1].map(|worker| rig.client_at(worker));
    let server = rig.server(rig.servers() - 1);
    here.send([query("here")]);
    server.expect([query("here")]);
    there.send([query("there")]);
    rig.hold_mail(true);
    server.send([done("OK")]);
    here.expect([done("OK")]);
    tell(&rig, Some("10.0.0.2"), None);
    assert!(server.is_open(), "nobody has it");
    rig.hold_mail(false);
    assert!(!server.is_open());
    server.expect([terminate()]);
    let next = rig.server(rig.servers() - 1);
    assert_eq!(next.target(), format!("{:?}", at("10.0.0.2")));
    next.answers("there");
    there.expect([done("OK")]);
}

/// Its server is lost before Weir knows that it listens. It may send nothing more, so no reply could
/// tell it.
#[test]
pub(crate) fn a_client_that_may_listen_is_disconnected() {
    let rig = Rig::new(|config| {
        clustered(config);
        config.global.pool_mode = PoolMode::Auto;
    });
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("LISTEN news")]);
    server.expect([query("LISTEN news")]);
    server.send([complete("LISTEN"), ready('I')]);
    client.expect([complete("LISTEN"), ready('I')]);
    assert!(!server.take().is_empty(), "Weir asks what the session is");
    server.die();
    client.expect_lost();
}
