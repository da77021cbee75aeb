//! Several Weirs in front of one cluster, which agree by etcd on its primary.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Authority, Etcd, Message, Pooler, Postgres, Table, eventually, frontend};

use super::change::ALL;
use super::hooks::{Hooks, check_no_errors, check_rows, write_during};
use super::{cluster, node_of, setup, until_nodes_are, until_replayed, write};
use crate::support;

/// The lease of a silent member ends within it, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A primary with a standby, etcd with three members, and Weirs that may lose a little.
struct Fleet {
    weirs: Vec<Pooler>,
    nodes: Vec<Postgres>,
    etcd: Etcd,
    hooks: Hooks,
}

impl Fleet {
    fn start(count: usize) -> Self {
        Self::with(count, &["fence"])
    }

    /// `kinds`: the commands of the cluster.
    fn with(count: usize, kinds: &[&str]) -> Self {
        let nodes = cluster(1);
        let (etcd, hooks) = (Etcd::start(3), Hooks::new());
        let mut fleet = Self { weirs: Vec::new(), nodes, etcd, hooks };
        for at in 1..=count {
            let keys = format!("failover=own max_loss=1000000 {}", fleet.hooks.keys(kinds));
            let weir = fleet.weir(&format!("w{at}"), &keys);
            fleet.weirs.push(weir);
        }
        for weir in &fleet.weirs {
            until_nodes_are(weir, &["writable", "readable"]);
        }
        fleet.until("all are members", |weir| {
            let states = members(weir);
            let is_in = |own: &&str| ["leader", "member"].contains(own);
            states.rows.len() == count && states.column("state").iter().all(is_in)
        });
        fleet
    }

    fn weir(&self, member: &str, keys: &str) -> Pooler {
        let [a, b] = &self.nodes[..] else { unreachable!("two nodes") };
        let etcd = self.etcd.addresses();
        let keys = format!("{keys} failover_wait=60 etcd='{etcd}' member={member}");
        setup(&[a, b], &keys).start()
    }

    /// Waits until this is true of all Weirs that run.
    #[track_caller]
    fn until(&self, what: &str, is_it: impl Fn(&Pooler) -> bool) {
        for (at, weir) in self.weirs.iter().enumerate() {
            eventually(&format!("{what}, at w{}", at + 1), PATIENCE, || is_it(weir).then_some(()));
        }
    }

    /// Returns the place of the Weir that leads.
    fn leader(&self) -> usize {
        let leads = || self.weirs.iter().position(|weir| own_state(weir) == "leader");
        eventually("there is a leader", PATIENCE, leads)
    }
}

fn members(weir: &Pooler) -> Table {
    weir.admin("SHOW MEMBERS")
}

/// Returns the state of a Weir among the members, as it sees it.
fn own_state(weir: &Pooler) -> String {
    members(weir).with("self", "yes").only("state").to_owned()
}

fn term(weir: &Pooler) -> String {
    weir.admin("SHOW CLUSTERS").only("term").to_owned()
}

/// All members see that the primary is lost, and one of them replaces it. Clients of each Weir go on.
#[test]
fn one_of_three_weirs_replaces_a_lost_primary() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::start(3);
    let [a, b] = &fleet.nodes[..] else { unreachable!("two nodes") };
    fleet.until("term 1", |weir| term(weir) == "term 1: node a is the primary, timeline 1");
    let mut clients: Vec<_> = fleet.weirs.iter().map(|weir| weir.client("app")).collect();
    clients.iter_mut().for_each(|client| write(client, "before"));
    until_replayed(&[b], "3");
    a.kill9();
    fleet.hooks.serve("fence", "a", 0, || {});
    fleet.until("b serves", |weir| weir.admin("SHOW CLUSTERS").only("primary") == "b");
    for client in &mut clients {
        write(client, "after");
        assert_eq!(node_of(client), b.port());
    }
    assert_eq!(fleet.hooks.next(), None, "nobody else fences or promotes");
    fleet.until("they agree", |weir| term(weir).ends_with("node b is the primary, timeline 2"));
}

/// A Weir that was stopped sends not one byte to the old primary, although that still accepts writes.
#[test]
fn a_weir_that_was_asleep_forwards_nothing() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::start(3);
    let [a, _] = &fleet.nodes[..] else { unreachable!("two nodes") };
    let sleeper = &fleet.weirs[fleet.leader()];
    let mut client = sleeper.client("app");
    client.rows("BEGIN");
    write(&mut client, "asleep");
    sleeper.signal("STOP");
    // Its request is in the socket when it wakes.
    client.send(frontend::query("COMMIT"));
    let awake: Vec<_> = fleet.weirs.iter().filter(|weir| weir.pid() != sleeper.pid()).collect();
    let is_silent = || {
        let silent =
            members(awake[0]).column("state").iter().filter(|own| **own == "silent").count();
        (silent == 1).then_some(())
    };
    eventually("it is silent", PATIENCE, is_silent);
    sleeper.signal("CONT");
    let told = client.read_to_ready();
    let error = told.iter().find_map(Message::error).expect("it is not committed");
    assert!(["40001", "08007"].contains(&error.code()), "{told:?}");
    let asleep = "SELECT count(*) FROM acts WHERE act = 'asleep'";
    assert_eq!(a.sql("postgres", asleep)[0][0].as_deref(), Some("0"));
    // It serves again by itself.
    write(&mut sleeper.client("app"), "awake");
}

/// The loss of etcd stops the writers with `failover = own` before the lease ends, and they go on when
/// etcd is back. With `failover = follow` nobody notices.
#[test]
fn without_etcd_an_own_failover_stops_writers_and_follow_does_not() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::start(1);
    let follower = fleet.weir("follower", "failover=follow");
    until_nodes_are(&follower, &["writable", "readable"]);
    let weir = &fleet.weirs[0];
    let mut client = weir.client("app");
    write(&mut client, "before");
    let mut held = weir.client("app");
    fleet.etcd.signal_all("STOP");
    let lost = Instant::now();
    eventually("the writer is shut", PATIENCE, || {
        let pools = weir.admin("SHOW MEMBERS").with("self", "yes");
        (pools.only("lease_seconds").parse::<f64>().expect("a number") < 1.0).then_some(())
    });
    assert!(lost.elapsed() < Duration::from_secs(12), "{:?}", lost.elapsed());
    held.send(frontend::query("INSERT INTO acts VALUES (0, 'held')"));
    for _ in 0..5 {
        write(&mut follower.client("app"), "follow");
    }
    let written = "SELECT count(*) FROM acts WHERE act = 'held'";
    assert_eq!(fleet.nodes[0].sql("postgres", written)[0][0].as_deref(), Some("0"));
    fleet.etcd.signal_all("CONT");
    let told = held.read_to_ready();
    assert!(told.iter().all(|message| message.tag != b'E'), "{told:?}");
    write(&mut client, "after");
    // A failover waits for no confirmation of the other one, which follows by itself.
    let [a, b] = &fleet.nodes[..] else { unreachable!("two nodes") };
    let error = follower.try_admin("SWITCHOVER app TO b").error.expect("another one leads");
    assert_eq!(error.message(), "member w1 leads: order it there");
    eventually("both are members", PATIENCE, || (members(weir).rows.len() == 2).then_some(()));
    until_replayed(&[b], "8");
    a.kill9();
    fleet.until("two have told it", |weir| {
        members(weir).column("sees").iter().all(|sees| sees.contains("a=down"))
    });
    fleet.hooks.serve("fence", "a", 0, || {});
    for one in [weir, &follower] {
        assert_eq!(node_of(&mut one.client("app")), b.port());
    }
}

/// Two members: when one is dead, the other one is no majority. An operator may remove the dead one.
#[test]
fn a_dead_member_counts_until_an_operator_removes_it() {
    if !support::only_weir() {
        return;
    }
    let mut fleet = Fleet::start(2);
    fleet.weirs[1].kill9();
    let dead = fleet.weirs.remove(1);
    let weir = &fleet.weirs[0];
    fleet
        .until("w2 is silent", |weir| members(weir).with("member", "w2").only("state") == "silent");
    fleet.leader();
    let [a, b] = &fleet.nodes[..] else { unreachable!("two nodes") };
    a.kill9();
    until_nodes_are(weir, &["down", "unfit"]);
    weir.log_contains(
        "nobody is promoted: 1 of 2 members see that node a is lost, and 2 are needed",
    );
    assert_eq!(fleet.hooks.next(), None);
    let error = weir.try_admin("FAILOVER FORGET w1").error.expect("it takes part");
    let why = "cluster main: member w1 takes part: only a silent one can be removed";
    assert_eq!(error.message(), why);
    weir.admin("FAILOVER FORGET w2");
    fleet.hooks.serve("fence", "a", 0, || {});
    until_nodes_are(weir, &["down", "writable"]);
    assert_eq!(node_of(&mut weir.client("app")), b.port());
    drop(dead);
}

/// FAILOVER PAUSE on one member holds for all of them.
#[test]
fn a_paused_fleet_replaces_no_primary() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::start(2);
    let [a, b] = &fleet.nodes[..] else { unreachable!("two nodes") };
    fleet.weirs[1].admin("FAILOVER PAUSE");
    fleet.until("all are paused", |weir| {
        weir.admin("SHOW CLUSTERS").only("failover_paused") == "FAILOVER PAUSE by member w2"
    });
    a.kill9();
    fleet.until("a is lost", |weir| weir.admin("SHOW NODES").column("state")[0] == "down");
    fleet.weirs[fleet.leader()]
        .log_contains("nobody is promoted: FAILOVER PAUSE was said to member w2");
    assert_eq!(fleet.hooks.next(), None);
    fleet.weirs[0].admin("FAILOVER RESUME main");
    fleet.hooks.serve("fence", "a", 0, || {});
    fleet.until("b serves", |weir| weir.admin("SHOW CLUSTERS").only("primary") == "b");
    assert_eq!(node_of(&mut fleet.weirs[0].client("app")), b.port());
}

/// SWITCHOVER on the leader has the clients of all members wait, and no client gets an error.
#[test]
fn a_switchover_has_the_clients_of_all_members_wait() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::with(2, &[&ALL[..], &["fence"]].concat());
    let [a, b] = &fleet.nodes[..] else { unreachable!("two nodes") };
    let leader = fleet.leader();
    let (first, other) = (&fleet.weirs[leader], &fleet.weirs[1 - leader]);
    let error = other.try_admin("SWITCHOVER app TO b").error.expect("it does not lead");
    assert_eq!(error.message(), format!("member w{} leads", leader + 1));
    // Its listener must not keep the others waiting.
    let mut listening = other.client("app");
    listening.rows("LISTEN news");
    let told = write_during(other, || {
        thread::scope(|scope| {
            let order = scope.spawn(|| first.try_admin("SWITCHOVER app TO b").error);
            fleet.hooks.serve("stop", "a", 0, || a.shut_down());
            fleet.hooks.serve("rejoin", "a", 0, || a.rejoin(b));
            assert_eq!(order.join().expect("the console answers"), None);
        });
        fleet.until("b serves", |weir| weir.admin("SHOW CLUSTERS").only("primary") == "b");
    });
    check_no_errors(&told);
    check_rows(b, &told);
    b.sql("postgres", "NOTIFY news, 'after'");
    let note = listening.read_until(|message| message.tag == b'A');
    assert!(note.iter().any(|message| message.tag == b'A'), "{note:?}");
}

/// After an online restart the new process is the same member, and its clients go on.
#[test]
fn an_online_restart_keeps_the_membership() {
    if !support::only_weir() {
        return;
    }
    let mut fleet = Fleet::start(2);
    let mut client = fleet.weirs[0].client("app");
    write(&mut client, "before");
    assert!(fleet.weirs[0].take_over().success());
    let asked = Instant::now();
    write(&mut client, "after");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    fleet.until("both are members", |weir| {
        let members = members(weir);
        let own = members.with("member", "w1").only("state").to_owned();
        members.rows.len() == 2 && ["leader", "member"].contains(&&*own)
    });
}

/// A second process of one name is refused, by the name of the key.
#[test]
fn two_members_cannot_have_one_name() {
    if !support::only_weir() {
        return;
    }
    let fleet = Fleet::start(1);
    let keys = format!("failover=own {}", fleet.hooks.keys(&["fence"]));
    let twin = fleet.weir("w1", &keys);
    eventually("it says so", PATIENCE, || {
        let error = members(&twin).with("self", "yes").only("error").to_owned();
        error.contains("another process is member w1 of this cluster").then_some(())
    });
    assert_eq!(own_state(&fleet.weirs[0]), "leader");
    write(&mut fleet.weirs[0].client("app"), "served");
}

/// Without etcd, the second Weir with `failover = own` promotes nobody, and says why.
#[test]
fn a_second_weir_without_etcd_promotes_nobody() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let keys = format!("failover=own max_loss=1000000 {}", hooks.keys(&["fence"]));
    let first = setup(&[a, b], &keys).start();
    until_nodes_are(&first, &["writable", "readable"]);
    let second = setup(&[a, b], &keys).start();
    eventually("the second one notices", PATIENCE, || {
        let why = second.admin("SHOW CLUSTERS").only("failover_paused").to_owned();
        why.starts_with("another Weir has failover = own for this cluster").then_some(())
    });
    assert_eq!(first.admin("SHOW CLUSTERS").only("failover_paused"), "");
    a.kill9();
    hooks.serve("fence", "a", 0, || {});
    until_nodes_are(&second, &["down", "writable"]);
    second.log_contains("this one promotes nobody");
    assert_eq!(hooks.next(), None);
}

/// The login to etcd, and TLS with certificates of both sides. A wrong one is named in SHOW MEMBERS.
#[test]
fn etcd_may_want_a_password_and_certificates() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let (hooks, authority) = (Hooks::new(), Authority::new("etcd"));
    let (visitor, file) = (authority.user("weir"), authority.file());
    let secured = Etcd::start_with_tls(&authority);
    let guarded = Etcd::start_with_login("weir", "etcd-secret");
    let (certificate, key) = (visitor.certificate(), visitor.key());
    let tls = format!(
        "etcd='https://{}' etcd_ca_file={file} etcd_cert_file={certificate} etcd_key_file={key}",
        secured.addresses()
    );
    let login = format!(
        "etcd='{}' etcd_user=weir etcd_password=etcd-secret etcd_prefix=/weir/other",
        guarded.addresses()
    );
    for keys in [tls, login] {
        let fence = hooks.keys(&["fence"]);
        let weir = setup(&[&nodes[0]], &format!("failover=own {fence} {keys}")).start();
        write(&mut weir.client("app"), "served");
        assert_eq!(own_state(&weir), "leader");
    }
    for (keys, words) in [
        (format!("etcd='https://{}' etcd_ca_file={file}", secured.addresses()), "BadCertificate"),
        (
            format!("etcd='{}' etcd_user=weir etcd_password=wrong", guarded.addresses()),
            "invalid user ID or password",
        ),
        (format!("etcd='https://127.0.0.1:1' etcd_ca_file={file}"), "refused"),
        ("etcd='https://127.0.0.1:1' etcd_ca_file=/nowhere".to_owned(), "etcd_ca_file"),
    ] {
        let weir = setup(&[&nodes[0]], &format!("failover=follow {keys}")).start();
        // Without `failover = own`, nobody needs etcd.
        write(&mut weir.client("app"), "served");
        eventually(&format!("SHOW MEMBERS says {words}"), PATIENCE, || {
            members(&weir).with("self", "yes").only("error").contains(words).then_some(())
        });
        assert_eq!(own_state(&weir), "unreached");
    }
}
