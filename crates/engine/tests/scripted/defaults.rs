//! A server's own default is another one, since its configuration was reloaded: PostgreSQL reports it in
//! whosever transaction comes next.

use wire::backend;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const ZONE: (&str, &str) = ("TimeZone", "UTC");

/// A client's statement, with the answer to which the reload is noticed.
#[track_caller]
fn runs_at_reload(client: &Client, server: &Server, sql: &str, now: char) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([complete("OK"), status("TimeZone", "Europe/Berlin"), ready(now)]);
}

/// It is given its own value before its next statement, once.
#[track_caller]
fn is_given_its_own(client: &Client, server: &Server) {
    assert!(server.is_parked());
    client.send([query("SELECT 2")]);
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    for _ in 0..2 {
        server.answers("SELECT 2");
        client.expect([done("OK")]);
        client.send([query("SELECT 2")]);
    }
}

fn stage(given: &[(&str, &str)]) -> (Rig, Client, Server) {
    let rig = auto(|_| {});
    let client = rig.client_with(0, given);
    let server = rig.server(0);
    (rig, client, server)
}

#[test]
fn who_has_given_a_value_keeps_it() {
    let (_rig, client, server) = stage(&[ZONE]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.expect([done("OK")]);
    is_given_its_own(&client, &server);
}

#[test]
fn who_has_set_what_was_there_already_keeps_it() {
    let (_rig, client, server) = stage(&[]);
    client.send([query("SET TimeZone = 'UTC'")]);
    server.answers("SET TimeZone = 'UTC'");
    client.expect([done("OK")]);
    tells(&server, &[ZONE]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.expect([done("OK")]);
    is_given_its_own(&client, &server);
}

#[test]
fn who_has_given_none_follows() {
    for given in [&[][..], &[("DateStyle", "ISO, MDY")]] {
        let (_rig, client, server) = stage(given);
        runs_at_reload(&client, &server, "SELECT 1", 'I');
        client.expect([complete("OK"), status("TimeZone", "Europe/Berlin"), ready('I')]);
        client.send([query("SELECT 2")]);
        server.answers("SELECT 2");
    }
}

/// RESET goes back to it, too.
#[test]
fn who_has_given_none_has_it_from_the_beginning() {
    let (_rig, client, server) = stage(&[]);
    client.send([query("SET work_mem = '5MB'")]);
    server.answers("SET work_mem = '5MB'");
    tells(&server, &[]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.send([query("RESET TimeZone")]);
    server.expect([query("RESET TimeZone")]);
    server.send([done("RESET")]);
    tells(&server, &[]);
    client.send([query("SELECT 2")]);
    server.answers("SELECT 2");
}

#[test]
fn what_a_transaction_sets_otherwise_makes_no_difference() {
    for (text, asks) in [("SET LOCAL app.tenant = '7'", false), ("SELECT st_x(a) FROM t", true)] {
        let (_rig, client, server) = stage(&[ZONE]);
        runs_at_reload(&client, &server, "BEGIN", 'T');
        client.expect([complete("OK"), ready('T')]);
        client.send([query(text)]);
        server.expect([query(text)]);
        server.send([complete("OK"), ready('T')]);
        client.send([query("COMMIT")]);
        server.answers("COMMIT");
        if asks {
            tells(&server, &[]);
        }
        client.take();
        is_given_its_own(&client, &server);
    }
    let (_rig, client, server) = stage(&[ZONE]);
    client.send([query("BEGIN"), query("SET LOCAL app.tenant = '7'")]);
    server.take();
    let reload = status("TimeZone", "Europe/Berlin");
    server.send([complete("BEGIN"), ready('T'), complete("SET"), reload, ready('T')]);
    client.send([query("COMMIT")]);
    server.answers("COMMIT");
    client.take();
    is_given_its_own(&client, &server);
}

#[test]
fn also_where_it_is_noticed_while_settings_are_applied() {
    let (rig, other, server) = stage(&[]);
    let client = rig.client_with(0, &[ZONE, ("DateStyle", "German")]);
    client.send([query("SELECT 1")]);
    server.expect([query("SET DateStyle = 'German';")]);
    let reload = status("TimeZone", "Europe/Berlin");
    server.send([complete("SET"), status("DateStyle", "German, DMY"), reload, ready('I')]);
    server.answers("SELECT 1");
    client.take();
    is_given_its_own(&client, &server);
    drop(other);
}

#[test]
fn also_behind_an_online_restart() {
    for given in [&[][..], &[ZONE]] {
        let (rig, client, server) = stage(given);
        rig.hand_over();
        runs_at_reload(&client, &server, "SELECT 1", 'I');
        if given.is_empty() {
            client.expect([complete("OK"), status("TimeZone", "Europe/Berlin"), ready('I')]);
            client.send([query("SELECT 2")]);
            server.answers("SELECT 2");
        } else {
            client.expect([done("OK")]);
            is_given_its_own(&client, &server);
        }
    }
}

#[test]
fn also_on_a_server_that_it_keeps() {
    let (_rig, client, server) = stage(&[ZONE]);
    client.send([query("CREATE TEMP TABLE mine (n int)")]);
    server.answers("CREATE TEMP TABLE mine (n int)");
    let has_table = || {
        assert!(String::from_utf8_lossy(&server.take()).contains("found (kind"));
        let mut table = Vec::new();
        backend::data_row(&mut table, &[Some(&b"t"[..]), None, None]);
        server.send([table, done("SELECT")]);
    };
    has_table();
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    has_table();
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    client.send([query("SELECT 2")]);
    server.answers("SELECT 2");
    assert!(!server.is_parked());
}

/// Nothing is known of texts there.
#[test]
fn in_transaction_mode_what_is_reported_is_the_clients_own() {
    let rig = Rig::of_size(1);
    let client = rig.client_with(0, &[ZONE]);
    let server = rig.server(0);
    client.send([query("SET TimeZone = 'Europe/Berlin'")]);
    server.take();
    server.send([complete("SET"), status("TimeZone", "Europe/Berlin"), ready('I')]);
    client.expect([complete("SET"), status("TimeZone", "Europe/Berlin"), ready('I')]);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
}
