//! The protocol version that Weir asks a server for, and the server's answer.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const ALICE: &[(&str, &str)] = &[("user", "alice"), ("database", "app")];

/// A client that waits for its first server, and that server after its startup packet.
fn first_server(rig: &Rig) -> (Client, Server) {
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.expect([server_startup(ALICE)]);
    (client, server)
}

/// A login answer with this secret.
fn welcome(server: &Server, secret: &[u8]) -> [Message; 3] {
    [authentication_ok(), key_data(server.pid(), secret), ready('I')]
}

/// The client's query runs and is cancelled. Returns the packets for PostgreSQL.
fn cancels(rig: &Rig, client: &Client, server: &Server) -> Vec<(usize, Message)> {
    let greeting = client.take();
    let key = &greeting[greeting.len() - 14..greeting.len() - 6];
    client.send([query("slow")]);
    server.expect([query("slow")]);
    let pid = u32::from_be_bytes(key[..4].try_into().expect("four bytes"));
    rig.connect().send([cancel_request(pid, &key[4..])]);
    rig.cancels()
}

#[test]
fn keys_of_every_length_are_kept_for_cancel_requests() {
    for length in [4, 32, 256] {
        let rig = Rig::transaction().manual();
        let (client, server) = first_server(&rig);
        let secret: Vec<u8> = (0..length).map(|at| at as u8).collect();
        server.send(welcome(&server, &secret));
        assert_eq!(cancels(&rig, &client, &server), [(0, cancel_request(server.pid(), &secret))]);
    }
}

#[test]
fn a_key_that_is_too_long_or_too_short_is_none() {
    for length in [0, 3, 257] {
        let rig = Rig::transaction().manual();
        let (_client, server) = first_server(&rig);
        server.send(welcome(&server, &vec![7; length]));
        assert!(!server.is_open(), "{length} bytes");
    }
}

#[test]
fn an_older_server_negotiates() {
    let rig = Rig::transaction().manual();
    let (client, server) = first_server(&rig);
    server.send([negotiate(0, &[])]);
    server.send(welcome(&server, b"abcd"));
    assert_eq!(cancels(&rig, &client, &server), [(0, cancel_request(server.pid(), b"abcd"))]);
}

#[test]
fn a_server_may_not_negotiate_upwards_or_decline_unrequested_options() {
    let broken = [negotiate(2, &[]), negotiate(9, &[]), negotiate(0, &[b"_pq_.x"])];
    for answer in broken.into_iter().chain([b"v\0\0\0\x0c\0\0\0\0\0\0\0\0".to_vec()]) {
        let rig = Rig::transaction().manual();
        let (_client, server) = first_server(&rig);
        server.send([answer.clone()]);
        assert!(!server.is_open(), "{}", answer.escape_ascii());
        assert!(rig.logged("egotiat"));
    }
}

/// PostgreSQL before 9.3 and PgBouncer before 1.24 behave like this.
#[test]
fn a_server_that_cannot_negotiate_and_all_later_ones_are_asked_for_3_0() {
    for code in ["0A000", "08P01"] {
        let rig = Rig::transaction().manual();
        let (client, server) = first_server(&rig);
        server.send([fatal(code, "unsupported frontend protocol 3.2: server supports 1.0 to 3.0")]);
        assert!(!server.is_open());
        client.expect([]);
        let again = rig.server(1);
        again.connect();
        again.expect([startup(ALICE)]);
        again.send(welcome(&again, b"abcd"));
        assert!(!client.take().is_empty());
        client.send([query("one")]);
        let other = rig.connect();
        other.say_hello(&[]);
        other.send([query("other")]);
        let next = rig.server(2);
        next.connect();
        next.expect([startup(ALICE)]);
    }
}

#[test]
fn a_server_that_also_refuses_3_0_is_given_up() {
    let rig = Rig::transaction().manual();
    let (client, server) = first_server(&rig);
    server.send([fatal("08P01", "no such database: app")]);
    let again = rig.server(1);
    again.connect();
    again.send([fatal("08P01", "no such database: app")]);
    client.expect([fatal("08P01", "no such database: app")]);
    assert_eq!(rig.servers(), 2);
}

#[test]
fn an_error_about_something_else_is_no_reason_to_ask_again() {
    for early in [true, false] {
        let rig = Rig::transaction().manual();
        let (client, server) = first_server(&rig);
        let code = if early { "53300" } else { "0A000" };
        if !early {
            server.send([authentication_ok()]);
        }
        server.send([fatal(code, "not today")]);
        client.expect([fatal(code, "not today")]);
        assert_eq!(rig.servers(), 1);
    }
}
