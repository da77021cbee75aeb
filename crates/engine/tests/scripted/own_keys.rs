//! `user=` with a SCRAM verifier as `password=`: only the clients of this user have the keys.

use config::{AuthType, Config};
use engine::pool::Pool;

use crate::messages::*;
use crate::rig::{Client, Rig, Server, app, server_welcome};
use crate::scram::{challenge, prove, take_final, verifier};

const WRONG_TYPE: &str = "server login failed: wrong password type";

/// All clients of the database are alice for PostgreSQL. Alice's password is "secret", bob's is
/// "other".
fn forced(config: &mut Config) {
    config.global.auth_type = AuthType::ScramSha256;
    app(config).user = Some("alice".into());
    app(config).password = Some(verifier("secret").to_string());
    config.auth_file.users.insert("alice".into(), verifier("secret").to_string());
    config.auth_file.users.insert("bob".into(), verifier("other").to_string());
}

fn log_in(rig: &Rig, user: &str, secret: &str) -> Client {
    let client = rig.connect();
    client.say_hello_as(user, "app");
    prove(&client, secret);
    client
}

/// PostgreSQL asks for SCRAM and accepts.
fn accepts(rig: &Rig, at: usize) -> Server {
    let server = rig.server(at);
    server.connect();
    assert_eq!(challenge(&server, verifier("secret")), Ok(()));
    server
}

/// PostgreSQL asks for SCRAM, and Weir has no keys.
fn asks_in_vain(rig: &Rig, at: usize) {
    let server = rig.server(at);
    server.connect();
    server.take();
    let mut out = Vec::new();
    wire::backend::authentication_sasl(&mut out, &[wire::scram::MECHANISM]);
    server.send([out]);
    assert!(!server.is_open());
}

fn refused(client: &Client) {
    let told = client.take();
    let told = show(&told).join("; ");
    assert!(told.contains(WRONG_TYPE) && !client.is_open(), "{told}");
}

#[test]
fn the_users_own_proof_opens_servers_also_after_a_reconnect() {
    let rig = Rig::new(forced).manual();
    let alice = log_in(&rig, "alice", "secret");
    accepts(&rig, 0);
    take_final(&alice);
    rig.order(Pool::replace_servers);
    assert!(!rig.server(0).is_open());
    alice.send([query("one")]);
    accepts(&rig, 1).answers("one");
    alice.expect([done("OK")]);
}

#[test]
fn another_users_proof_is_none_of_this_user() {
    let rig = Rig::new(forced).manual();
    let bob = log_in(&rig, "bob", "other");
    asks_in_vain(&rig, 0);
    refused(&bob);
    let alice = log_in(&rig, "alice", "secret");
    accepts(&rig, 1);
    take_final(&alice);
}

/// Alice proves another password than that of the database's entry.
#[test]
fn a_proof_of_another_verifier_yields_no_keys() {
    let rig = Rig::new(|config| {
        forced(config);
        config.auth_file.users.insert("alice".into(), verifier("older").to_string());
    })
    .manual();
    let alice = log_in(&rig, "alice", "older");
    asks_in_vain(&rig, 0);
    refused(&alice);
}

#[test]
fn another_user_gets_no_server_that_the_keys_have_opened() {
    let rig = Rig::new(forced).manual();
    let alice = log_in(&rig, "alice", "secret");
    let server = accepts(&rig, 0);
    take_final(&alice);
    refused(&log_in(&rig, "bob", "other"));
    assert!(rig.logged("only clients that log in as"));
    alice.send([query("one")]);
    server.answers("one");
    alice.expect([done("OK")]);
    assert_eq!(rig.servers(), 1, "nor was one opened");
}

/// PostgreSQL asks for no password at first. Both users may use that server, but not the next one.
#[test]
fn a_client_that_was_there_before_gets_none_either() {
    for hands_over in [false, true] {
        let rig = Rig::new(forced).manual();
        let [bob, carol] = [(); 2].map(|()| {
            let client = log_in(&rig, "bob", "other");
            if rig.servers() == 1 && !rig.server(0).is_parked() {
                rig.server(0).connect();
                rig.server(0).send([server_welcome(0)]);
            }
            take_final(&client);
            client
        });
        let alice = log_in(&rig, "alice", "secret");
        take_final(&alice);
        bob.send([query("begin")]);
        rig.server(0).send([complete("BEGIN"), ready('T')]);
        bob.take();
        alice.send([query("one")]);
        accepts(&rig, 1).answers("one");
        alice.expect([done("OK")]);
        if hands_over {
            rig.hand_over();
        }
        carol.send([query("two")]);
        refused(&carol);
        refused(&log_in(&rig, "bob", "other"));
        assert!(bob.is_open() && rig.server(1).is_parked());
    }
}

#[test]
fn a_reload_with_the_password_itself_lets_others_in() {
    let rig = Rig::new(forced).manual();
    let alice = log_in(&rig, "alice", "secret");
    accepts(&rig, 0);
    take_final(&alice);
    rig.reload(|config| app(config).password = Some("secret".into()));
    assert!(!rig.server(0).is_open());
    let bob = log_in(&rig, "bob", "other");
    accepts(&rig, 1);
    take_final(&bob);
}

#[test]
fn with_any_name_nobody_is_that_user() {
    let rig = Rig::new(forced).manual();
    let alice = log_in(&rig, "alice", "secret");
    accepts(&rig, 0);
    take_final(&alice);
    rig.reload(|config| config.global.auth_type = AuthType::Any);
    let other = rig.connect();
    other.say_hello(&[]);
    refused(&other);
}

/// A replication client gets a server of its own.
#[test]
fn a_replication_client_of_another_user_has_no_keys() {
    let rig = Rig::new(forced).manual();
    let alice = log_in(&rig, "alice", "secret");
    asks_nothing(&rig, 0);
    take_final(&alice);
    let bob = rig.connect();
    bob.send([startup(&[("user", "bob"), ("database", "app"), ("replication", "database")])]);
    prove(&bob, "other");
    asks_in_vain(&rig, 1);
    refused(&bob);
}

fn asks_nothing(rig: &Rig, at: usize) {
    rig.server(at).connect();
    rig.server(at).send([server_welcome(at)]);
}
