//! SCRAM with channel binding: which clients are offered it, and when Weir uses it towards a
//! server.

use std::sync::Arc;

use config::{AuthType, SslMode};
use engine::auth::{Peer, Secured};
use wire::backend;
use wire::frontend;
use wire::messages::SaslInitialResponse;
use wire::scram::{ChannelEnd, MECHANISM, MECHANISM_PLUS, ScramClient, ScramSecret};

use crate::messages::*;
use crate::rig::{Client, Rig};

fn digest() -> Arc<[u8]> {
    [7; 32].into()
}

fn rig() -> Rig {
    Rig::new(|config| {
        config.global.auth_type = AuthType::ScramSha256;
        config.auth_file.users.insert("alice".into(), "secret".into());
    })
}

/// A client behind TLS whose certificate has this digest. It has been asked for its mechanism.
fn asked(rig: &Rig, end_point: Arc<[u8]>, offered: &str) -> Client {
    let secured = Some(Arc::new(Secured { end_point, ..Secured::default() }));
    let client = rig.connect_from(0, Peer { secured, ..Peer::default() });
    client.say_hello(&[]);
    let asked = client.take();
    assert_eq!(String::from_utf8_lossy(&asked[9..]), offered);
    client
}

fn say_first(client: &Client, mechanism: &str, first: &[u8]) {
    let mut initial = Vec::new();
    frontend::sasl_initial(&mut initial, mechanism, first);
    client.send([initial]);
}

#[test]
fn it_is_offered_where_a_certificate_can_be_bound_to() {
    let rig = rig();
    asked(&rig, [].into(), "SCRAM-SHA-256\0\0");
    let client = asked(&rig, digest(), "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let mut scram = ScramClient::new(ScramSecret::Password(b"secret".into()), [5; 18])
        .bound_to(&digest(), true);
    say_first(&client, MECHANISM_PLUS, &scram.first());
    let challenge = client.take();
    let mut answer = Vec::new();
    let proof = scram.server_first(&challenge[9..]).expect("a challenge");
    frontend::sasl_response(&mut answer, &proof);
    client.send([answer]);
    let end = client.take();
    assert!(end.starts_with(b"R\0\0\0\x36\0\0\0\x0c"), "{}", show(&end).join("; "));
}

#[test]
fn a_client_that_saw_no_offer_or_another_certificate_is_refused() {
    let rig = rig();
    let offer = "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    let client = asked(&rig, digest(), offer);
    say_first(&client, MECHANISM, b"y,,n=,r=abc");
    client.expect_fatal("SCRAM channel binding negotiation error");

    let client = asked(&rig, digest(), offer);
    let elsewhere: Arc<[u8]> = [8; 32].into();
    let mut scram = ScramClient::new(ScramSecret::Password(b"secret".into()), [5; 18])
        .bound_to(&elsewhere, true);
    say_first(&client, MECHANISM_PLUS, &scram.first());
    let mut answer = Vec::new();
    let proof = scram.server_first(&client.take()[9..]).expect("a challenge");
    frontend::sasl_response(&mut answer, &proof);
    client.send([answer]);
    client.expect_fatal("SCRAM channel binding check failed");
}

#[test]
fn towards_a_server_it_is_used_where_both_can() {
    use ChannelEnd::{Digest, NoDigest, Plain};
    use SslMode::{Require, VerifyCa, VerifyFull};
    let both = &[MECHANISM_PLUS, MECHANISM][..];
    for (end, mode, offers, begins) in [
        (Digest(digest()), Require, both, Some("p=tls-server-end-point,,")),
        (Digest(digest()), Require, &[MECHANISM], Some("y,,")),
        (Plain, Require, both, Some("n,,")),
        // An attacker may have chosen such a certificate.
        (NoDigest, Require, both, None),
        (NoDigest, VerifyCa, both, None),
        (NoDigest, Require, &[MECHANISM], Some("y,,")),
        (NoDigest, VerifyFull, both, Some("n,,")),
    ] {
        let rig = Rig::new(|config| {
            config.global.auth_type = AuthType::Trust;
            config.global.server_tls_sslmode = mode;
            config.auth_file.users.insert("alice".into(), "secret".into());
        })
        .manual();
        rig.set_server_end(end);
        let client = rig.connect();
        client.say_hello(&[]);
        let server = rig.server(0);
        server.connect();
        server.take();
        let mut out = Vec::new();
        backend::authentication_sasl(&mut out, offers);
        server.send([out]);
        let Some(begins) = begins else {
            assert!(!server.is_open());
            continue;
        };
        let said = server.take();
        let initial = SaslInitialResponse::decode(&said[5..]).expect("a first message");
        assert!(initial.data.starts_with(begins.as_bytes()), "{}", said.escape_ascii());
        let bound = initial.mechanism == MECHANISM_PLUS.as_bytes();
        assert_eq!(bound, begins.starts_with('p'));
    }
}
