//! An online restart: new engines continue with the clients and servers of the old ones.

use std::path::Path;

use config::{Config, PoolMode};

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::Rig;

#[test]
fn a_client_in_a_transaction_goes_on_with_its_server() {
    let rig = Rig::transaction();
    let client = rig.client();
    client.send([query("begin")]);
    let server = rig.server(0);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    rig.hand_over();
    client.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([complete("COMMIT"), ready('I')]);
    client.expect([complete("COMMIT"), ready('I')]);
    assert_eq!((rig.servers(), rig.pool(|pool| pool.counts())), (1, (1, 0)));
    assert!(server.is_parked());
}

#[test]
fn an_idle_server_serves_on() {
    let rig = Rig::with_workers(2, |_| {});
    let clients = [rig.client_at(0), rig.client_at(1), rig.client_at(0)];
    rig.hand_over();
    for client in clients {
        client.send([query("one")]);
        rig.server(0).answers("one");
        client.expect([done("OK")]);
    }
    assert_eq!((rig.servers(), rig.clients_counted()), (1, 3));
}

#[test]
fn a_waiting_client_is_served_after_it() {
    let rig = Rig::of_size(1);
    let (busy, waits) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    let server = rig.server(0);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    busy.expect([complete("BEGIN"), ready('T')]);
    waits.send([query("two")]);
    rig.hand_over();
    busy.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([complete("COMMIT"), ready('I')]);
    busy.expect([complete("COMMIT"), ready('I')]);
    server.answers("two");
    waits.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

#[test]
fn settings_go_along() {
    let rig = Rig::transaction();
    let other = rig.client();
    let client = rig.client_with(0, &[("DateStyle", "German")]);
    rig.hand_over();
    client.send([query("one")]);
    let server = rig.server(0);
    server.expect([query("SET DateStyle = 'German';")]);
    server.send([complete("SET"), status("DateStyle", "German"), ready('I')]);
    server.answers("one");
    client.expect([done("OK")]);
    other.send([query("two")]);
    server.expect([query("RESET DateStyle;")]);
    server.send([complete("SET"), status("DateStyle", "ISO, MDY"), ready('I')]);
    server.answers("two");
    other.expect([done("OK")]);
}

#[test]
fn a_text_prepared_after_a_change_of_the_schema_is_another_statement_still() {
    let rig = Rig::of_size(1);
    let client = rig.client();
    client.send([parse("s", "select a from t"), sync()]);
    let server = rig.server(0);
    server.expect([parse("weir_1", "select a from t"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([query("alter table t")]);
    server.expect([query("alter table t")]);
    server.send([complete("ALTER TABLE"), ready('I')]);
    client.expect([complete("ALTER TABLE"), ready('I')]);
    rig.hand_over();
    client.send([parse("s2", "select a from t"), sync()]);
    server.expect([parse("weir_2", "select a from t"), sync()]);
}

#[test]
fn the_next_process_knows_what_an_unnamed_statement_may_leave() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    const SET: &str = "SET work_mem = '5MB'";
    client.send([parse("", SET), sync()]);
    server.expect([parse("", SET), sync()]);
    server.send([parsed(), ready('I')]);
    tells(&server, &[]);
    rig.hand_over();
    client.send([bind(""), execute(), sync()]);
    server.expect([parse("", SET), bind(""), execute(), sync()]);
    server.send([parsed(), bound(), done("SET")]);
    tells(&server, &[("work_mem", "5MB")]);
    assert!(server.is_parked());
}

#[test]
pub(crate) fn the_next_process_knows_invisible_state() {
    let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let pins = "[pgbouncer]\npin_functions = pinned\n";
    let pins = Config::parse_ini(pins, "pins.ini", &no_file).expect("a sound text").global;
    for text in ["SELECT setseed(.5)", "LOAD 'mine'", "SELECT lastval()", "SELECT pinned()"] {
        let rig = auto(|config| config.global.pin_functions.clone_from(&pins.pin_functions));
        let client = rig.client();
        let server = rig.server(0);
        for sql in ["BEGIN", text] {
            client.send([query(sql)]);
            server.take();
            server.send([complete("OK"), ready('T')]);
        }
        rig.hand_over();
        client.send([query("COMMIT")]);
        server.answers("COMMIT");
        tells(&server, &[]);
        assert!(!server.is_parked(), "{text}");
        client.send([query("SELECT 1")]);
        server.answers("SELECT 1");
        assert!(!server.is_parked(), "{text}");
    }
}

/// An emptied setting looks like one that was reset.
#[test]
pub(crate) fn the_next_process_knows_an_emptied_setting() {
    let rig = auto(|_| {});
    let client = rig.client_with(0, &[("app.tenant", "x")]);
    let server = rig.server(0);
    client.send([query("BEGIN")]);
    server.expect([query("SELECT pg_catalog.set_config('app.tenant','x',false) IS NULL;")]);
    server.send([complete("SELECT 1"), ready('I')]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.send([query("SET app.tenant = ''")]);
    server.expect([query("SET app.tenant = ''")]);
    server.send([complete("SET"), ready('T')]);
    rig.hand_over();
    client.send([query("COMMIT")]);
    server.answers("COMMIT");
    tells(&server, &[]);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
}

#[test]
fn the_next_process_probes_for_settings_of_the_last_transaction() {
    for (count, fits) in [(1, true), (200, true), (300, false)] {
        let others: Vec<_> = (0..count).map(|n| format!("t.c{n}")).collect();
        let text = format!("SET app.x = '1'; SELECT {}", others.join(","));
        let rig = auto(|_| {});
        let client = rig.client();
        let server = rig.server(0);
        for sql in ["BEGIN", &text] {
            client.send([query(sql)]);
            server.take();
            server.send([complete("OK"), ready('T')]);
        }
        rig.hand_over();
        client.send([query("COMMIT")]);
        server.answers("COMMIT");
        let question = String::from_utf8_lossy(&server.take()).into_owned();
        server.send([done("SELECT")]);
        assert_eq!((question.contains("'app.x'"), server.is_parked()), (true, fits), "{count}");
    }
}

#[test]
fn a_client_that_replicates_keeps_its_own_server() {
    let rig = Rig::transaction();
    let client = rig.client_with(0, &[("replication", "database")]);
    rig.hand_over();
    let server = rig.server(0);
    for _ in 0..2 {
        client.send([query("IDENTIFY_SYSTEM")]);
        server.expect([query("IDENTIFY_SYSTEM")]);
        server.send([complete("IDENTIFY_SYSTEM"), ready('I')]);
        client.expect([complete("IDENTIFY_SYSTEM"), ready('I')]);
        assert!(!server.is_parked(), "it is nobody else's");
    }
    client.leave();
    assert!(!server.is_open(), "it outlives its client");
}

#[test]
fn a_parameter_that_is_tracked_from_now_on_is_asked_of_new_servers() {
    let rig = Rig::transaction();
    let client = rig.client();
    client.send([query("one")]);
    rig.server(0).answers("one");
    client.expect([done("OK")]);
    rig.hand_over_to(|config| config.global.track_extra_parameters.push("geqo".into()));
    client.send([query("two")]);
    rig.server(1).answers("two");
    client.expect([done("OK")]);
    assert!(!rig.server(0).is_open(), "nobody knows what it has there");
}

#[test]
fn a_client_whose_database_was_removed_is_told() {
    let rig = Rig::transaction();
    let (idle, busy) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    rig.server(0).expect([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    busy.expect([complete("BEGIN"), ready('T')]);
    rig.hand_over_to(|config| config.databases.clear());
    for client in [idle, busy] {
        client.expect_fatal("database removed");
    }
    assert_eq!((rig.server(0).is_open(), rig.clients_counted()), (false, 0));
}

#[test]
fn the_new_process_welcomes_a_client_that_waits_for_its_login() {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.default_pool_size = 1;
    });
    let (busy, waits) = (rig.client(), rig.connect());
    waits.say_hello(&[]);
    rig.hand_over();
    assert_eq!(waits.unread(), 0);
    busy.leave();
    rig.server(0).answers("DISCARD ALL");
    waits.expect_welcome(&[]);
}

#[test]
fn a_connection_that_has_ended_is_not_handed_over() {
    let rig = Rig::transaction();
    let (stays, leaves) = (rig.client(), rig.client());
    for client in [&stays, &leaves] {
        client.send([query("begin")]);
    }
    for at in 0..2 {
        rig.server(at).send([complete("BEGIN"), ready('I')]);
    }
    let exported = rig.export();
    assert_eq!((exported[0].clients.len(), exported[0].parked.len()), (2, 2));
    leaves.leave();
    rig.server(1).die();
    let comes = rig.client();
    let ceded = rig.cede(exported);
    assert_eq!((ceded[0].clients.len(), ceded[0].parked.len()), (1, 1));
    comes.send([query("one")]);
    rig.server(2).answers("one");
    comes.expect([done("OK")]);
    assert_eq!((rig.clients_counted(), rig.clients_in_tables()), (1, 1));
}
