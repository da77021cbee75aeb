//! Weir's stored password does not fit the server's method, or has changed. Clients are told at
//! once.

use config::AuthType;
use engine::pool::Pool;
use wire::{backend, md5};

use crate::asking::found;
use crate::messages::*;
use crate::rig::{Client, Rig, Server, app, server_welcome};

const WRONG_TYPE: &str = "server login failed: wrong password type";
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
                        $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=\
                        :wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn asks_for_cleartext() -> Message {
    b"R\0\0\0\x08\0\0\0\x03".to_vec()
}

fn asks_for_md5() -> Message {
    b"R\0\0\0\x0c\0\0\0\x05salt".to_vec()
}

fn asks_for_scram() -> Message {
    let mut out = Vec::new();
    backend::authentication_sasl(&mut out, &["SCRAM-SHA-256"]);
    out
}

/// A client that logs in without a password, and the server that is opened for it.
fn logging_in(stored: &str) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.auth_file.users.insert("alice".into(), stored.into());
    })
    .manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.take();
    (rig, client, server)
}

#[test]
fn a_secret_of_another_type_is_told_at_once() {
    let hash = md5::hash(b"alice", b"secret");
    for (stored, request, why) in [
        (hash.as_str(), asks_for_scram(), "SCRAM authentication: wrong password type"),
        (hash.as_str(), asks_for_cleartext(), "cleartext authentication: wrong password type"),
        (VERIFIER, asks_for_md5(), "MD5 authentication: wrong password type"),
        (VERIFIER, asks_for_scram(), "SCRAM authentication: password is SCRAM secret but client"),
        (VERIFIER, asks_for_cleartext(), "cleartext authentication: wrong password type"),
    ] {
        let (rig, client, server) = logging_in(stored);
        server.send([request]);
        server.expect([]);
        assert!(!server.is_open());
        client.expect_fatal(WRONG_TYPE);
        assert!(rig.logged(&format!("cannot do {why}")), "{why}");
    }
}

/// With `auth_query` as well, Weir makes no proof from a password that it does not have.
#[test]
fn a_verifier_that_was_asked_for_is_no_password() {
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::Trust;
        config.global.auth_user = Some("asker".into());
        config.global.auth_query = "SELECT name, secret FROM lookup($1)".into();
    })
    .manual();
    let client = rig.connect();
    client.say_hello_as("bob", "app");
    let asked = rig.server(0);
    asked.connect();
    asked.take();
    asked.send([server_welcome(0)]);
    asked.take();
    asked.send(found(&[Some("bob"), Some(VERIFIER)]));
    let server = rig.server(1);
    server.connect();
    server.take();
    server.send([asks_for_scram()]);
    server.expect([]);
    client.expect_fatal(WRONG_TYPE);
}

/// Servers that are to be replaced serve no new client, so clients do not wait for them.
#[test]
fn a_changed_password_is_reported_at_once_after_a_reconnect() {
    let rig = Rig::transaction();
    let (busy, other) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    busy.take();
    rig.order(Pool::replace_servers);
    rig.set_automatic(false);
    other.send([query("other")]);
    rig.server(1).connect();
    let refusal = fatal("28P01", "password authentication failed for user \"alice\"");
    rig.server(1).send([refusal.clone()]);
    other.expect([refusal]);
    let later = rig.connect();
    later.say_hello(&[]);
    later.expect_fatal(
        "server login has been failing, cached error: password authentication failed for user \
         \"alice\" (server_login_retry)",
    );
    assert!(busy.is_open());
}

#[test]
fn a_password_without_a_user_has_no_effect() {
    let rig = Rig::new(|config| app(config).password = Some("other".into())).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([asks_for_cleartext()]);
    // The password of `auth_file`.
    server.expect([password("secret")]);
}
