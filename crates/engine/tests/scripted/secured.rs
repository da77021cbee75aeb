//! TLS of clients. The shell does the handshake. The engine decides when it begins, and which
//! clients need it.

use std::sync::Arc;

use config::{Config, SslMode};
use engine::auth::{Peer, Secured};
use engine::shell::TlsStart;

use crate::messages::*;
use crate::rig::{Client, Rig};

fn offering(mode: SslMode) -> Rig {
    Rig::new(|config: &mut Config| config.global.client_tls_sslmode = mode)
}

/// A client whose handshake is over.
fn secured(rig: &Rig) -> Client {
    let secured = Some(Arc::new(Secured::default()));
    rig.connect_from(0, Peer { secured, ..Peer::default() })
}

fn ssl_request() -> Message {
    let mut out = Vec::new();
    wire::frontend::ssl_request(&mut out);
    out
}

#[test]
fn a_client_that_asks_for_tls_may_begin() {
    let rig = offering(SslMode::Allow);
    let client = rig.connect();
    client.send([ssl_request()]);
    client.expect([b"S".to_vec()]);
    assert_eq!(rig.handshakes(), [TlsStart::Asked]);
    assert_eq!(rig.clients_in_tables(), 0);
}

#[test]
fn a_client_that_begins_tls_directly_is_understood() {
    let rig = offering(SslMode::Allow);
    let client = rig.connect();
    client.send([vec![0x16, 3, 1, 0, 5, 1]]);
    client.expect([]);
    assert_eq!(rig.handshakes(), [TlsStart::Direct(vec![0x16, 3, 1, 0, 5, 1])]);
}

#[test]
fn it_is_not_for_unix_sockets_and_not_without_a_certificate() {
    let rig = offering(SslMode::Allow);
    let local = rig.connect_from(0, Peer { local: true, ..Peer::default() });
    local.send([ssl_request()]);
    local.expect([b"N".to_vec()]);
    let client = offering(SslMode::Disable).connect();
    client.send([ssl_request()]);
    client.expect([b"N".to_vec()]);
}

#[test]
fn bytes_slipped_in_before_the_handshake_are_rejected() {
    let client = offering(SslMode::Allow).connect();
    client.send([[ssl_request(), startup(&[("user", "alice")])].concat()]);
    client.expect_fatal("received unencrypted data after SSL request");
}

#[test]
fn no_transaction_begins_twice() {
    let client = secured(&offering(SslMode::Allow));
    client.send([ssl_request()]);
    client.expect_fatal("SSL req inside SSL");
}

#[test]
fn required_tls_refuses_clients_without_it() {
    for mode in [SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull] {
        let rig = offering(mode);
        let client = rig.connect();
        client.say_hello(&[]);
        client.expect_fatal("SSL required");
        let client = secured(&rig);
        client.say_hello(&[]);
        client.expect_welcome(&[]);
        let local = rig.connect_from(0, Peer { local: true, ..Peer::default() });
        local.say_hello(&[]);
        local.expect_welcome(&[]);
    }
}
