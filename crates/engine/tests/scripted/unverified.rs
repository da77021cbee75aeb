//! Auto mode: a probe that fails, or would fail. No trace is forgotten.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const SET: &str = "SET work_mem = '5MB'";

/// A client that has set something. The probe for it has failed.
fn unverified() -> (Rig, Client, Server) {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    client.send([query(SET)]);
    server.answers(SET);
    client.expect([done("OK")]);
    assert!(asks(&server).contains("pg_settings"));
    server.send([error("57014", "canceling statement due to statement timeout"), ready('I')]);
    assert!(!server.is_parked());
    (rig, client, server)
}

fn asks(server: &Server) -> String {
    let question = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(question.contains("found (kind"), "{question}");
    question
}

#[test]
fn a_failed_probe_is_repeated_after_the_next_transaction() {
    for next in ["SELECT 1", "DROP TABLE gone", "SELECT pg_advisory_unlock(1)"] {
        let (rig, client, server) = unverified();
        let other = rig.client();
        other.send([query("SELECT 2")]);
        server.expect([]);
        client.send([query(next)]);
        server.answers(next);
        client.expect([done("OK")]);
        tells(&server, &[("work_mem", "5MB")]);
        server.answers("RESET \"work_mem\";");
        server.answers("SELECT 2");
        other.expect([done("OK")]);
        client.send([query("SELECT 3")]);
        server.answers("SELECT pg_catalog.set_config('work_mem','5MB',false) IS NULL;");
        server.answers("SELECT 3");
    }
}

/// Otherwise the server would count as late although it has answered.
#[test]
fn the_answer_to_it_waits_for_no_client() {
    let rig = auto(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    client.send([query(SET)]);
    server.answers(SET);
    client.set_slow(true);
    tells(&server, &[("work_mem", "5MB")]);
    assert!(server.is_parked());
    // The client's own query runs normally.
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    assert!(!server.is_parked());
    client.set_slow(false);
    assert!(server.is_parked());
}

#[test]
fn a_question_that_has_failed_is_not_asked_all_the_time() {
    let (_rig, client, server) = unverified();
    client.poke();
    server.expect([]);
    // Half a message ends no transaction.
    let next = query("SELECT 1");
    client.send([next[..7].to_vec()]);
    server.expect([]);
    client.send([next[7..].to_vec()]);
    server.answers("SELECT 1");
    assert!(asks(&server).contains("pg_settings"));
}

#[test]
fn a_failed_probe_is_repeated_by_the_next_process() {
    let (rig, client, server) = unverified();
    rig.hand_over();
    client.send([query("DROP TABLE gone")]);
    server.answers("DROP TABLE gone");
    client.expect([done("OK")]);
    tells(&server, &[("work_mem", "5MB")]);
    assert!(server.is_parked());
    rig.client().send([query("SELECT 1")]);
    server.answers("RESET \"work_mem\";");
    server.answers("SELECT 1");
}

#[test]
fn texts_are_not_shared_while_the_path_is_unknown() {
    let (rig, client, server) = unverified();
    client.send([parse("mine", "select * from t"), sync()]);
    server.expect([parse("weir_1", "select * from t"), sync()]);
    server.send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    tells(&server, &[]);
    let other = rig.client();
    other.send([parse("its", "select * from t"), sync()]);
    server.expect([parse("weir_2", "select * from t"), sync()]);
}

#[test]
fn a_cancel_request_on_its_way_does_not_hit_the_question() {
    let rig = auto(|_| {});
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    let server = rig.server(0);
    for stays in [true, false] {
        client.send([query(SET)]);
        server.expect([query(SET)]);
        let requester = rig.connect();
        requester.send([cancel_request(pid, &secret)]);
        server.send([done("SET")]);
        client.expect([done("SET")]);
        server.expect([]);
        // The server's own messages do not answer the probe, and the client's messages wait.
        server.send([status("TimeZone", "UTC")]);
        client.expect([status("TimeZone", "UTC")]);
        if stays {
            client.send([query("SELECT 1")]);
            server.expect([]);
            rig.finish_cancel();
            tells(&server, &[("work_mem", "5MB")]);
            server.answers("SELECT 1");
            client.expect([done("OK")]);
        } else {
            client.leave();
            server.expect([]);
            rig.finish_cancel();
            server.answers("DISCARD ALL");
        }
        assert!(server.is_parked());
    }
}

#[test]
fn a_cancel_request_that_ends_in_the_middle_of_a_message_starts_no_probe() {
    let rig = auto(|_| {});
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    let server = rig.server(0);
    client.send([query(SET)]);
    server.expect([query(SET)]);
    rig.connect().send([cancel_request(pid, &secret)]);
    let said = status("TimeZone", "UTC");
    let (begin, rest) = said.split_at(7);
    server.send([done("SET")]);
    server.send([begin.to_vec()]);
    rig.finish_cancel();
    server.expect([]);
    server.send([rest.to_vec()]);
    client.expect([done("SET"), said.clone()]);
    tells(&server, &[("work_mem", "5MB")]);
    assert!(server.is_parked());
}

/// The client's texts have changed the values that Weir knows. They are not applied again.
#[test]
fn after_a_failed_probe_the_client_keeps_what_its_last_text_did() {
    let rig = auto(|_| {});
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("SET ROLE weak")]);
    server.answers("SET ROLE weak");
    client.expect([done("OK")]);
    tells(&server, &[("role", "weak")]);
    let failed = || [error("57014", "canceling statement due to statement timeout"), ready('I')];
    client.send([query("RESET ROLE")]);
    server.expect([query("RESET ROLE")]);
    server.send([done("RESET")]);
    client.expect([done("RESET")]);
    asks(&server);
    server.send(failed());
    assert!(!server.is_parked());
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
}

#[test]
fn a_request_stays_on_a_server_whose_session_is_unknown() {
    let (rig, client, server) = unverified();
    client.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.die();
    client.expect_lost();
    assert_eq!(rig.servers(), 1);
}
