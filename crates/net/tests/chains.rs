//! Weir's own handshakes with clients and servers whose certificates are those of the table of
//! `x509`. Each end must say what OpenSSL says about the chain.

#![allow(unused_crate_dependencies)]

extern crate x509 as weir_x509;

#[path = "../../x509/tests/verdicts/chains.rs"]
mod chains;
#[expect(dead_code, reason = "the tests of x509 need more of it")]
#[path = "../../x509/tests/verdicts/openssl.rs"]
mod openssl;

use std::sync::Arc;

use config::{Global, SslMode};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use weir_net::tls::{ForClients, ForServers, Progress, Standing, Tls};
use weir_x509::{Certificate, Host};

use chains::CHAINS;
use openssl::{Made, Workshop};

/// Hosts for which some of the table's certificates are.
const HOSTS: [&str; 6] = ["leaf", "own", "end", "a.example", "a.test", "app"];

/// A client that accepts any server.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// Returns the peer's chain with its key; nothing if rustls cannot sign with such a key.
fn identity(made: &Made) -> Option<Arc<SingleCertAndKey>> {
    let key = PrivateKeyDer::from_pem_file(made.key()).expect("OpenSSL made it");
    let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).ok()?;
    let ders = std::iter::once(&made.own_der).chain(&made.sent);
    let chain = ders.map(|der| CertificateDer::from(der.clone())).collect();
    Some(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
}

/// Returns Weir's verdict about its peer.
fn shake_hands(mut weir: Tls, mut peer: Tls) -> Result<(), Error> {
    let mut progress = Progress::default();
    let (mut to_weir, mut to_peer) = (Vec::new(), Vec::new());
    // The client begins; for the other end, this does nothing.
    for (end, out) in [(&mut weir, &mut to_peer), (&mut peer, &mut to_weir)] {
        end.receive(&mut [], &mut progress)?;
        out.append(&mut progress.reply);
    }
    loop {
        let standing = weir.receive(&mut to_weir, &mut progress)?;
        to_weir.clear();
        to_peer.append(&mut progress.reply);
        if standing == Standing::Open {
            return Ok(());
        }
        assert!(!to_peer.is_empty(), "both ends wait");
        peer.receive(&mut to_peer, &mut progress).expect("the peer accepts Weir");
        to_peer.clear();
        to_weir.append(&mut progress.reply);
    }
}

/// Does Weir let in a client with this certificate?
fn lets_in(weir: &Made, made: &Made, own: Arc<SingleCertAndKey>) -> bool {
    let global = Global {
        client_tls_sslmode: SslMode::VerifyFull,
        client_tls_ca_file: made.trusted_file().display().to_string(),
        client_tls_cert_file: weir.own_file().display().to_string(),
        client_tls_key_file: weir.key().display().to_string(),
        server_tls_sslmode: SslMode::Disable,
        ..Global::default()
    };
    let clients = ForClients::load(&global).expect("the files are good");
    let weir =
        Tls::accept(clients.expect("it was asked for").config).expect("a plain configuration");
    let peer = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("a plain configuration")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_cert_resolver(own);
    let name = ServerName::try_from("weir").expect("a plain configuration");
    shake_hands(weir, Tls::connect(peer.into(), name).expect("a plain configuration")).is_ok()
}

/// Does Weir accept a server with this certificate, under `verify-full` where it is for a host?
fn connects(made: &Made, own: Arc<SingleCertAndKey>) -> bool {
    let certificate = Certificate::read(&made.own_der).expect("OpenSSL made it");
    let host = HOSTS.into_iter().find(|host| certificate.is_for(Host::Name(host)));
    let global = Global {
        server_tls_sslmode: if host.is_some() { SslMode::VerifyFull } else { SslMode::VerifyCa },
        server_tls_ca_file: made.trusted_file().display().to_string(),
        ..Global::default()
    };
    let config = ForServers::load(&global.server_tls()).expect("the files are good").config;
    let name = ServerName::try_from(host.unwrap_or("any")).expect("a plain configuration");
    let peer = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("a plain configuration")
        .with_no_client_auth()
        .with_cert_resolver(own);
    shake_hands(
        Tls::connect(config, name).expect("a plain configuration"),
        Tls::accept(peer.into()).expect("a plain configuration"),
    )
    .is_ok()
}

/// Returns the lines about which a handshake and the table disagree, and those that were not played.
fn play(chains: &[(&str, &str)], folder: &str) -> (Vec<String>, Vec<String>) {
    let weirs_own = Workshop::new(&format!("{folder}-weir"));
    let weir = weirs_own.make("weir");
    let workshop = Workshop::new(folder);
    let (mut wrong, mut left_out) = (Vec::new(), Vec::new());
    for (verdict, line) in chains {
        let made = workshop.make(line);
        let Some(own) = identity(&made) else {
            left_out.push((*line).to_owned());
            continue;
        };
        let found = [("client", 'C', lets_in(&weir, &made, own.clone()))];
        for (peer, letter, is_good) in
            found.into_iter().chain([("server", 'S', connects(&made, own))])
        {
            if is_good != verdict.contains(letter) {
                wrong.push(format!("{line}\n  {peer}: {verdict}, {is_good}"));
            }
        }
    }
    (wrong, left_out)
}

/// In the modes that judge no certificate, logins are bound to it. So the server must own its key.
#[test]
fn a_server_must_own_the_key_of_its_certificate_in_any_mode() {
    let workshop = Workshop::new("owner");
    let [strong, weak, other] =
        ["strong key=rsa2048", "weak key=rsa1024", "other key=rsa2048"].map(|it| workshop.make(it));
    let key = || {
        let key = PrivateKeyDer::from_pem_file(other.key()).expect("OpenSSL made it");
        aws_lc_rs::default_provider().key_provider.load_private_key(key).expect("a common key")
    };
    let global = Global { server_tls_sslmode: SslMode::Require, ..Global::default() };
    let config = ForServers::load(&global.server_tls()).expect("no files").config;
    // No library checks what a short key has signed (SECURITY.md).
    for (shown, is_reached) in [(&strong, false), (&weak, true), (&other, true)] {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let chain = vec![CertificateDer::from(shown.own_der.clone())];
            let own = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key())));
            let peer = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
                .with_protocol_versions(&[version])
                .expect("a plain configuration")
                .with_no_client_auth()
                .with_cert_resolver(own);
            let name = ServerName::try_from("any").expect("a name");
            let weir = Tls::connect(config.clone(), name).expect("a plain configuration");
            let peer = Tls::accept(peer.into()).expect("a plain configuration");
            let found = shake_hands(weir, peer);
            assert_eq!(found.is_ok(), is_reached, "{version:?}: {found:?}");
        }
    }
}

#[test]
fn each_handshake_ends_as_openssl_judges_the_chain() {
    // OpenSSL takes most of the time.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<_> = std::thread::scope(|scope| {
        let parts = CHAINS.chunks(CHAINS.len().div_ceil(threads)).enumerate();
        let parts: Vec<_> = parts
            .map(|(at, part)| scope.spawn(move || play(part, &format!("hands{at}"))))
            .collect();
        parts.into_iter().map(|part| part.join().expect("openssl works")).collect()
    });
    let (wrong, left_out): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let (wrong, left_out) = (wrong.concat(), left_out.concat());
    assert!(wrong.is_empty(), "{} handshakes differ:\n{}", wrong.len(), wrong.join("\n"));
    // rustls makes no signatures with these. The end-to-end tests have PostgreSQL do that.
    let cannot = ["key=rsa1024", "key=pss"];
    assert!(left_out.len() < 6, "{left_out:?}");
    assert!(
        left_out.iter().all(|line| cannot.iter().any(|key| line.contains(key))),
        "{left_out:?}"
    );
}
