use super::*;
use crate::fact::{Lsn, Obstacle, Receiver};

const SECOND: Micros = 1_000_000;
const SETTINGS: Settings = Settings { sample_interval: SECOND, health_timeout: 2 * SECOND };

fn cluster(nodes: usize) -> Cluster {
    let names = ["a", "b", "c"].into_iter().take(nodes).map(str::to_owned);
    Cluster::new(SETTINGS, names, 0)
}

fn primary(timeline: u32) -> Fact {
    Fact::Seen(Sample {
        system: 7,
        timeline,
        role: Role::Primary,
        wal: Lsn(100),
        received: Lsn(0),
        quorum: 0,
    })
}

fn standby(timeline: u32) -> Fact {
    let role = Role::Standby(Some(Receiver { timeline }));
    Fact::Seen(Sample { system: 7, timeline, role, wal: Lsn(90), received: Lsn(90), quorum: 0 })
}

fn lonely(timeline: u32) -> Fact {
    Fact::Seen(Sample {
        system: 7,
        timeline,
        role: Role::Standby(None),
        wal: Lsn(90),
        received: Lsn(90),
        quorum: 0,
    })
}

/// A cluster of a primary and two standbys, at one second.
fn running() -> Cluster {
    let mut cluster = cluster(3);
    tell(&mut cluster, [primary(1), standby(1), standby(1)], SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
    cluster
}

fn tell<const N: usize>(cluster: &mut Cluster, facts: [Fact; N], now: Micros) {
    for (at, fact) in facts.into_iter().enumerate() {
        cluster.learn(NodeId(at as u16), fact, now);
    }
    cluster.judge(now);
}

fn words(cluster: &Cluster) -> Vec<&'static str> {
    (0..cluster.nodes.len()).map(|at| cluster.verdict(NodeId(at as u16)).word()).collect()
}

fn why(cluster: &Cluster) -> String {
    cluster.primary().unwrap_err().to_string()
}

#[test]
fn the_primary_is_known_when_all_nodes_were_heard() {
    let mut cluster = cluster(3);
    tell(&mut cluster, [primary(1), standby(1)], SECOND);
    assert_eq!(why(&cluster), "waiting for the first answer of node c");
    cluster.learn(NodeId(2), Fact::Refused, SECOND);
    let changes = cluster.judge(SECOND);
    assert!(changes.contains(&Change::Opened { primary: NodeId(0), timeline: 1 }), "{changes:?}");
    assert_eq!(words(&cluster), ["writable", "readable", "unknown"]);
    assert!(cluster.judge(SECOND).is_empty());
}

#[test]
fn a_promotion_is_a_new_timeline() {
    let mut cluster = running();
    tell(&mut cluster, [Fact::Refused, standby(1), standby(1)], 2 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)), "one refusal is no verdict");
    tell(&mut cluster, [Fact::Refused, lonely(1), lonely(1)], 2 * SECOND + 50_000);
    assert_eq!(why(&cluster), "primary a is lost: connections are refused");
    assert_eq!(words(&cluster), ["down", "unfit", "unfit"]);
    tell(&mut cluster, [Fact::Refused, primary(2), lonely(1)], 3 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(1)));
    assert_eq!(words(&cluster), ["down", "writable", "unfit"]);
    // The old one is back and accepts writes.
    tell(&mut cluster, [primary(1), primary(2), standby(2)], 4 * SECOND);
    assert_eq!(words(&cluster), ["false primary", "writable", "readable"]);
    let reason = cluster.verdict(NodeId(0)).reason().unwrap().to_string();
    assert_eq!(reason, "timeline 1, and timeline 2 exists");
    let failovers: Vec<_> = cluster.history().entries().cloned().collect();
    assert_eq!(failovers.len(), 2, "{failovers:?}");
    let last = &failovers[1];
    assert_eq!((last.began_at, last.ended_at), (2 * SECOND + 50_000, Some(3 * SECOND)));
    assert_eq!((last.from.as_deref(), last.to.as_deref()), (Some("a"), Some("b")));
    assert_eq!((last.old_timeline, last.new_timeline), (Some(1), Some(2)));
}

#[test]
fn a_silent_node_is_down_after_two_timeouts() {
    let mut cluster = running();
    tell(&mut cluster, [Fact::Silent, standby(1), standby(1)], 2 * SECOND);
    cluster.judge(5 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
    cluster.judge(6 * SECOND);
    assert_eq!(why(&cluster), "primary a is lost: no answer");
    tell(&mut cluster, [primary(1)], 7 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)), "it returns by its facts");
}

#[test]
fn ended_sessions_and_full_nodes_are_no_failures() {
    let mut cluster = running();
    for (at, obstacle) in [Obstacle::SessionEnded, Obstacle::Full].into_iter().enumerate() {
        let fact = Fact::Unasked(obstacle);
        tell(&mut cluster, [fact.clone(), fact.clone(), fact], 2 * SECOND + at as u64);
        assert_eq!(words(&cluster), ["writable", "readable", "readable"]);
    }
}

#[test]
fn of_two_primaries_on_one_timeline_the_present_one_stays() {
    let mut cluster = running();
    tell(&mut cluster, [primary(1), primary(1), standby(1)], 2 * SECOND);
    assert_eq!(words(&cluster), ["writable", "false primary", "readable"]);
    // The second one does not become the primary when the first one is lost.
    for at in 3..5 {
        tell(&mut cluster, [Fact::Refused, primary(1), standby(1)], at * SECOND);
    }
    assert_eq!(words(&cluster), ["down", "false primary", "unfit"]);
    let reason = cluster.verdict(NodeId(1)).reason().unwrap().to_string();
    assert_eq!(reason, "the primary of timeline 1 is node a");
}

#[test]
fn without_a_present_one_nobody_writes() {
    let mut cluster = cluster(3);
    tell(&mut cluster, [primary(1), primary(1), standby(1)], SECOND);
    assert_eq!(why(&cluster), "nodes a and b claim to be primary on timeline 1");
    assert_eq!(words(&cluster), ["false primary", "false primary", "unfit"]);
}

#[test]
fn a_standby_may_show_that_a_newer_primary_exists() {
    let mut cluster = running();
    tell(&mut cluster, [primary(1), Fact::Silent, standby(2)], 2 * SECOND);
    assert_eq!(words(&cluster)[0], "false primary");
    assert_eq!(why(&cluster), "no node of timeline 2 accepts writes");
}

#[test]
fn a_standby_whose_receiver_has_ended_keeps_its_timeline() {
    let mut cluster = cluster(3);
    tell(&mut cluster, [primary(2), standby(2), standby(2)], SECOND);
    // The control file still has the timeline before.
    tell(&mut cluster, [Fact::Refused, lonely(1), lonely(1)], 2 * SECOND);
    tell(&mut cluster, [Fact::Refused, lonely(1), lonely(1)], 2 * SECOND + 1);
    assert_eq!(cluster.own_sample(NodeId(1)).unwrap().timeline, 2);
    assert_eq!(cluster.lost_primary(), Some(NodeId(0)));
}

#[test]
fn a_node_of_another_cluster_is_never_used() {
    let stranger = |timeline| {
        Fact::Seen(Sample {
            system: 8,
            timeline,
            role: Role::Primary,
            wal: Lsn(0),
            received: Lsn(0),
            quorum: 0,
        })
    };
    let (mut two, mut cluster) = (cluster(2), cluster(3));
    tell(&mut cluster, [stranger(9), primary(1), standby(1)], SECOND);
    assert_eq!(words(&cluster), ["unfit", "writable", "readable"]);
    for at in 2..4 {
        tell(&mut cluster, [stranger(9), Fact::Refused, standby(1)], at * SECOND);
    }
    assert_eq!(words(&cluster), ["unfit", "down", "unfit"]);
    let reason = cluster.verdict(NodeId(0)).reason().unwrap().to_string();
    assert_eq!(reason, "system identifier 8, the cluster has 7");

    tell(&mut two, [stranger(1), primary(1)], SECOND);
    assert_eq!(two.system(), None);
    assert!(why(&two).starts_with("the nodes have different system identifiers"), "{}", why(&two));
}

#[test]
fn an_answer_that_comes_late_tells_nothing_new() {
    let mut cluster = running();
    cluster.learn(NodeId(1), primary(2), 3 * SECOND);
    cluster.learn(NodeId(1), standby(1), 2 * SECOND);
    cluster.judge(3 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(1)));
}

#[test]
fn a_node_that_starts_has_no_role() {
    let mut cluster = running();
    tell(&mut cluster, [Fact::Unready], 2 * SECOND);
    assert_eq!(why(&cluster), "primary a is lost: PostgreSQL starts or shuts down");
    tell(&mut cluster, [Fact::Unasked(Obstacle::Full)], 3 * SECOND);
    assert!(cluster.primary().is_err(), "it may have been restarted as a standby");
    tell(&mut cluster, [primary(1)], 4 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
}

#[test]
fn nodes_are_asked_more_often_while_a_primary_is_sought() {
    let mut cluster = running();
    assert_eq!(cluster.pause(NodeId(1)), SECOND);
    tell(&mut cluster, [Fact::Refused], 2 * SECOND);
    assert_eq!(cluster.pause(NodeId(0)), DOUBT_PAUSE);
    tell(&mut cluster, [Fact::Refused], 3 * SECOND);
    assert_eq!(cluster.pause(NodeId(1)), SEARCH_PAUSE);
    tell(&mut cluster, [Fact::Refused, primary(2)], 4 * SECOND);
    assert_eq!(cluster.pause(NodeId(0)), DOWN_PAUSE_MAX);
}

#[test]
fn other_nodes_do_not_change_what_is_known() {
    let before = running();
    let nodes = [("d", None), ("a", Some(NodeId(0))), ("c", Some(NodeId(2)))];
    let nodes = nodes.map(|(name, known)| (name.to_owned(), known));
    let mut cluster = before.with_nodes(nodes, 2 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(1)));
    assert_eq!(words(&cluster), ["unknown", "writable", "readable"]);
    assert!(cluster.judge(2 * SECOND).is_empty(), "nothing was learnt");
    // A node of another cluster is still not used.
    let Fact::Seen(stranger) = primary(9) else { unreachable!() };
    let stranger = Fact::Seen(Sample { system: 8, ..stranger });
    tell(&mut cluster, [stranger, primary(1), standby(1)], 3 * SECOND);
    assert_eq!(words(&cluster), ["unfit", "writable", "readable"]);
    assert_eq!(cluster.history().entries().count(), 1);
}

#[test]
fn a_primary_that_is_removed_is_lost() {
    let before = running();
    let nodes = [("b", 1), ("c", 2)].map(|(name, at)| (name.to_owned(), Some(NodeId(at))));
    let mut cluster = before.with_nodes(nodes, 2 * SECOND);
    assert_eq!(why(&cluster), "primary a is lost: it is not a node of the cluster any more");
    tell(&mut cluster, [standby(1), standby(1)], 3 * SECOND);
    assert_eq!(why(&cluster), "no node of timeline 1 accepts writes");
    tell(&mut cluster, [primary(2), standby(2)], 4 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
    let last = cluster.history().entries().last().unwrap();
    assert_eq!((last.from.as_deref(), last.to.as_deref()), (Some("a"), Some("b")));
}

#[test]
fn nodes_may_be_found_later() {
    let none = Cluster::new(SETTINGS, [], 0);
    assert_eq!(why(&none), "its nodes are not known yet");
    let mut cluster = none.with_nodes([("a".to_owned(), None), ("b".to_owned(), None)], SECOND);
    tell(&mut cluster, [primary(1), standby(1)], 2 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
}
