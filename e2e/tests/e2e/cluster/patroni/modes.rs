//! Patroni's own modes: client certificates, pause, and synchronous replication.

use std::time::Duration;

use testkit::{Member, Patroni, Pooler, eventually, frontend};

use super::{setup, setup_with, until_nodes_are};
use crate::cluster::hooks::{Told, check_rows, write_during};
use crate::cluster::{farewell, node_of};
use crate::support;

const PATIENCE: Duration = Duration::from_secs(40);

fn furnish(members: &[Member]) {
    members[0].postgres.sql("postgres", "CREATE TABLE acts (node int, act text)");
    members[0].postgres.sql("postgres", "GRANT ALL ON acts TO app");
}

#[track_caller]
fn assert_no_errors(told: &[Told], pooler: &Pooler) {
    let errors: Vec<_> = told.iter().flat_map(|writer| &writer.errors).collect();
    assert!(errors.is_empty(), "{errors:?}\n{}", pooler.log());
}

#[test]
fn patroni_may_want_a_certificate() {
    if !support::only_weir() {
        return;
    }
    let (cluster, members) = Patroni::start_cluster_with_certificates("a", &["b"]);
    furnish(&members);
    let mine = cluster.visitor();
    let keys =
        format!("patroni_cert_file='{}' patroni_key_file='{}'", mine.certificate(), mine.key());
    let pooler = setup_with(&cluster, &members, &keys).start();
    until_nodes_are(&pooler, &[("a", "writable"), ("b", "readable")]);
    let told = write_during(&pooler, || {
        pooler.admin("SWITCHOVER app TO b");
        until_nodes_are(&pooler, &[("a", "readable"), ("b", "writable")]);
    });
    assert_no_errors(&told, &pooler);
    check_rows(&members[1].postgres, &told);
    drop(pooler);
    // Patroni gives no answer without one.
    let pooler = setup(&cluster, &members).start();
    eventually("the API refuses", PATIENCE, || {
        let clusters = pooler.admin("SHOW CLUSTERS");
        let why = clusters.only("source_error").to_owned();
        (clusters.only("nodes") == "0" && !why.is_empty()).then(|| println!("{why}"))
    });
}

#[test]
fn a_paused_patroni_changes_the_primary_by_order_alone() {
    if !support::only_weir() {
        return;
    }
    let (cluster, mut members) = Patroni::start_cluster("a", &["b"]);
    furnish(&members);
    let pooler = setup_with(&cluster, &members, "failover_wait=2").start();
    until_nodes_are(&pooler, &[("a", "writable"), ("b", "readable")]);
    support::run(members[0].control().args(["pause", "weir", "--wait"]));
    let told = write_during(&pooler, || {
        pooler.admin("SWITCHOVER app TO b");
        until_nodes_are(&pooler, &[("a", "readable"), ("b", "writable")]);
    });
    assert_no_errors(&told, &pooler);
    check_rows(&members[1].postgres, &told);
    let mut client = pooler.client("app");
    assert_eq!(node_of(&mut client), members[1].postgres.port());

    // The primary is lost, and a paused Patroni promotes nobody.
    members[1].kill9();
    until_nodes_are(&pooler, &[("a", "unfit"), ("b", "down")]);
    let mut late = pooler.client("app");
    late.send(frontend::query("SELECT 1"));
    assert_eq!(farewell(&mut late).code(), "57P03");
    assert!(!members[0].is_primary());
    support::run(members[0].control().args(["resume", "weir"]));
    eventually("Patroni promotes the standby", PATIENCE, || members[0].is_primary().then_some(()));
    assert_eq!(node_of(&mut client), members[0].postgres.port());
}

/// Waits until Patroni has a synchronous standby of the primary, if that is known. Returns the other
/// standby, and this one.
#[track_caller]
fn until_one_is_synchronous(any: &Member, primary: Option<&str>) -> [String; 2] {
    eventually("one standby is synchronous", PATIENCE, || {
        let listed = any.control().args(["list", "weir", "-f", "json"]).output();
        let listed = String::from_utf8(listed.expect("patronictl runs").stdout).expect("JSON");
        let of = |role: &str| {
            let member = listed.split('}').find(|member| member.contains(role))?;
            let name = member.split("\"Member\": \"").nth(1)?.split('"').next()?;
            Some(name.to_owned())
        };
        let leader = of("\"Leader\"")?;
        let is_it = primary.is_none_or(|primary| primary == leader);
        is_it.then_some([of("\"Replica\"")?, of("\"Sync Standby\"")?])
    })
}

#[test]
fn a_synchronous_patroni_loses_no_acknowledged_row_strict() {
    if !support::only_weir() {
        return;
    }
    let (cluster, mut members) = Patroni::start_cluster("a", &["b", "c"]);
    furnish(&members);
    support::run(members[0].control().args([
        "edit-config",
        "weir",
        "--force",
        "--quiet",
        "-s",
        "synchronous_mode=true",
    ]));
    let pooler = setup(&cluster, &members).workers(2).start();
    until_nodes_are(&pooler, &[("a", "writable"), ("b", "readable"), ("c", "readable")]);
    // Another standby is no candidate.
    let [other, synchronous] = until_one_is_synchronous(&members[0], None);
    let told = write_during(&pooler, || {
        let order = format!("SWITCHOVER app TO {other}");
        let error = pooler.try_admin(&order).error.expect("it is refused");
        let why = "candidate name does not match with sync_standby";
        assert!(error.message().ends_with(why), "{error:?}");
        pooler.admin(&format!("SWITCHOVER app TO {synchronous}"));
        eventually("it is the primary", PATIENCE, || {
            (pooler.admin("SHOW CLUSTERS").only("primary") == synchronous).then_some(())
        });
    });
    assert_no_errors(&told, &pooler);
    let at = members.iter().position(|member| member.name == synchronous).expect("a member");
    check_rows(&members[at].postgres, &told);
    members[at].postgres.sql("postgres", "TRUNCATE acts");
    until_one_is_synchronous(&members[0], Some(&synchronous));

    // The primary is killed: Patroni promotes the synchronous standby.
    let mut new = None;
    let told = write_during(&pooler, || {
        members[at].kill9();
        new = Some(eventually("another primary serves", PATIENCE, || {
            let primary = pooler.admin("SHOW CLUSTERS").only("primary").to_owned();
            let found = members.iter().position(|member| member.name == primary);
            found.filter(|new| *new != at)
        }));
    });
    check_rows(&members[new.expect("it was found")].postgres, &told);
    for (row, why) in told.iter().flat_map(|writer| &writer.errors) {
        assert!(["40001", "08007"].iter().any(|code| why.starts_with(code)), "{row}: {why}");
    }
}
