//! A tracked parameter that SET LOCAL has set returns to its old value after the transaction.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Server};

/// Runs one statement of a transaction. PostgreSQL then reports that parameter.
#[track_caller]
fn runs(client: &Client, server: &Server, sql: &str, reported: Option<(&str, &str)>, now: char) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    let reported = reported.map(|(name, value)| status(name, value));
    let answer: Vec<_> = reported.into_iter().chain([complete("OK"), ready(now)]).collect();
    server.send(answer.clone());
    client.expect(answer);
}

/// A transaction with SET LOCAL, and then a text that may leave something.
#[track_caller]
fn sets_local(
    client: &Client,
    server: &Server,
    name: &str,
    (local, own): (&str, &str),
    text: &str,
) {
    runs(client, server, "BEGIN", None, 'T');
    let set = format!("SET LOCAL {name} = '{local}'");
    runs(client, server, &set, Some((name, local)), 'T');
    runs(client, server, text, None, 'T');
    runs(client, server, "COMMIT", Some((name, own)), 'I');
    tells(server, &[]);
}

const TEXTS: [&str; 3] = ["SELECT st_x(a) FROM t", "SET work_mem = '5MB'", "RESET work_mem"];

#[test]
fn a_local_value_is_not_the_sessions_first_value() {
    for (name, default, local) in [
        ("TimeZone", "UTC", "Asia/Tokyo"),
        ("DateStyle", "ISO, MDY", "German, DMY"),
        ("client_encoding", "UTF8", "LATIN1"),
        ("application_name", "", "batch"),
    ] {
        for text in TEXTS {
            let rig = auto(|_| {});
            let client = rig.client();
            let server = rig.server(0);
            sets_local(&client, &server, name, (local, default), text);
            client.send([query("SELECT 1")]);
            server.answers("SELECT 1");
            client.expect([done("OK")]);
        }
    }
}

#[test]
fn the_end_of_a_local_value_is_no_reset() {
    for text in TEXTS {
        let rig = auto(|_| {});
        rig.client();
        let client = rig.client_with(0, &[("TimeZone", "Europe/Berlin")]);
        let server = rig.server(0);
        client.send([query("SET TimeZone = 'UTC'")]);
        server.expect([query("SET TimeZone = 'Europe/Berlin';")]);
        server.send([status("TimeZone", "Europe/Berlin"), done("SET")]);
        server.expect([query("SET TimeZone = 'UTC'")]);
        server.send([status("TimeZone", "UTC"), done("SET")]);
        tells(&server, &[("TimeZone", "UTC")]);
        assert!(server.is_parked());
        client.take();
        // The second round starts where nothing was changed.
        for _ in 0..2 {
            sets_local(&client, &server, "TimeZone", ("Asia/Tokyo", "UTC"), text);
            client.send([query("SELECT 1")]);
            server.answers("SELECT 1");
            client.expect([done("OK")]);
        }
    }
}
