//! Reads on standbys, by the product's own rules: freshness, own writes, and the age of the catalogs.

use std::sync::Arc;
use std::time::Duration;

use config::{PoolMode, ReadAfterWrite, WhenStale};
use engine::ids::{Micros, NodeId};
use engine::routing::freshness::{Limits, Position};
use engine::routing::readers::Readers;
use engine::routing::rules::{Catalog, ReadRules, Routing};

use crate::carried::{sets, tells};
use crate::messages::*;
use crate::principals::tells as told;
use crate::rig::{Client, Rig, Server};

/// An application's write. An INSERT could draw a number, for which Weir would keep the server.
const WRITE: &str = "update t set a = 1";
const READ: &str = "select 1";
/// A read older than this is not allowed, in tests with such a limit.
const AGE_MAX: Micros = 5_000_000;

/// A rig with a primary and one standby, which has everything up to a moment.
struct Cluster {
    rig: Rig,
    readers: Arc<Readers>,
    catalog: Arc<Catalog>,
}

impl Cluster {
    fn new() -> Self {
        Self::with(ReadRules::default())
    }

    fn with(rules: ReadRules) -> Self {
        Self::of_size(20, rules)
    }

    /// Each node has at most so many servers.
    fn of_size(size: u32, rules: ReadRules) -> Self {
        Self::configured(rules, |config| config.global.default_pool_size = size)
    }

    fn configured(rules: ReadRules, change: impl FnOnce(&mut config::Config)) -> Self {
        let readers = Arc::new(Readers::new(["a", "b"].map(|name| (name.to_owned(), 1))));
        let lists = sql::Lists { primary_names: vec!["build".to_owned()], ..Default::default() };
        let view = sql::Catalog::new(&lists).view();
        let catalog = Arc::new(Catalog::new(view, 1, false, 0));
        let routing = Routing::new(rules, readers.clone(), catalog.clone(), None);
        let auto = |config: &mut config::Config| {
            config.global.pool_mode = PoolMode::Auto;
            change(config);
        };
        let rig = Rig::new(auto).routed_by(routing);
        Self { rig, readers, catalog }
    }

    fn standby_has_all_before(&self, moment: Micros) {
        self.standby_has(moment, 0);
    }

    fn standby_has(&self, moment: Micros, position: Position) {
        self.readers.get(NodeId(1)).expect("the standby").set(Some(moment), 0, position);
    }

    /// Returns a client that has read on the standby, and the servers of both nodes.
    fn opened(&self) -> (Client, Server, Server) {
        self.rig.later(1_000);
        let client = self.rig.client();
        let primary = self.rig.server(0);
        asks(&client, &primary, WRITE);
        self.standby_has_all_before(Micros::MAX);
        client.send([query(READ)]);
        let standby = self.rig.server(1);
        standby.answers(READ);
        client.expect([done("OK")]);
        (client, primary, standby)
    }
}

fn asks(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.answers(sql);
    client.expect([done("OK")]);
}

#[test]
pub(crate) fn a_session_sees_its_own_writes() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    asks(&client, &primary, WRITE);
    cluster.standby_has_all_before(1);
    asks(&client, &primary, READ);
    // Another session has not written.
    let other = cluster.rig.client();
    asks(&other, &standby, READ);
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, READ);
}

#[test]
pub(crate) fn a_write_behind_a_read_counts() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    let fresh = cluster.readers.get(NodeId(1)).expect("the standby");
    // The primary runs the read, and gets the write at once.
    fresh.set(None, 0, 0);
    client.send([[query(READ), query(WRITE)].concat()]);
    primary.expect([query(READ), query(WRITE)]);
    primary.send([[done("OK"), done("OK")].concat()]);
    client.expect([done("OK"), done("OK")]);
    cluster.standby_has_all_before(1);
    asks(&client, &primary, READ);
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, READ);
}

/// The client keeps its server behind the INSERT, for `lastval`.
#[test]
pub(crate) fn a_read_behind_an_insert_does_not_doubt_the_catalogs() {
    let cluster = Cluster::new();
    let (client, primary, _) = cluster.opened();
    asks(&client, &primary, "insert into t values (1)");
    assert!(!primary.is_parked(), "the client keeps it");
    let calls = "select plain()";
    asks(&client, &primary, calls);
    assert!(!cluster.catalog.is_doubted(), "it is a read");
    tells(&primary, &[]);
    does(&client, &primary, "select build()", "SELECT 1");
    assert!(cluster.catalog.is_doubted(), "it is none");
}

/// Runs a text that may do anything, and answers the question what it has left.
fn does(client: &Client, server: &Server, sql: &str, tag: &str) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([complete(tag), ready('I')]);
    client.expect([complete(tag), ready('I')]);
    if !server.is_parked() {
        tells(server, &[]);
    }
}

#[test]
pub(crate) fn a_session_waits_for_the_catalogs_after_unseen_changes() {
    for (sql, tag) in [
        ("do 'begin end'", "DO"),
        ("call build()", "CALL"),
        ("execute one", "SELECT 1"),
        ("select build()", "SELECT 1"),
        ("commit prepared 'one'", "COMMIT PREPARED"),
    ] {
        let cluster = Cluster::new();
        let (client, primary, standby) = cluster.opened();
        let other = cluster.rig.client();
        cluster.rig.later(1_000);
        // The standby has the change, but its names are not read yet.
        does(&client, &primary, &format!("/*weir:primary*/ {sql}"), tag);
        asks(&client, &primary, READ);
        asks(&other, &standby, READ);
        assert!(cluster.catalog.is_doubted(), "{sql}");
        cluster.catalog.check(Micros::MAX);
        asks(&client, &standby, READ);
    }
}

#[test]
fn a_function_that_only_reads_raises_no_doubt() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    cluster.rig.later(1_000);
    does(&client, &primary, "/*weir:primary*/ select harmless()", "SELECT 1");
    asks(&client, &standby, READ);
    // Plain writes raise none either.
    asks(&client, &primary, WRITE);
    asks(&client, &standby, READ);
    assert!(!cluster.catalog.is_doubted());
}

#[test]
pub(crate) fn reads_during_a_doubt_raise_no_other() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    cluster.rig.later(1_000);
    does(&client, &primary, "do 'begin end'", "DO");
    let checked_as_of = cluster.rig.now();
    for _ in 0..3 {
        cluster.rig.later(1_000);
        does(&client, &primary, "select harmless()", "SELECT 1");
    }
    cluster.catalog.check(checked_as_of);
    assert!(!cluster.catalog.is_doubted());
    does(&client, &standby, "select harmless()", "SELECT 1");
}

#[test]
pub(crate) fn a_function_behind_another_request_counts() {
    let cluster = Cluster::new();
    let (client, primary, _) = cluster.opened();
    cluster.rig.later(1_000);
    let build = "/*weir:primary*/ select build() into x";
    client.send([[query(WRITE), query(build)].concat()]);
    primary.expect([query(WRITE), query(build)]);
    primary.send([done("UPDATE 1")]);
    cluster.catalog.check(cluster.rig.now());
    cluster.rig.later(1_000);
    primary.send([done("SELECT 1")]);
    client.expect([done("UPDATE 1"), done("SELECT 1")]);
    tells(&primary, &[]);
    asks(&client, &primary, READ);
    assert!(cluster.catalog.is_doubted());
}

#[test]
pub(crate) fn old_catalogs_keep_reads_on_the_primary() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    asks(&client, &standby, READ);
    cluster.rig.change_schema();
    asks(&client, &primary, READ);
}

#[test]
pub(crate) fn a_standby_that_may_not_be_read_gets_nothing() {
    let cluster = Cluster::new();
    let (_client, primary, _) = cluster.opened();
    cluster.readers.get(NodeId(1)).expect("the standby").set(None, 0, 0);
    // It has not written, so any standby would do.
    asks(&cluster.rig.client(), &primary, READ);
}

/// A write that a hint sends to a standby.
const HINTED: &str = "/* weir: standby */ update t set a = 2";

#[test]
pub(crate) fn a_write_on_a_promoted_standby_counts() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    let other = cluster.rig.client();
    // Until it is promoted, a text with a hint is no write: it fails, or has only read.
    asks(&client, &standby, HINTED);
    cluster.rig.later(1_000);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    asks(&client, &standby, READ);
    cluster.rig.later(1_000);
    client.send([query(HINTED)]);
    standby.expect([query(HINTED)]);
    let off = status("in_hot_standby", "off");
    standby.send([[complete("UPDATE 1"), off.clone(), ready('I')].concat()]);
    client.expect([complete("UPDATE 1"), off, ready('I')]);
    asks(&client, &primary, READ);
    asks(&other, &standby, READ);
    // PostgreSQL does not report it twice.
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, HINTED);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    asks(&client, &primary, READ);
}

#[test]
pub(crate) fn a_write_that_a_hint_sent_to_a_lost_standby_is_not_repeated() {
    let read = "/* weir: standby */ select 1";
    for (text, is_repeated) in [(HINTED, false), (read, true), (READ, true)] {
        for is_said in [false, true] {
            let cluster = Cluster::new();
            let (client, primary, standby) = cluster.opened();
            client.send([query(text)]);
            standby.expect([query(text)]);
            // It was promoted a moment ago, and may have committed.
            if is_said {
                standby.send([fatal("57P01", "terminating connection")]);
            }
            standby.die();
            if is_repeated {
                primary.answers(text);
                client.expect([done("OK")]);
            } else {
                assert!(primary.is_parked() && !client.is_open());
            }
        }
    }
}

#[test]
pub(crate) fn a_standby_that_another_client_has_used_may_refuse_a_write() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    asks(&client, &standby, READ);
    let other = cluster.rig.client();
    let text = "/* weir: standby */ insert into t values (1)";
    other.send([query(text)]);
    standby.expect([query(text)]);
    standby.send([error("25006", "cannot execute INSERT in a read-only transaction"), ready('I')]);
    // Only the primary may draw a number.
    primary.expect([query("DISCARD SEQUENCES"), query(text)]);
    primary.send([done("DISCARD SEQUENCES"), done("OK")]);
    other.expect([done("OK")]);
}

#[test]
pub(crate) fn a_write_that_a_standby_refuses_is_run_by_the_primary() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    client.send([query(HINTED)]);
    standby.expect([query(HINTED)]);
    standby.send([error("25006", "cannot execute UPDATE in a read-only transaction"), ready('I')]);
    primary.answers(HINTED);
    client.expect([done("OK")]);
    // A procedure may have committed before this.
    client.send([query(HINTED)]);
    cluster.standby_has_all_before(Micros::MAX);
    let failed = error("42P01", "relation does not exist");
    standby.expect([query(HINTED)]);
    standby.send([failed.clone(), ready('I')]);
    client.expect([failed, ready('I')]);
    assert!(primary.is_parked());
}

const WAIT: Micros = 300_000;

fn waiting(read_after_write: ReadAfterWrite, when_stale: WhenStale) -> Cluster {
    Cluster::with(ReadRules {
        read_after_write,
        when_stale,
        stale_wait: WAIT,
        ..ReadRules::default()
    })
}

#[test]
pub(crate) fn a_strict_read_waits_for_a_sample_behind_its_arrival() {
    let cluster = waiting(ReadAfterWrite::Strict, WhenStale::Primary);
    let (client, primary, standby) = cluster.opened();
    // The standby has the session's own write, and not what others commit now.
    cluster.rig.later(1_000);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    client.send([query(READ)]);
    // Another one behind it stays in the socket.
    client.send([query(WRITE)]);
    cluster.rig.later(20_000);
    cluster.rig.sample();
    client.expect([]);
    assert!(primary.is_parked() && standby.is_parked() && cluster.readers.take_waiting());
    // The arrival counts, and not the last look.
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    cluster.rig.sample();
    standby.answers(READ);
    primary.answers(WRITE);
    client.expect([done("OK"), done("OK")]);
}

#[test]
pub(crate) fn a_read_does_not_wait_longer_than_allowed() {
    let cluster = waiting(ReadAfterWrite::Strict, WhenStale::Primary);
    let (client, primary, standby) = cluster.opened();
    cluster.standby_has_all_before(1);
    client.send([query(READ)]);
    cluster.rig.wait_ms(200);
    client.expect([]);
    cluster.rig.wait_ms(200);
    primary.answers(READ);
    client.expect([done("OK")]);
    // No wait helps here.
    cluster.readers.get(NodeId(1)).expect("the standby").set(None, 0, 0);
    asks(&client, &primary, READ);
    assert!(standby.is_parked());
}

#[test]
fn a_read_waits_for_its_own_writes_if_it_may() {
    let cluster = waiting(ReadAfterWrite::Session, WhenStale::Wait);
    let (client, primary, standby) = cluster.opened();
    asks(&client, &primary, WRITE);
    cluster.standby_has_all_before(1);
    client.send([query(READ)]);
    client.expect([]);
    // Half of a request is there already.
    let (begin, rest) = (query(READ)[..7].to_vec(), query(READ)[7..].to_vec());
    client.send([begin]);
    cluster.standby_has_all_before(Micros::MAX);
    cluster.rig.sample();
    standby.answers(READ);
    client.expect([done("OK")]);
    client.send([rest]);
    standby.answers(READ);
    client.expect([done("OK")]);
    // Others do not wait.
    cluster.standby_has_all_before(1);
    asks(&cluster.rig.client(), &standby, READ);
}

#[test]
fn a_client_that_leaves_while_its_read_waits_harms_nobody() {
    let cluster = waiting(ReadAfterWrite::Strict, WhenStale::Primary);
    let (client, primary, standby) = cluster.opened();
    cluster.standby_has_all_before(1);
    client.send([query(READ)]);
    client.leave();
    let other = cluster.rig.client();
    cluster.standby_has_all_before(Micros::MAX);
    cluster.rig.sample();
    assert!(primary.is_parked() && standby.is_parked());
    asks(&other, &standby, READ);
}

#[test]
pub(crate) fn a_position_of_another_session_must_be_there() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    cluster.rig.later(1_000);
    cluster.standby_has(cluster.rig.now(), 0x63);
    sets(&client, &primary, "weir.token", "0/64");
    asks(&client, &primary, READ);
    cluster.rig.later(1_000);
    cluster.standby_has(cluster.rig.now(), 0x64);
    // The SET itself is no write, and shows no data.
    sets(&client, &primary, "weir.token", "0/64");
    client.send([query(READ)]);
    standby.answers("SELECT pg_catalog.set_config('weir.token','0/64',false) IS NULL;");
    standby.answers(READ);
    client.expect([done("OK")]);
    sets(&client, &primary, "weir.token", "nonsense");
    asks(&client, &primary, READ);
}

#[test]
pub(crate) fn a_read_that_has_waited_is_judged_again() {
    for fall_behind in [
        // It is too old, it lacks a write of the session, or it is lost.
        |cluster: &Cluster| cluster.rig.later(2 * AGE_MAX),
        |cluster: &Cluster| cluster.standby_has_all_before(1),
        |cluster: &Cluster| cluster.readers.get(NodeId(1)).expect("the standby").set(None, 0, 0),
    ] {
        let rules = ReadRules {
            limits: Limits { age_max: AGE_MAX, lag_bytes_max: 0 },
            ..ReadRules::default()
        };
        let cluster = Cluster::of_size(1, rules);
        let (client, primary, standby) = cluster.opened();
        cluster.standby_has_all_before(cluster.rig.now() - 1);
        let others = [(); 3].map(|()| cluster.rig.client());
        asks(&client, &primary, WRITE);
        cluster.rig.later(1_000);
        cluster.standby_has_all_before(cluster.rig.now() - 1);
        others[0].send([query(READ)]);
        standby.expect([query(READ)]);
        // Both wait for the only server of the standby.
        client.send([query(READ)]);
        others[1].send([query(READ)]);
        client.expect([]);
        fall_behind(&cluster);
        standby.send([done("OK")]);
        others[0].expect([done("OK")]);
        primary.answers(READ);
        client.expect([done("OK")]);
    }
}

#[test]
pub(crate) fn writes_of_others_behind_its_arrival_do_not_concern_a_waiting_read() {
    let rules = ReadRules { read_after_write: ReadAfterWrite::User, ..ReadRules::default() };
    let cluster = Cluster::of_size(1, rules);
    let (client, primary, standby) = cluster.opened();
    let other = cluster.rig.client();
    cluster.rig.later(1_000);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    other.send([query(READ)]);
    standby.expect([query(READ)]);
    client.send([query(READ)]);
    cluster.rig.later(1_000);
    asks(&cluster.rig.client(), &primary, WRITE);
    standby.send([done("OK")]);
    other.expect([done("OK")]);
    standby.answers(READ);
    client.expect([done("OK")]);
}

/// A cluster whose nodes have one server each, and a client whose read waits for that of the standby.
/// The other client has it.
fn one_that_waits(rules: ReadRules, query_wait: Duration) -> (Cluster, [Client; 2], [Server; 2]) {
    let cluster = Cluster::configured(rules, |config| {
        config.global.default_pool_size = 1;
        config.global.query_wait_timeout = query_wait;
    });
    let (client, primary, standby) = cluster.opened();
    cluster.rig.later(1_000);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    let other = cluster.rig.client();
    other.send([query(READ)]);
    standby.expect([query(READ)]);
    client.send([query(READ)]);
    client.expect([]);
    (cluster, [client, other], [primary, standby])
}

#[test]
pub(crate) fn a_read_that_is_judged_again_has_waited_since_its_arrival() {
    let limit = Duration::from_secs(5);
    let rules = ReadRules {
        limits: Limits { age_max: AGE_MAX / 2, lag_bytes_max: 0 },
        ..ReadRules::default()
    };
    let (cluster, [client, other], [primary, standby]) = one_that_waits(rules, limit);
    // The only server of the primary is in use, too.
    let busy = cluster.rig.client();
    busy.send([query(WRITE)]);
    primary.expect([query(WRITE)]);
    cluster.rig.wait(3);
    standby.send([done("OK")]);
    other.expect([done("OK")]);
    client.expect([]);
    cluster.rig.wait(3);
    client.expect_fatal("query_wait_timeout");
}

/// A read that waited for a sample may wait for a busy standby as long as any other.
#[test]
pub(crate) fn patience_begins_in_the_queue() {
    for (milliseconds, is_over) in [(5, false), (15, true)] {
        let rules = ReadRules {
            read_after_write: ReadAfterWrite::Strict,
            stale_wait: WAIT,
            ..ReadRules::default()
        };
        let cluster = Cluster::of_size(1, rules);
        let (client, primary, standby) = cluster.opened();
        let other = cluster.rig.client();
        other.send([query(READ)]);
        standby.expect([query(READ)]);
        cluster.standby_has_all_before(1);
        client.send([query(READ)]);
        cluster.rig.later(20_000);
        cluster.standby_has_all_before(Micros::MAX);
        cluster.rig.sample();
        cluster.rig.wait_ms(milliseconds);
        if is_over {
            primary.answers(READ);
        } else {
            primary.expect([]);
            standby.send([done("OK")]);
            standby.answers(READ);
        }
        client.expect([done("OK")]);
    }
}

#[test]
pub(crate) fn a_read_does_not_wait_for_the_standby_of_a_pool_that_stopped_routing() {
    let (cluster, [client, other], [primary, standby]) =
        one_that_waits(ReadRules::default(), Duration::ZERO);
    cluster.rig.reload(|_| {});
    standby.send([done("OK")]);
    other.expect([done("OK")]);
    primary.answers(READ);
    client.expect([done("OK")]);
}

#[test]
pub(crate) fn later_writes_do_not_concern_a_held_read() {
    let cluster = waiting(ReadAfterWrite::User, WhenStale::Wait);
    let (client, primary, standby) = cluster.opened();
    asks(&client, &primary, WRITE);
    cluster.standby_has_all_before(1);
    client.send([query(READ)]);
    client.expect([]);
    cluster.rig.later(1_000);
    let sampled = cluster.rig.now();
    cluster.rig.later(1_000);
    asks(&cluster.rig.client(), &primary, WRITE);
    cluster.standby_has_all_before(sampled);
    cluster.rig.sample();
    standby.answers(READ);
    client.expect([done("OK")]);
}

/// The stored settings of the role before and after ALTER ROLE … SET.
const SETTINGS: [&str; 2] = ["17 5", "17 5 0.17.725.(0,1)"];

/// A cluster whose nodes have so many servers, a client, and its server on the primary, which has told the
/// settings.
fn watching(size: u32) -> (Cluster, Client, Server) {
    let cluster = Cluster::configured(ReadRules::default(), |config| {
        config.global.default_pool_size = size;
        config.global.role_check_interval = Duration::from_secs(1);
    });
    cluster.rig.later(1_000);
    let client = cluster.rig.connect();
    client.say_hello(&[]);
    let primary = cluster.rig.server(0);
    told(&primary, SETTINGS[0], SETTINGS[0]);
    client.expect_welcome(&[]);
    (cluster, client, primary)
}

/// A client logs in, and its login finds out that the settings have changed.
fn change_settings(cluster: &Cluster, primary: &Server) -> Client {
    let new = cluster.rig.connect();
    new.say_hello(&[]);
    told(primary, SETTINGS[0], SETTINGS[1]);
    new.expect_welcome(&[]);
    new
}

#[test]
pub(crate) fn a_role_has_changed_before_its_answer_was_read() {
    let (cluster, _client, former) = watching(20);
    cluster.rig.wait(2);
    // ALTER ROLE was committed after the beginning of the round in which the answer is read.
    cluster.rig.set_clock_ahead(3);
    let new = change_settings(&cluster, &former);
    let noticed_at = cluster.rig.now() + 3;
    let [early, late] = [(); 2].map(|()| cluster.rig.client());
    new.send([query(WRITE)]);
    let primary = cluster.rig.server(1);
    primary.answers(WRITE);
    new.expect([done("OK")]);
    cluster.standby_has_all_before(noticed_at - 1);
    asks(&early, &primary, READ);
    cluster.standby_has_all_before(noticed_at);
    late.send([query(READ)]);
    let standby = cluster.rig.server(2);
    told(&standby, SETTINGS[1], SETTINGS[1]);
    standby.answers(READ);
    late.expect([done("OK")]);
}

#[test]
pub(crate) fn a_standby_gets_new_servers_once_it_has_a_change_of_the_role() {
    let (cluster, client, former) = watching(1);
    let waits = cluster.rig.client();
    cluster.rig.wait(2);
    told(&former, SETTINGS[0], SETTINGS[0]);
    cluster.rig.wait(2);
    cluster.standby_has_all_before(cluster.rig.now() - 1);
    client.send([query(READ)]);
    let busy = cluster.rig.server(1);
    told(&busy, SETTINGS[0], SETTINGS[0]);
    busy.expect([query(READ)]);
    waits.send([query(READ)]);
    change_settings(&cluster, &former);
    busy.send([done("OK")]);
    client.expect([done("OK")]);
    // The standby has not replayed the change, and gives its next server the former settings.
    let [primary, early] = [2, 3].map(|at| cluster.rig.server(at));
    told(&early, SETTINGS[0], SETTINGS[0]);
    primary.answers(READ);
    waits.expect([done("OK")]);
    assert!(early.is_parked());
    cluster.standby_has_all_before(Micros::MAX);
    waits.send([query(READ)]);
    assert!(!early.is_open(), "it has the former settings");
    let standby = cluster.rig.server(4);
    told(&standby, SETTINGS[1], SETTINGS[1]);
    standby.answers(READ);
    waits.expect([done("OK")]);
    asks(&waits, &standby, READ);
}
