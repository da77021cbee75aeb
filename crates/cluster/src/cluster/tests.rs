use super::*;
use crate::fact::{Lsn, Obstacle, Receiver};

const SECOND: Micros = 1_000_000;
const SETTINGS: Settings = Settings { sample_interval: SECOND, health_timeout: 2 * SECOND };

fn cluster(nodes: usize) -> Cluster {
    let names = ["a", "b", "c"].into_iter().take(nodes).map(str::to_owned);
    Cluster::new(SETTINGS, names, 0)
}

fn primary(timeline: u32) -> Fact {
    let role = Role::Primary;
    let (wal, received) = (Lsn(100), Lsn(0));
    Fact::Seen(Sample { system: 7, started: 1, timeline, role, wal, received })
}

fn standby(timeline: u32) -> Fact {
    let role = Role::Standby(Some(Receiver { timeline }));
    let (wal, received) = (Lsn(90), Lsn(90));
    Fact::Seen(Sample { system: 7, started: 1, timeline, role, wal, received })
}

fn lonely(timeline: u32) -> Fact {
    Fact::Seen(Sample {
        system: 7,
        started: 1,
        timeline,
        role: Role::Standby(None),
        wal: Lsn(90),
        received: Lsn(90),
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
    let servers = [0, 1, 2];
    tell_of(cluster, servers, facts, now);
}

/// Tells the answers of the nodes in their order, at which these servers are.
fn tell_of<const N: usize>(
    cluster: &mut Cluster,
    servers: [u64; 3],
    facts: [Fact; N],
    now: Micros,
) {
    for (at, (fact, server)) in facts.into_iter().zip(servers).enumerate() {
        cluster.learn(NodeId(at as u16), by(server, fact), now);
    }
    cluster.judge(now);
}

/// The answer of the server with this number. Each has a start of its own.
fn by(server: u64, fact: Fact) -> Fact {
    match fact {
        Fact::Seen(sample) => Fact::Seen(Sample { started: server, ..sample }),
        other => other,
    }
}

/// Changes the end of the WAL in an answer.
fn at(wal: u64, fact: Fact) -> Fact {
    match fact {
        Fact::Seen(sample) => Fact::Seen(Sample { wal: Lsn(wal), ..sample }),
        other => other,
    }
}

fn words(cluster: &Cluster) -> Vec<&'static str> {
    (0..cluster.nodes.len()).map(|at| cluster.verdict(NodeId(at as u16)).word()).collect()
}

fn why(cluster: &Cluster) -> String {
    cluster.primary().unwrap_err().to_string()
}

#[test]
fn a_detached_standby_is_unfit_until_it_is_attached() {
    let mut cluster = running();
    assert_eq!(words(&cluster), ["writable", "readable", "readable"]);
    cluster.set_detached(NodeId(1), true);
    let verdict = Verdict::Unfit(Reason::Detached);
    let change = Change::Verdict { node: NodeId(1), verdict: verdict.clone() };
    assert_eq!(cluster.judge(SECOND), [change]);
    // It stays so while there is no primary, and when other nodes join.
    tell(&mut cluster, [Fact::Refused, lonely(1), lonely(1)], 2 * SECOND);
    tell(&mut cluster, [Fact::Refused, lonely(1), lonely(1)], 3 * SECOND);
    assert_eq!(cluster.verdict(NodeId(1)), &verdict);
    assert_eq!(cluster.verdict(NodeId(2)), &Verdict::Unfit(Reason::NoPrimary));
    let nodes = ["c", "b"].map(str::to_owned).into_iter().zip([Some(NodeId(2)), Some(NodeId(1))]);
    assert!(cluster.with_nodes(nodes, 3 * SECOND).is_detached(NodeId(1)));
    // Another party has promoted it.
    tell(&mut cluster, [Fact::Refused, primary(2), standby(2)], 4 * SECOND);
    assert_eq!(words(&cluster), ["down", "writable", "readable"]);
    tell(&mut cluster, [primary(3), standby(3), standby(3)], 5 * SECOND);
    assert_eq!(words(&cluster), ["writable", "unfit", "readable"]);
    cluster.set_detached(NodeId(1), false);
    cluster.judge(5 * SECOND);
    assert_eq!(words(&cluster), ["writable", "readable", "readable"]);
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
fn another_server_at_the_address_of_a_standby_has_its_own_timeline() {
    let mut cluster = cluster(3);
    tell(&mut cluster, [primary(2), standby(2), standby(2)], SECOND);
    tell_of(&mut cluster, [0, 9, 2], [primary(2), lonely(1)], 2 * SECOND);
    assert_eq!(cluster.own_sample(NodeId(1)).unwrap().timeline, 1);
}

#[test]
fn a_node_of_another_cluster_is_never_used() {
    let stranger = |timeline| {
        Fact::Seen(Sample {
            system: 8,
            started: 1,
            timeline,
            role: Role::Primary,
            wal: Lsn(0),
            received: Lsn(0),
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
    tell_of(&mut cluster, [9, 0, 2], [stranger, primary(1), standby(1)], 3 * SECOND);
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

/// The facts about the old address of a primary that has another one now.
const GONE: [Fact; 2] = [Fact::Refused, Fact::Refused];
/// The primary was restarted as the third node.
const MOVED: [u64; 3] = [0, 1, 8];

#[test]
fn a_primary_that_restarts_at_another_address_is_the_primary() {
    let mut cluster = running();
    cluster.set_named(|node| node != NodeId(0));
    // It starts as the third node, and the second one follows it.
    for (at, fact) in (2..).zip(GONE) {
        tell_of(&mut cluster, MOVED, [fact, standby(1), primary(1)], at * SECOND);
        assert_eq!(cluster.primary() == Ok(NodeId(0)), at == 2, "one refusal is no verdict");
    }
    assert_eq!(cluster.primary(), Ok(NodeId(2)));
    assert_eq!(words(&cluster), ["down", "readable", "writable"]);
    let last = cluster.history().entries().last().unwrap();
    assert_eq!((last.from.as_deref(), last.to.as_deref()), (Some("a"), Some("c")));
    assert_eq!(last.reason, "the same server has the address of node c now");
    // A server at the old address is another one.
    tell_of(&mut cluster, [9, 1, 8], [primary(1), standby(1), primary(1)], 5 * SECOND);
    assert_eq!(words(&cluster), ["false primary", "readable", "writable"]);
}

#[test]
fn nodes_that_swap_their_addresses_keep_their_roles() {
    let mut cluster = running();
    tell_of(&mut cluster, [11, 10, 2], [standby(1), primary(1), standby(1)], 2 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(1)));
    assert_eq!(words(&cluster), ["readable", "writable", "readable"]);
    // Back again, and the servers run on.
    tell_of(&mut cluster, [10, 11, 2], [primary(1), standby(1), standby(1)], 3 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
    assert_eq!(words(&cluster), ["writable", "readable", "readable"]);
}

#[test]
fn a_silent_primary_may_run_as_long_as_it_is_named() {
    let mut cluster = running();
    for at in 2..20 {
        tell_of(&mut cluster, MOVED, [Fact::Silent, standby(1), primary(1)], at * SECOND);
    }
    assert_eq!(words(&cluster), ["down", "unfit", "false primary"]);
    assert_eq!(why(&cluster), "primary a is lost: no answer");
    cluster.set_named(|node| node != NodeId(0));
    cluster.judge(20 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(2)));
    // One that answers stays, whether it is named or not.
    let mut cluster = running();
    cluster.set_named(|node| node != NodeId(0));
    for at in 2..20 {
        tell_of(&mut cluster, MOVED, [primary(1), standby(1), primary(1)], at * SECOND);
    }
    assert_eq!(cluster.primary(), Ok(NodeId(0)));
}

#[test]
fn an_old_address_that_another_server_has_does_not_keep_the_primary() {
    let mut cluster = running();
    let denied = || Fact::Unasked(Obstacle::Denied("no such user".to_owned()));
    for at in 2..10 {
        tell(&mut cluster, [denied(), standby(1), standby(1)], at * SECOND);
        assert_eq!(cluster.primary(), Ok(NodeId(0)), "it may be the primary");
    }
    cluster.set_named(|node| node != NodeId(0));
    tell(&mut cluster, [denied(), standby(1), standby(1)], 11 * SECOND);
    assert_eq!(why(&cluster), "primary a is lost: cannot be asked: no such user");
    tell_of(&mut cluster, [0, 1, 9], [denied(), standby(1), primary(1)], 12 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(2)));
}

#[test]
fn a_copy_of_the_primary_does_not_become_it() {
    for server in [0, 2] {
        let mut cluster = running();
        tell(&mut cluster, [at(500, primary(1)), standby(1), standby(1)], 2 * SECOND);
        // The copy is at the address of the primary, or at another one.
        for (now, wal) in [(3, 499), (4, 499), (5, 900)] {
            let mut facts = [Fact::Refused, standby(1), standby(1)];
            facts[server] = by(7, at(wal, primary(1)));
            for (node, fact) in facts.into_iter().enumerate() {
                cluster.learn(NodeId(node as u16), fact, now * SECOND);
            }
            cluster.judge(now * SECOND);
            assert!(cluster.primary().is_err() || now == 3 && server == 2, "{now}");
            let reason = cluster.verdict(NodeId(server as u16)).reason().unwrap().to_string();
            let expected = "an older copy of the primary: it had WAL up to 0/1F3, and the primary up \
                            to 0/1F4";
            assert!(reason == expected || now == 3 && server == 2, "{reason}");
        }
        tell(&mut cluster, [at(500, primary(1)), standby(1)], 6 * SECOND);
        assert_eq!(cluster.primary(), Ok(NodeId(0)), "the primary itself comes back");
    }
}

#[test]
fn while_the_primary_is_there_a_second_one_is_told_its_name() {
    let mut cluster = running();
    let facts = [at(500, primary(1)), by(7, at(499, primary(1))), standby(1)];
    tell(&mut cluster, facts, 2 * SECOND);
    assert_eq!(words(&cluster), ["writable", "false primary", "readable"]);
    let reason = cluster.verdict(NodeId(1)).reason().unwrap().to_string();
    assert_eq!(reason, "the primary of timeline 1 is node a");
}

#[test]
fn a_copy_remains_a_copy_over_its_restarts() {
    let mut cluster = running();
    cluster.set_named(|node| node != NodeId(0));
    tell(&mut cluster, [at(500, primary(1)), standby(1), standby(1)], 2 * SECOND);
    let mut told = |now, facts: [Fact; 3], server| {
        tell_of(&mut cluster, [0, 1, server], facts, now * SECOND);
        cluster.primary().ok()
    };
    for now in 3..5 {
        told(now, [Fact::Refused, standby(1), standby(1)], 2);
    }
    assert_eq!(told(5, [Fact::Refused, standby(1), at(400, primary(1))], 7), None);
    assert_eq!(told(6, [Fact::Refused, standby(1), at(900, primary(1))], 7), None);
    assert_eq!(told(7, [Fact::Refused, standby(1), at(950, primary(1))], 8), None);
    // The primary itself has less than the copy has written by now.
    assert_eq!(told(8, [Fact::Refused, standby(1), at(600, primary(1))], 9), Some(NodeId(2)));
}

#[test]
fn a_copy_that_was_heard_before_the_primary_was_known_remains_a_copy() {
    let mut cluster = cluster(3);
    let mut told = |now, facts: [Fact; 3], server| {
        tell_of(&mut cluster, [0, 1, server], facts, now * SECOND);
        cluster.primary().ok()
    };
    let full = || Fact::Unasked(Obstacle::Full);
    let copy = |wal| at(wal, primary(1));
    assert_eq!(told(1, [at(500, primary(1)), standby(1), copy(400)], 7), None, "there are two");
    assert_eq!(told(2, [full(), standby(1), copy(600)], 7), None);
    assert_eq!(told(3, [full(), standby(1), Fact::Refused], 7), None);
    assert_eq!(told(4, [full(), standby(1), Fact::Refused], 7), Some(NodeId(0)));
    // The copy is restarted. Then the primary is lost.
    assert_eq!(told(5, [Fact::Refused, standby(1), copy(700)], 8), Some(NodeId(0)));
    assert_eq!(told(6, [Fact::Refused, standby(1), copy(700)], 8), None);
}

#[test]
fn a_copy_that_was_restarted_before_the_primary_was_known_remains_a_copy() {
    let full = || Fact::Unasked(Obstacle::Full);
    let own = |wal| at(wal, primary(1));
    // The primary is not heard again before it is lost, or it is restarted with all that it has.
    for (last, start) in [(full(), 0), (own(800), 9)] {
        let mut cluster = cluster(3);
        let mut told = |now, facts: [Fact; 3], [first, third]: [u64; 2]| {
            tell_of(&mut cluster, [first, 1, third], facts, now * SECOND);
            cluster.primary().ok()
        };
        assert_eq!(told(1, [own(500), standby(1), own(400)], [0, 7]), None, "there are two");
        // The copy writes and is restarted, before Weir has chosen one of the two.
        assert_eq!(told(2, [full(), standby(1), own(600)], [0, 7]), None);
        assert_eq!(told(3, [full(), standby(1), own(700)], [0, 8]), None);
        assert_eq!(told(4, [full(), standby(1), Fact::Refused], [0, 8]), None);
        assert_eq!(told(5, [last, standby(1), Fact::Refused], [start, 8]), Some(NodeId(0)));
        // The primary is lost.
        assert_eq!(told(6, [Fact::Refused, standby(1), own(900)], [start, 8]), Some(NodeId(0)));
        assert_eq!(told(7, [Fact::Refused, standby(1), own(900)], [start, 8]), None);
    }
}

#[test]
fn a_copy_with_two_addresses_is_one_copy() {
    let mut cluster = cluster(3);
    let mut told = |now, facts: [Fact; 3]| {
        tell_of(&mut cluster, [0, 7, 7], facts, now * SECOND);
        cluster.primary().ok()
    };
    let copy = |wal| at(wal, primary(1));
    assert_eq!(told(1, [at(500, primary(1)), Fact::Refused, Fact::Refused]), Some(NodeId(0)));
    assert_eq!(told(2, [Fact::Refused, Fact::Refused, copy(400)]), Some(NodeId(0)));
    assert_eq!(told(3, [Fact::Unasked(Obstacle::Full), copy(600), copy(600)]), Some(NodeId(0)));
    for now in 4..6 {
        told(now, [Fact::Refused, copy(700), copy(700)]);
    }
    assert_eq!(told(6, [Fact::Refused, copy(700), copy(700)]), None);
}

#[test]
fn a_copy_that_had_more_than_the_restarted_primary_has_remains_a_copy() {
    let mut cluster = cluster(3);
    let mut told = |now, facts: [Fact; 3], [first, third]: [u64; 2]| {
        tell_of(&mut cluster, [first, 1, third], facts, now * SECOND);
        cluster.primary().ok()
    };
    let own = |wal| at(wal, primary(1));
    assert_eq!(told(1, [own(100), standby(1), Fact::Refused], [0, 0]), Some(NodeId(0)));
    assert_eq!(told(2, [Fact::Unready, standby(1), own(300)], [0, 7]), None);
    assert_eq!(told(3, [Fact::Unready, standby(1), own(500)], [0, 7]), None);
    assert_eq!(told(4, [own(400), standby(1), Fact::Unready], [9, 7]), Some(NodeId(0)));
    // The copy is restarted. Then the primary is lost.
    assert_eq!(told(5, [Fact::Refused, standby(1), own(600)], [9, 8]), Some(NodeId(0)));
    assert_eq!(told(6, [Fact::Refused, standby(1), own(600)], [9, 8]), None);
}

#[test]
fn a_late_answer_from_before_two_restarts_makes_the_primary_no_copy() {
    let mut cluster = cluster(2);
    let mut told = |node, asked_at, server, fact, now| {
        cluster.learn(NodeId(node), by(server, fact), asked_at * SECOND);
        cluster.judge(now * SECOND);
        cluster.primary().ok()
    };
    assert_eq!(told(1, 1, 0, Fact::Refused, 1), None);
    assert_eq!(told(0, 1, 0, primary(1), 1), Some(NodeId(0)));
    // It is restarted as node b and as node a again, while an answer of node b is on its way.
    assert_eq!(told(0, 3, 9, at(500, primary(1)), 3), Some(NodeId(0)));
    assert_eq!(told(1, 2, 8, at(400, primary(1)), 4), Some(NodeId(0)));
    for now in 5..7 {
        told(0, now, 0, Fact::Refused, now);
    }
    assert_eq!(told(1, 7, 10, at(600, primary(1)), 7), Some(NodeId(1)));
}

#[test]
fn a_primary_that_has_written_is_no_copy_of_itself() {
    let mut cluster = running();
    tell(&mut cluster, [at(500, primary(1)), standby(1), standby(1)], 2 * SECOND);
    tell_of(&mut cluster, [9, 1, 2], [at(600, primary(1))], 3 * SECOND);
    assert_eq!(words(&cluster), ["writable", "readable", "readable"]);
    assert_eq!(cluster.history().entries().last().unwrap().reason, "PostgreSQL was restarted");
}

#[test]
fn a_promotion_to_the_same_timeline_is_another_server() {
    let mut cluster = running();
    for now in 2..4 {
        tell(&mut cluster, [Fact::Refused, standby(1), lonely(0)], now * SECOND);
    }
    // It was a standby on timeline 0 when it was started.
    tell(&mut cluster, [Fact::Refused, standby(1), at(900, primary(1))], 4 * SECOND);
    assert_eq!(words(&cluster), ["down", "unfit", "false primary"]);
}

#[test]
fn a_primary_that_was_removed_is_known_again() {
    let nodes = || [("b".to_owned(), Some(NodeId(1))), ("a2".to_owned(), None)];
    for (wal, server, is_used) in [(500, 0, true), (400, 0, true), (500, 9, true), (499, 9, false)]
    {
        let mut before = running();
        tell(&mut before, [at(500, primary(1)), standby(1), standby(1)], 2 * SECOND);
        let mut cluster = before.with_nodes(nodes(), 2 * SECOND);
        cluster.learn(NodeId(1), by(server, at(wal, primary(1))), 3 * SECOND);
        cluster.judge(3 * SECOND);
        assert_eq!(cluster.primary() == Ok(NodeId(1)), is_used, "{wal} {server}");
    }
}

#[test]
fn two_addresses_of_one_server_are_one_primary() {
    let mut cluster = cluster(3);
    let told = |cluster: &mut Cluster, facts: [Fact; 3], now| {
        for (node, fact) in facts.into_iter().enumerate() {
            cluster.learn(NodeId(node as u16), by(1, fact), now);
        }
        cluster.judge(now);
    };
    told(&mut cluster, [primary(1), primary(1), standby(1)], SECOND);
    assert_eq!(words(&cluster), ["writable", "unfit", "readable"]);
    let reason = cluster.verdict(NodeId(1)).reason().unwrap().to_string();
    assert_eq!(reason, "the same server as node a");
    for now in 2..4 {
        told(&mut cluster, [Fact::Refused, primary(1), standby(1)], now * SECOND);
    }
    assert_eq!(words(&cluster), ["down", "writable", "readable"]);
    told(&mut cluster, [primary(1), primary(1), standby(1)], 4 * SECOND);
    assert_eq!(cluster.primary(), Ok(NodeId(1)), "the present address stays");
}

#[test]
fn a_copy_is_found_although_both_are_always_asked_at_the_same_time() {
    let mut cluster = running();
    for now in 2..4 {
        // The answer of the copy arrives first.
        cluster.learn(NodeId(1), by(9, primary(1)), now * SECOND);
        cluster.judge(now * SECOND + 1);
        cluster.learn(NodeId(0), by(0, primary(1)), now * SECOND);
        cluster.judge(now * SECOND + 2);
    }
    for now in 4..6 {
        tell_of(&mut cluster, [0, 9, 2], [Fact::Refused, primary(1)], now * SECOND);
    }
    assert_eq!(words(&cluster), ["down", "false primary", "unfit"]);
}

#[test]
fn a_standby_that_is_started_without_recovery_does_not_replace_a_lost_primary() {
    let mut cluster = running();
    for now in 2..5 {
        tell_of(&mut cluster, [0, 9, 2], [Fact::Refused, primary(1)], now * SECOND);
    }
    assert_eq!(words(&cluster), ["down", "false primary", "unfit"]);
}

#[test]
fn a_primary_is_found_at_the_node_of_a_standby_after_another_server_was_at_its_own() {
    for has_left in [true, false] {
        let mut cluster = running();
        let at_a = if has_left { standby(1) } else { Fact::Refused };
        tell_of(&mut cluster, [9, 1, 2], [at_a, standby(1), standby(1)], 2 * SECOND);
        for now in 3..5 {
            tell(&mut cluster, [Fact::Refused, standby(1), standby(1)], now * SECOND);
        }
        // Nothing is left at node a.
        tell_of(&mut cluster, [0, 8, 2], [Fact::Refused, primary(1), standby(1)], 5 * SECOND);
        assert_eq!(cluster.primary() == Ok(NodeId(1)), has_left);
    }
}

/// Tells the answers of the nodes in a second, at which these servers are. Returns the primary.
fn told(cluster: &mut Cluster, now: u64, facts: [Fact; 3], servers: [u64; 3]) -> Option<NodeId> {
    tell_of(cluster, servers, facts, now * SECOND);
    cluster.primary().ok()
}

/// An address of the primary that led to a copy once: the primary is not the restarted copy.
#[test]
fn a_primary_with_the_former_address_of_a_copy_is_restarted() {
    let own = |wal| at(wal, primary(1));
    let mut cluster = cluster(3);
    let a = Some(NodeId(0));
    assert_eq!(told(&mut cluster, 1, [own(500), standby(1), own(500)], [5, 1, 5]), a);
    assert_eq!(told(&mut cluster, 2, [own(510), own(400), own(510)], [5, 7, 5]), a);
    assert_eq!(told(&mut cluster, 3, [own(520), own(400), own(400)], [5, 7, 7]), a);
    assert_eq!(told(&mut cluster, 4, [own(530), own(400), own(530)], [5, 7, 5]), a);
    assert_eq!(told(&mut cluster, 5, [own(540), standby(1), own(540)], [5, 8, 5]), a);
    // The primary is restarted, and its second address answers first.
    told(&mut cluster, 8, [Fact::Refused, standby(1), own(550)], [5, 8, 9]);
    assert_eq!(told(&mut cluster, 9, [own(560), standby(1), own(560)], [9, 8, 9]), a);
    assert_eq!(told(&mut cluster, 10, [own(560), standby(1), own(560)], [9, 8, 9]), a);
}

/// An address of the primary that led to the primary of another system, on a timeline of this number.
#[test]
fn a_primary_with_the_former_address_of_another_system_is_restarted() {
    let own = |wal| at(wal, primary(1));
    let alien = |fact| match fact {
        Fact::Seen(sample) => Fact::Seen(Sample { system: 99, ..sample }),
        other => other,
    };
    let mut cluster = cluster(3);
    let a = Some(NodeId(0));
    assert_eq!(told(&mut cluster, 1, [own(500), standby(1), alien(own(300))], [5, 1, 7]), a);
    assert_eq!(told(&mut cluster, 2, [own(520), standby(1), alien(own(300))], [5, 1, 7]), a);
    assert_eq!(told(&mut cluster, 3, [own(540), standby(1), own(540)], [5, 1, 5]), a);
    told(&mut cluster, 8, [Fact::Refused, standby(1), own(550)], [5, 1, 9]);
    assert_eq!(told(&mut cluster, 9, [own(560), standby(1), own(560)], [9, 1, 9]), a);
}

/// The primary is restarted, and answers only at the address that led to a copy once.
#[test]
fn a_primary_that_is_restarted_is_reached_by_its_other_address() {
    let own = |wal| at(wal, primary(1));
    let mut cluster = cluster(3);
    let refused = || Fact::Refused;
    assert_eq!(
        told(&mut cluster, 1, [own(500), standby(1), refused()], [5, 1, 7]),
        Some(NodeId(0))
    );
    told(&mut cluster, 2, [own(500), standby(1), own(400)], [5, 1, 7]);
    told(&mut cluster, 3, [own(500), standby(1), own(410)], [5, 1, 7]);
    assert_eq!(told(&mut cluster, 5, [own(600), standby(1), own(600)], [5, 1, 5]), Some(NodeId(0)));
    for now in 7..10 {
        told(&mut cluster, now, [refused(), standby(1), refused()], [5, 1, 5]);
    }
    told(&mut cluster, 10, [refused(), standby(1), own(700)], [5, 1, 9]);
    assert_eq!(
        told(&mut cluster, 11, [refused(), standby(1), own(700)], [5, 1, 9]),
        Some(NodeId(2))
    );
}
