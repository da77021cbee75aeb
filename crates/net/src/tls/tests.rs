//! Two ends in memory.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, DEFAULT_VERSIONS, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    version::{TLS12, TLS13},
};
use x509::{Anchors, Certificate};

use super::{
    Progress, Standing,
    session::Tls,
    verify::{ClientVerifier, ServerVerifier},
};

fn anchors(trusted: &CertificateDer<'_>) -> Anchors {
    Anchors::new(vec![Certificate::read(trusted).unwrap()])
}

/// Accepts only this server, by its name.
fn only(trusted: &CertificateDer<'_>) -> Arc<ServerVerifier> {
    Arc::new(ServerVerifier { anchors: Some(anchors(trusted)), checks_name: true })
}

/// The server has a certificate for `localhost`, signed by itself.
fn ends() -> (Tls, Tls) {
    ends_with(ring::default_provider(), DEFAULT_VERSIONS)
}

fn ends_with(
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> (Tls, Tls) {
    let provider = Arc::new(provider);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = vec![own.cert.der().clone()];
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.clone(), key)
        .unwrap();
    server.max_fragment_size = Some(super::session::RECORD_LEN);
    let verifier = only(&chain[0]);
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    (Tls::accept(server.into()).unwrap(), Tls::connect(client.into(), name).unwrap())
}

/// Transfers bytes in pieces of `len` until both ends are open.
fn shake_hands(len: usize) -> (Tls, Tls) {
    introduce(ends(), len)
}

fn introduce((mut server, mut client): (Tls, Tls), len: usize) -> (Tls, Tls) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut standing = [Standing::Handshaking; 2];
    let mut progress = Progress::default();
    standing[1] = client.receive(&mut [], &mut progress).unwrap();
    to_server.append(&mut progress.reply);
    while !to_server.is_empty() || !to_client.is_empty() {
        let ends = [(&mut server, &mut to_server), (&mut client, &mut to_client)];
        let mut replies = [Vec::new(), Vec::new()];
        for (at, (end, incoming)) in ends.into_iter().enumerate() {
            if !incoming.is_empty() {
                let mut piece: Vec<u8> = incoming.drain(..len.min(incoming.len())).collect();
                standing[at] = end.receive(&mut piece, &mut progress).unwrap();
                replies[at].append(&mut progress.reply);
            }
        }
        let [from_server, from_client] = replies;
        to_client.extend(from_server);
        to_server.extend(from_client);
    }
    assert_eq!(standing, [Standing::Open; 2]);
    (server, client)
}

#[test]
fn bytes_arrive_whatever_the_pieces() {
    for len in [1, 7, 1000, 100_000] {
        let (mut server, mut client) = shake_hands(len);
        let all: Vec<u8> = (0..40_000u32).map(|n| (n % 251) as u8).collect();
        for _ in 0..2 {
            let mut records = Vec::new();
            server.send(&all, &mut records).unwrap();
            let mut progress = Progress::default();
            for piece in records.chunks_mut(len) {
                assert_eq!(client.receive(piece, &mut progress).unwrap(), Standing::Open);
            }
            assert!(progress.plain == all, "bytes were lost, doubled or moved");
            // And in the other direction.
            std::mem::swap(&mut server, &mut client);
        }
    }
}

#[test]
fn records_are_short_enough_for_older_clients() {
    let (mut server, _client) = shake_hands(100_000);
    let mut records = Vec::new();
    server.send(&[0; 100_000], &mut records).unwrap();
    let mut rest = records.as_slice();
    while let [_, _, _, high, low, behind @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(len <= 8192 + 64, "a record of {len} bytes");
        rest = &behind[len..];
    }
}

#[test]
fn the_end_is_told() {
    let (mut server, mut client) = shake_hands(100_000);
    let mut records = Vec::new();
    server.send(b"last", &mut records).unwrap();
    server.close(&mut records).unwrap();
    let mut progress = Progress::default();
    assert_eq!(client.receive(&mut records, &mut progress).unwrap(), Standing::PeerClosed);
    assert_eq!(progress.plain, b"last");
}

#[test]
fn how_long_contents_are_is_seen_without_opening_them() {
    for version in [&TLS12, &TLS13] {
        for suite in ring::ALL_CIPHER_SUITES.iter().filter(|suite| suite.version() == version) {
            // The certificate's key decides which suites of TLS 1.2 can be used.
            if format!("{:?}", suite.suite()).contains("_RSA_") {
                continue;
            }
            let cipher_suites = vec![*suite];
            let provider = CryptoProvider { cipher_suites, ..ring::default_provider() };
            let (server, mut client) = introduce(ends_with(provider, &[version]), 100_000);
            let mut records = Vec::new();
            client.send(b"12345", &mut records).unwrap();
            client.close(&mut records).unwrap();
            let lens = server.content_lens(&records);
            assert_eq!(lens.as_deref(), Some(&[5, 2][..]), "{suite:?}");
            assert_eq!(server.content_lens(&records[..records.len() - 1]), None);
            assert_eq!(server.content_lens(&[]), Some(Vec::new()));
        }
    }
}

#[test]
fn bytes_that_are_no_records_are_an_error_with_an_alert() {
    let (mut server, _) = ends();
    let mut progress = Progress::default();
    assert!(server.receive(&mut b"GET / HTTP/1.1\r\n\r\n".to_vec(), &mut progress).is_err());
    assert_eq!(progress.reply.first(), Some(&0x15), "an alert record");
}

/// Returns an end with an untrusted certificate, and one that requires a trusted one.
fn ends_that_disagree(refuses: Refuses) -> (Tls, Tls) {
    let provider = Arc::new(ring::default_provider());
    let certificate = |name: &str| {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        (vec![own.cert.der().clone()], key)
    };
    let ((server_chain, server_key), (client_chain, client_key)) =
        (certificate("localhost"), certificate("alice"));
    let (stranger, _) = certificate("stranger");
    let demanding = Arc::new(ClientVerifier::new(anchors(&stranger[0]), true));
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(DEFAULT_VERSIONS)
        .unwrap()
        .with_client_cert_verifier(demanding)
        .with_single_cert(server_chain.clone(), server_key)
        .unwrap();
    let trusted = if refuses == Refuses::Client { stranger } else { server_chain };
    let verifier = only(&trusted[0]);
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(DEFAULT_VERSIONS)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(client_chain, client_key)
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    (Tls::accept(server.into()).unwrap(), Tls::connect(client.into(), name).unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    Client,
    Server,
}

/// rustls sends a certificate and the next messages in one record, so a refused certificate is
/// followed by messages that are never read.
#[test]
fn a_certificate_that_is_refused_is_an_error_with_an_alert() {
    for refuses in [Refuses::Client, Refuses::Server] {
        for len in [1, 100, 100_000] {
            let (mut server, mut client) = ends_that_disagree(refuses);
            let mut progress = Progress::default();
            client.receive(&mut [], &mut progress).unwrap();
            let mut said = std::mem::take(&mut progress.reply);
            let (mut by_client, mut refused) = (true, None);
            while refused.is_none() && !said.is_empty() {
                let mut answer = Vec::new();
                let end = if by_client { &mut server } else { &mut client };
                for piece in said.chunks_mut(len) {
                    let taken = end.receive(piece, &mut progress);
                    answer.append(&mut progress.reply);
                    if taken.is_err() {
                        refused = Some(if by_client { Refuses::Server } else { Refuses::Client });
                        break;
                    }
                }
                said = answer;
                by_client = !by_client;
            }
            assert_eq!(refused, Some(refuses), "pieces of {len}");
            assert!(!said.is_empty(), "the other end is told");
        }
    }
}

/// Returns a function that connects clients with a certificate that is valid from 2020 to 2119.
/// They resume their session if they can.
fn regulars(version: &'static SupportedProtocolVersion) -> impl FnMut() -> (Tls, Tls) {
    let signer = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&signer).unwrap();
    let issuer = Issuer::new(params, signer);
    let issued = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2120, 1, 1);
        let own = params.signed_by(&key, &issuer).unwrap();
        (vec![own.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    };
    let provider = Arc::new(ring::default_provider());
    let verifier = ClientVerifier::new(anchors(authority.der()), true);
    let (chain, key) = issued("localhost");
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .unwrap();
    server.ticketer = ring::Ticketer::new().unwrap();
    let (chain, key) = issued("alice");
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(only(authority.der()))
        .with_client_auth_cert(chain, key)
        .unwrap();
    let (server, client) = (Arc::new(server), Arc::new(client));
    move || {
        let name = ServerName::try_from("localhost").unwrap();
        let ends = (Tls::accept(server.clone()), Tls::connect(client.clone(), name));
        introduce((ends.0.unwrap(), ends.1.unwrap()), 100_000)
    }
}

#[test]
fn an_expired_certificate_is_refused_even_in_a_resumed_session() {
    const IN_2026: i64 = 1_767_225_600;
    const IN_2120: i64 = 4_733_510_400;
    for version in [&TLS12, &TLS13] {
        let mut meet = regulars(version);
        let ((first, _), (again, _)) = (meet(), meet());
        assert!(!first.is_resumed() && again.is_resumed(), "{version:?}");
        let who = |at| again.peer_names(at);
        let names = who(IN_2026).unwrap();
        assert_eq!((names.common_name.as_deref(), &*names.dns_names[0]), (Some("alice"), "alice"));
        assert_eq!(who(IN_2120 + 1).unwrap_err(), "TLS client certificate has expired");
    }
}

#[test]
fn a_session_is_described_as_pgbouncer_does() {
    let (server, _client) = shake_hands(100_000);
    assert_eq!(server.describe(), "TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519");
}
