//! Servers with the library `weir`, which report the state of their sessions. Weir does not probe
//! them.

use std::path::Path;

use config::{Config, PoolMode, Unsupported};
use engine::pins::Pins;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome_with};

const ALICE: &[(&str, &str)] = &[("user", "alice"), ("database", "app")];
const WORK_MEM: &str = "SELECT pg_catalog.set_config('work_mem','5MB',false) IS NULL;";
const RESETS: &str = "RESET \"work_mem\";";
/// The report of an empty session.
const NOTHING: &str = "v1";
/// A text whose effect cannot be seen.
const UNSEEN: &str = "UPDATE t SET a = 1";

/// An answer, followed by a state report.
pub(crate) fn done_with(state: &str) -> Message {
    [complete("OK"), status("weir.state", state), ready('I')].concat()
}

/// The next server logs in and reports this state.
fn log_in(rig: &Rig, at: usize, state: &str) -> Server {
    let server = rig.server(at);
    server.connect();
    server.take();
    server.send([server_welcome_with(at, &[("weir.state", state)])]);
    server
}

/// A client of a pool whose first server sends reports.
pub(crate) fn reporting(change: impl FnOnce(&mut Config)) -> (Rig, Client, Server) {
    let rig = auto(change).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = log_in(&rig, 0, "v1;w:1.0");
    client.expect_welcome(&[]);
    assert!(server.is_parked());
    rig.set_automatic(true);
    (rig, client, server)
}

/// Runs the query. Afterwards the session has that state, if it changes. There is no probe.
#[track_caller]
fn runs(client: &Client, server: &Server, sql: &str, state: Option<&str>) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([state.map_or_else(|| done("OK"), done_with)]);
    client.expect([done("OK")]);
    server.expect([]);
}

fn pins(rig: &Rig) -> Pins {
    let pinned = rig.report(0).servers.first().and_then(|server| server.pinned);
    pinned.map_or(Pins::NONE, |pinned| pinned.pins)
}

/// Runs a new client's transaction, after these texts of Weir's.
#[track_caller]
fn is_free(rig: &Rig, server: &Server, before: &[&str]) {
    assert!(server.is_parked());
    let other = rig.client();
    other.send([query("SELECT 2")]);
    before.iter().for_each(|sql| server.answers(sql));
    server.answers("SELECT 2");
    other.expect([done("OK")]);
}

#[track_caller]
fn finds_no_strangers_number(rig: &Rig, server: &Server) {
    rig.client().send([query("SELECT 2")]);
    server.expect([query("DISCARD SEQUENCES"), query("SELECT 2")]);
}

#[test]
fn servers_are_asked_for_reports_in_auto_mode_alone() {
    // The key is random, so only its place is compared.
    let key = "k".repeat(32);
    let asks = [("weir.report", "1"), ("weir.key", &*key), ("weir.unsupported", "error")];
    for (mode, refuses, asked) in [
        (PoolMode::Auto, Unsupported::Pin, &asks[..2]),
        (PoolMode::Auto, Unsupported::Error, &asks[..]),
        (PoolMode::Transaction, Unsupported::Error, &[]),
        (PoolMode::Session, Unsupported::Pin, &[]),
    ] {
        let rig = Rig::new(|config| {
            (config.global.pool_mode, config.global.auto_unsupported) = (mode, refuses);
        });
        let _client = rig.client();
        let startup = [ALICE, asked].concat();
        let mut sent = rig.server(0).startup();
        let name = b"weir.key\0";
        if let Some(at) = sent.windows(name.len()).position(|part| part == name) {
            sent[at + name.len()..][..key.len()].fill(b'k');
        }
        assert_eq!(show(&sent), show(&server_startup(&startup)), "{mode:?}");
    }
}

#[test]
fn a_reported_setting_is_the_clients_without_a_probe() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, "SET work_mem = '5MB'", Some("v1;s:work_mem=5MB"));
    runs(&client, &server, "SELECT 1", None);
    is_free(&rig, &server, &[RESETS]);
    client.send([query("SELECT 3")]);
    server.expect([query(WORK_MEM)]);
    server.send([done_with("v1;s:work_mem=5MB")]);
    server.answers("SELECT 3");
    client.expect([done("OK")]);
}

#[test]
fn so_is_a_reported_setting_that_no_text_shows() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;s:work_mem=5MB"));
    is_free(&rig, &server, &[RESETS]);
    client.send([query("SELECT 3")]);
    server.answers(WORK_MEM);
    server.answers("SELECT 3");
}

#[test]
fn a_function_that_leaves_nothing_costs_nothing() {
    let (rig, client, server) = reporting(|_| {});
    for _ in 0..3 {
        runs(&client, &server, "SELECT mine(1)", None);
        assert!(server.is_parked());
    }
    is_free(&rig, &server, &[]);
}

#[test]
fn state_that_cannot_be_carried_pins_the_server_until_a_report_without_it() {
    for (state, pin) in [
        ("v1;t", Pins::TEMPORARY),
        ("v1;k", Pins::LOCK),
        ("v1;c", Pins::CURSOR),
        ("v1;u", Pins::UNVERIFIED),
        ("v1;what", Pins::UNVERIFIED),
        ("v2", Pins::UNVERIFIED),
    ] {
        let (rig, client, server) = reporting(|_| {});
        runs(&client, &server, UNSEEN, Some(state));
        assert_eq!(pins(&rig), pin, "{state}");
        // Without a new report, the state is unchanged.
        for sql in ["SELECT 1", "DROP TABLE a", "SELECT pg_advisory_unlock(1)"] {
            runs(&client, &server, sql, None);
            assert_eq!(pins(&rig), pin, "{state}");
        }
        runs(&client, &server, UNSEEN, Some("v1;s:work_mem=5MB"));
        is_free(&rig, &server, &[RESETS]);
    }
}

#[test]
fn the_state_of_a_client_that_leaves_is_discarded() {
    for (state, is_kept) in [("v1;t", true), ("v1;u", true), ("v1;e:1:load", false)] {
        let (rig, client, server) = reporting(|_| {});
        runs(&client, &server, UNSEEN, Some(state));
        client.leave();
        assert_eq!(server.is_open(), is_kept, "{state}");
        if is_kept {
            server.expect([query("DISCARD ALL")]);
            server.send([done_with("v1;e:1:discard")]);
            is_free(&rig, &server, &[]);
        }
    }
}

#[test]
fn the_state_of_a_client_that_left_in_a_query_is_discarded() {
    let (rig, client, server) = reporting(|_| {});
    client.send([query(UNSEEN)]);
    server.expect([query(UNSEEN)]);
    client.leave();
    rig.finish_cancel();
    server.send([done_with("v1;t")]);
    server.expect([query("DISCARD ALL")]);
    server.send([done_with(NOTHING)]);
    is_free(&rig, &server, &[]);
}

#[test]
fn events_are_reasons_that_no_state_shows() {
    for (event, pin) in [
        ("currval", Pins::SEQUENCE),
        ("lastval", Pins::SEQUENCE),
        ("setseed", Pins::SEED),
        ("load", Pins::LOAD),
        ("backup", Pins::LOAD),
        ("origin", Pins::LOAD),
        ("dblink", Pins::LOAD),
        ("slot", Pins::LOAD),
    ] {
        for (what, expected) in
            [(Unsupported::Pin, pin), (Unsupported::Error, pin), (Unsupported::Warn, Pins::NONE)]
        {
            let (rig, client, server) = reporting(|config| config.global.auto_unsupported = what);
            runs(&client, &server, UNSEEN, Some(&format!("v1;e:1:{event}")));
            assert_eq!(pins(&rig), expected, "{event} {what:?}");
            runs(&client, &server, "SELECT 1", None);
            assert_eq!(pins(&rig), expected, "{event} {what:?}");
        }
    }
    // A newer library may report other kinds of state.
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;e:1:unheard_of"));
    assert_eq!(pins(&rig), Pins::LOAD | Pins::UNVERIFIED);
    runs(&client, &server, UNSEEN, Some("v1;s:a=1"));
    assert_eq!(pins(&rig), Pins::LOAD);
}

#[test]
fn a_text_that_only_seems_to_ask_for_a_number_pins_no_client() {
    let (rig, client, server) = reporting(|_| {});
    client.send([parse("", "SELECT currval('s')"), sync()]);
    server.expect([parse("", "SELECT currval('s')"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    assert!(server.is_parked());
    finds_no_strangers_number(&rig, &server);
}

#[test]
fn numbers_that_a_function_has_discarded_are_not_asked_for() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;e:1:currval"));
    runs(&client, &server, UNSEEN, Some("v1;e:2:discard,currval"));
    assert_eq!(pins(&rig), Pins::SEQUENCE);
    runs(&client, &server, UNSEEN, Some("v1;e:3:discard"));
    assert!(server.is_parked());
}

#[test]
fn after_a_function_asked_the_next_client_gets_no_other_clients_number() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;e:1:lastval"));
    runs(&client, &server, "DISCARD SEQUENCES", Some("v1;e:2:discard"));
    assert!(server.is_parked());
    finds_no_strangers_number(&rig, &server);
}

#[test]
fn each_of_several_pipelined_queries_has_its_report_and_one_verdict_is_taken() {
    let (rig, client, server) = reporting(|_| {});
    client.send([query(UNSEEN), query(UNSEEN), parse("", UNSEEN), bind(""), execute(), sync()]);
    server.take();
    server.send([done_with("v1;t;e:1:currval"), done_with("v1;s:work_mem=4MB;e:2:setseed")]);
    client.expect([done("OK"), done("OK")]);
    assert_eq!(pins(&rig), Pins::NONE, "not before the end");
    server.send([parsed(), bound(), done_with("v1;s:work_mem=5MB")]);
    client.expect([parsed(), bound(), done("OK")]);
    server.expect([]);
    assert_eq!(pins(&rig), Pins::SEQUENCE | Pins::SEED);
    client.leave();
    assert!(!server.is_open());
}

#[test]
fn a_report_amid_an_open_transaction_is_judged_at_its_end() {
    let (rig, client, server) = reporting(|_| {});
    client.send([query(UNSEEN), query("BEGIN")]);
    server.take();
    server.send([done_with("v1;s:work_mem=5MB"), complete("BEGIN"), ready('T')]);
    client.expect([done("OK"), complete("BEGIN"), ready('T')]);
    runs(&client, &server, "COMMIT", None);
    is_free(&rig, &server, &[RESETS]);
}

#[test]
fn a_server_whose_state_weirs_own_query_made_unknown_is_probed() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;s:work_mem=5MB"));
    is_free(&rig, &server, &[RESETS]);
    client.send([query("SELECT 1")]);
    server.expect([query(WORK_MEM)]);
    // The state stays unknown whatever the client does, so there would be no further report.
    server.send([done_with("v1;u")]);
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    client.send([query("SET work_mem = '6MB'")]);
    server.answers("SET work_mem = '6MB'");
    tells(&server, &[("work_mem", "6MB")]);
    is_free(&rig, &server, &[RESETS]);
}

#[test]
fn a_clients_settings_of_the_library_are_not_carried() {
    let rig = auto(|_| {});
    let forged =
        [("weir.report", "0"), ("Weir.Key", "x"), ("weir.state", "v1"), ("options", "-c weir.x=1")];
    let client = rig.client_with(0, &forged);
    let server = rig.server(0);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    // A setting by the client is neither taken for a report nor carried.
    let sql = "SET weir.report = 1; SET weir.state = 'v1'";
    client.send([query(sql)]);
    server.answers(sql);
    client.expect([done("OK")]);
    tells(&server, &[("weir.report", "1"), ("weir.state", "v1"), ("weir.route", "a")]);
    is_free(&rig, &server, &["RESET \"weir\".\"route\";"]);
    let rig = Rig::transaction();
    let client = rig.connect();
    client.say_hello(&[("weir.report", "1")]);
    client.expect_fatal("unsupported startup parameter: weir.report");
}

#[test]
fn a_report_that_was_not_asked_for_is_neither_believed_nor_shown() {
    for mode in [PoolMode::Transaction, PoolMode::Session, PoolMode::Auto] {
        let is_auto = mode == PoolMode::Auto;
        let rig = auto(|config| config.global.pool_mode = mode).manual();
        let client = rig.connect();
        client.say_hello(&[]);
        let server = rig.server(0);
        server.connect();
        server.take();
        // In auto mode it comes too late, after the login.
        let told: &[(&str, &str)] = if is_auto { &[] } else { &[("weir.state", "v1")] };
        server.send([server_welcome_with(0, told)]);
        client.take();
        client.send([query("SET work_mem = '5MB'")]);
        server.expect([query("SET work_mem = '5MB'")]);
        server.send([done_with("v1;t")]);
        client.expect([done("OK")]);
        assert_eq!(pins(&rig), Pins::NONE);
        match is_auto {
            true => tells(&server, &[("work_mem", "5MB")]),
            false => server.expect([]),
        }
    }
}

#[test]
fn a_server_with_another_form_of_the_report_is_asked() {
    for told in ["v2;w:2.0", "v1;u", "v1;new:thing", ""] {
        let rig = auto(|_| {}).manual();
        let client = rig.connect();
        client.say_hello(&[]);
        let server = log_in(&rig, 0, told);
        client.expect_welcome(&[]);
        client.send([query("SET work_mem = '5MB'")]);
        server.answers("SET work_mem = '5MB'");
        tells(&server, &[("work_mem", "5MB")]);
        assert_eq!(rig.report(0).servers.first().and_then(|one| one.facts.reports_state), None);
    }
}

#[test]
fn some_servers_of_a_pool_may_report_and_others_not() {
    let (rig, client, first) = reporting(|config| config.global.default_pool_size = 2);
    runs(&client, &first, "SET work_mem = '5MB'", Some("v1;s:work_mem=5MB"));
    client.send([query("BEGIN")]);
    first.expect([query("BEGIN")]);
    first.send([complete("BEGIN"), ready('T')]);
    let other = rig.client();
    other.send([query("SET work_mem = '6MB'")]);
    let second = rig.server(1);
    second.answers("SET work_mem = '6MB'");
    tells(&second, &[("work_mem", "6MB")]);
    other.expect([done("OK")]);
    runs(&other, &second, "SELECT 1", None);
    other.send([query("BEGIN")]);
    second.expect([query("BEGIN")]);
    second.send([complete("BEGIN"), ready('T')]);
    let told: Vec<_> = rig.report(0).servers.iter().map(|one| one.facts.reports_state).collect();
    assert_eq!(told, [Some(true), Some(false)]);
}

#[test]
fn the_last_report_goes_with_its_server() {
    // The server moves to another worker.
    let rig = Rig::with_workers(2, |config| config.global.pool_mode = PoolMode::Auto).manual();
    let here = rig.connect();
    here.say_hello(&[]);
    let server = log_in(&rig, 0, "v1;w:1.0");
    here.expect_welcome(&[]);
    let there = rig.client_at(1);
    runs(&there, &server, UNSEEN, Some("v1;k"));
    assert_eq!(server.worker(), 1);
    runs(&there, &server, UNSEEN, Some("v1;k;e:1:setseed"));
    // The server moves to another process, pinned and in a transaction.
    for _ in 0..2 {
        rig.hand_over();
        runs(&there, &server, "SELECT pg_advisory_lock(1)", None);
        there.send([query("BEGIN")]);
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        there.expect([complete("BEGIN"), ready('T')]);
        rig.hand_over();
        runs(&there, &server, "COMMIT", None);
        assert!(!server.is_parked());
    }
    runs(&there, &server, UNSEEN, Some("v1;e:2:discard"));
    assert!(!server.is_parked(), "the seed is still there");
}

#[test]
fn a_tracked_parameter_that_no_text_was_seen_to_set_is_the_clients() {
    for is_given in [false, true] {
        let rig = auto(|_| {}).manual();
        let given = [("TimeZone", "UTC")];
        let client = rig.connect();
        client.say_hello(if is_given { &given } else { &[] });
        let server = log_in(&rig, 0, "v1;w:1.0");
        client.expect_welcome(&[]);
        let state = status("weir.state", "v1;s:TimeZone=Asia/Tokyo");
        client.send([query(UNSEEN)]);
        server.expect([query(UNSEEN)]);
        server.send([complete("OK"), status("TimeZone", "Asia/Tokyo"), state, ready('I')]);
        let told = client.take();
        assert!(show(&told).iter().any(|line| line.contains("Asia/Tokyo")), "{told:?}");
        let other = rig.client();
        other.send([query("SELECT 1")]);
        server.expect([query("RESET TimeZone;")]);
        server.send([
            complete("RESET"),
            status("TimeZone", "UTC"),
            status("weir.state", "v1"),
            ready('I'),
        ]);
        server.answers("SELECT 1");
        other.expect([done("OK")]);
        // RESET goes back to the value from before.
        client.send([query("RESET TimeZone")]);
        server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
        let state = status("weir.state", "v1;s:TimeZone=Asia/Tokyo");
        server.send([complete("SET"), status("TimeZone", "Asia/Tokyo"), state, ready('I')]);
        server.expect([query("RESET TimeZone")]);
        let state = status("weir.state", "v1");
        server.send([complete("RESET"), status("TimeZone", "UTC"), state, ready('I')]);
        assert!(server.is_parked());
        client.send([query("SELECT 3")]);
        server.answers("SELECT 3");
    }
}

/// The error of the lent statement says nothing about the report.
#[test]
pub(crate) fn a_refused_loan_pins_nobody() {
    let (_rig, client, server) = reporting(|_| {});
    client.send([parse("a", "SELECT 1"), sync(), query("BEGIN"), query("SELECT 1/0")]);
    server.take();
    server.send([parsed(), ready('I'), complete("BEGIN"), ready('T')]);
    server.send([error("22012", "division by zero"), ready('E')]);
    client.take();
    client.send([query("EXECUTE a")]);
    server.expect([parse("a", "SELECT 1"), sync(), query("EXECUTE a")]);
    let aborted = || [error("25P02", "the transaction is aborted"), ready('E')];
    server.send(aborted().into_iter().chain(aborted()));
    client.expect(aborted());
    client.send([query("ROLLBACK")]);
    server.answers("ROLLBACK");
    client.expect([done("OK")]);
    assert!(server.is_parked());
}

#[test]
fn a_statement_that_was_lent_is_asked_about_and_nothing_else() {
    let (_rig, client, server) = reporting(|_| {});
    client.send([parse("a", "SELECT 1"), sync()]);
    server.expect([parse("weir_1", "SELECT 1"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([query("EXECUTE a")]);
    server.expect([parse("a", "SELECT 1"), sync(), query("EXECUTE a")]);
    server.send([parsed(), ready('I'), done("OK")]);
    client.expect([done("OK")]);
    let question = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(
        question.contains("from pg_catalog.pg_prepared_statements") || question.contains("'n'")
    );
    assert!(!question.contains("pg_settings") && !question.contains("pg_locks"), "{question}");
    server.send([row("n:a"), done("SELECT 1"), closed(), ready('I')]);
    assert!(server.is_parked());
}

/// The question does not contain what the report was to tell.
#[test]
fn if_the_report_fails_meanwhile_the_state_is_unknown() {
    let (rig, client, server) = reporting(|_| {});
    client.send([parse("a", "SELECT 1"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    runs(&client, &server, UNSEEN, Some("v1;k"));
    assert_eq!(pins(&rig), Pins::LOCK);
    client.send([query("EXECUTE a")]);
    server.take();
    server.send([parsed(), ready('I'), done("OK")]);
    client.expect([done("OK")]);
    server.take();
    server.send([row("n:a"), done_with("v1;u"), closed(), ready('I')]);
    assert!(!server.is_parked());
    assert!(pins(&rig).contains(Pins::UNVERIFIED));
}

#[test]
fn servers_that_refuse_are_replaced_when_nothing_is_to_be_refused_any_more() {
    let refuse = |config: &mut Config| config.global.auto_unsupported = Unsupported::Error;
    let (rig, client, server) = reporting(refuse);
    rig.reload(|config| config.global.auto_unsupported = Unsupported::Pin);
    assert!(!server.is_open());
    client.send([query("SELECT 1")]);
    rig.server(1).answers("SELECT 1");
    // No server sends reports there, so none is closed.
    rig.reload(refuse);
    assert!(rig.server(1).is_open());
}

#[test]
fn settings_from_the_servers_login_apply_to_all_clients() {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = log_in(&rig, 0, "v1;s:app.tenant=7;w:1.0");
    client.expect_welcome(&[]);
    let other = rig.connect();
    other.say_hello(&[]);
    other.take();
    for client in [&client, &other] {
        runs(client, &server, "SELECT 1", None);
    }
    runs(&client, &server, "SET app.tenant = 8", Some("v1;s:app.tenant=8"));
    other.send([query("SELECT 2")]);
    server.answers("SELECT pg_catalog.set_config('app.tenant','7',false) IS NULL;");
    server.answers("SELECT 2");
}

#[test]
fn connect_query_is_followed_by_no_question() {
    let rig = auto(|config| crate::rig::app(config).connect_query = Some("SET a.b = 1".into()));
    let rig = rig.manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = log_in(&rig, 0, "v1;w:1.0");
    server.expect([query("SET a.b = 1")]);
    server.send([done_with("v1;s:a.b=1")]);
    server.expect([]);
    client.expect_welcome(&[]);
    runs(&client, &server, "SELECT 1", None);
    is_free(&rig, &server, &[]);
}

#[test]
pub(crate) fn a_function_of_pin_functions_pins_until_discard_all() {
    let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let pinning = "[pgbouncer]\npin_functions = mine\n";
    let pinning = Config::parse_ini(pinning, "pins.ini", &no_file).expect("a sound text").global;
    let (rig, client, server) =
        reporting(|config| config.global.pin_functions.clone_from(&pinning.pin_functions));
    runs(&client, &server, "SELECT mine()", None);
    assert_eq!(pins(&rig), Pins::FUNCTION);
    assert!(!server.is_parked());
    // It might have left anything, and DISCARD ALL removes that.
    client.send([query("DISCARD ALL")]);
    server.expect([query("DISCARD ALL")]);
    server.send([done("DISCARD ALL")]);
    assert!(server.is_parked());
}

#[test]
fn a_report_that_cannot_be_read_is_logged_once() {
    let (rig, client, server) = reporting(|_| {});
    runs(&client, &server, UNSEEN, Some("v1;u"));
    assert!(!rig.logged("BadReport"), "the library cannot tell");
    for report in ["v1;z", "v2", "v1;e:1:none", "v1;s:a"] {
        runs(&client, &server, UNSEEN, Some(report));
        assert!(pins(&rig).contains(Pins::UNVERIFIED), "{report}");
    }
    assert_eq!(rig.times_logged("BadReport"), 1);
}

#[test]
fn a_report_at_the_login_that_cannot_be_read_is_logged() {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let _server = log_in(&rig, 0, "v9;w:7.0");
    assert_eq!(rig.times_logged("BadReport"), 1);
}
