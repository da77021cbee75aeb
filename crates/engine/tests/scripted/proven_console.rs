//! The console where only PostgreSQL knows the users (`AccessPolicy::ProvenByServer`).

use engine::pool::Gate;

use crate::messages::*;
use crate::rig::{Client, Rig};
use crate::scram::{asked, judge, local, proving, proving_in};

/// A user that wants the console. PostgreSQL is asked at the database of the URL, here the only one.
fn asked_for_console(rig: &Rig, secret: &str) -> Client {
    let client = rig.connect_from(0, local());
    client.say_hello_as("alice", "pgbouncer");
    client.expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    client.send([password(secret)]);
    client
}

/// Returns which of the clients that have got the console since the last call are administrators.
fn rights(rig: &Rig) -> Vec<bool> {
    rig.consoles().iter().map(|login| login.admin).collect()
}

#[test]
fn the_server_decides_who_uses_the_console_too() {
    let rig = proving();
    let wrong = asked_for_console(&rig, "wrong");
    judge(&rig);
    wrong.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert_eq!(rights(&rig), []);
    asked_for_console(&rig, "secret");
    assert_eq!(rights(&rig), [], "nothing is proven yet");
    judge(&rig);
    assert_eq!(rights(&rig), [false], "SHOW only");
}

#[test]
fn the_server_is_asked_at_each_login_to_the_console() {
    let rig = proving();
    asked_for_console(&rig, "secret");
    let first = judge(&rig);
    assert_eq!(rights(&rig), [false]);
    asked_for_console(&rig, "secret");
    assert!(!first.is_open(), "the new login takes the place of an idle server");
    assert_eq!(rights(&rig), [], "the server has not answered yet");
    judge(&rig);
    assert_eq!((rights(&rig), rig.servers()), (vec![false], 2));
    // The password is another one now.
    let old = asked_for_console(&rig, "secret");
    refuse_password(&rig);
    old.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
    assert_eq!((rights(&rig), rig.pool(|pool| pool.counts().0)), (vec![], 0));
    let old = asked(&rig, "secret");
    refuse_password(&rig);
    old.expect([fatal("28P01", "password authentication failed for user \"alice\"")]);
}

/// The last server finds that the password has changed.
fn refuse_password(rig: &Rig) {
    let server = rig.server(rig.servers() - 1);
    server.connect();
    server.take();
    server.send([fatal("28P01", "password authentication failed for user \"alice\"")]);
    server.die();
}

#[test]
fn a_known_password_opens_the_console_while_the_server_cannot_be_asked() {
    let rig = proving_in(1);
    let client = asked(&rig, "secret");
    let server = judge(&rig);
    client.expect_welcome(&[]);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    asked_for_console(&rig, "secret");
    assert_eq!(rights(&rig), [false], "there is no place");
    assert_eq!(rig.servers(), 1);
    client.send([query("commit")]);
    server.send([complete("COMMIT"), ready('I')]);
    asked_for_console(&rig, "secret");
    rig.server(1).refuse();
    assert_eq!(rights(&rig), [false], "it does not answer");
    rig.order(|pool| pool.set_gate(Gate::Paused));
    asked_for_console(&rig, "secret");
    assert_eq!((rights(&rig), rig.servers()), (vec![false], 2), "the pool is paused");
    let wrong = asked_for_console(&rig, "wrong");
    assert_eq!(rights(&rig), []);
    assert!(wrong.is_open(), "it waits for the end of the pause");
}

#[test]
fn a_password_that_the_server_refuses_to_weir_lets_no_other_client_in() {
    let rig = proving();
    let client = asked(&rig, "secret");
    judge(&rig);
    client.expect_welcome(&[]);
    client.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let other = asked(&rig, "secret");
    other.expect_welcome(&[]);
    other.send([query("select 1")]);
    refuse_password(&rig);
    assert!(other.is_open(), "it waits for the server that the pool has");
    let servers = rig.servers();
    asked(&rig, "secret");
    assert_eq!(rig.servers(), servers + 1, "the server is asked again");
}
