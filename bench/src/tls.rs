//! The client's end of TLS on a connection of the load generator: PostgreSQL's SSLRequest, the
//! handshake, then records. The pooler's certificate is not verified.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme,
};

/// SSLRequest (protocol chapter 55.7): its length and its code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The TLS settings of all clients of a run.
#[derive(Debug, Clone)]
pub(crate) struct TlsContext(Arc<ClientConfig>);

impl TlsContext {
    /// Creates the settings. With `resumes`, clients resume a session if the pooler has given them
    /// a ticket for it.
    pub(crate) fn new(resumes: bool) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        if !resumes {
            config.resumption = Resumption::disabled();
        }
        Ok(Self(Arc::new(config)))
    }
}

/// The client's end of one TLS connection.
#[derive(Debug)]
pub(crate) struct TlsEnd {
    context: TlsContext,
    /// None until the pooler has agreed to TLS.
    session: Option<Box<ClientConnection>>,
}

impl TlsEnd {
    /// Creates the end and appends the SSLRequest to `wire`.
    pub(crate) fn begin(context: &TlsContext, wire: &mut Vec<u8>) -> Self {
        wire.extend_from_slice(&SSL_REQUEST);
        Self { context: context.clone(), session: None }
    }

    /// Handles received bytes and appends the decrypted ones to `plain`. Returns true if a
    /// handshake that resumed an earlier session has just ended.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<bool> {
        let session = match &mut self.session {
            Some(session) => session,
            None => {
                ensure!(bytes.first() == Some(&b'S'), "the pooler has no TLS");
                bytes = &bytes[1..];
                let name = ServerName::try_from("localhost").context("a name")?;
                let session = ClientConnection::new(self.context.0.clone(), name)?;
                self.session.insert(Box::new(session))
            }
        };
        let was_handshaking = session.is_handshaking();
        while !bytes.is_empty() {
            ensure!(session.read_tls(&mut bytes)? > 0, "the TLS session is over");
            let state = session.process_new_packets()?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            session.reader().read_exact(&mut plain[before..])?;
        }
        let made = was_handshaking && !session.is_handshaking();
        Ok(made && session.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// Encrypts the bytes of `said` into `wire`, once the handshake is over.
    pub(crate) fn seal(&mut self, said: &mut Vec<u8>, wire: &mut Vec<u8>) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        if !session.is_handshaking() && !said.is_empty() {
            session.writer().write_all(said)?;
            said.clear();
        }
        while session.wants_write() {
            if session.write_tls(wire)? == 0 {
                bail!("the TLS session takes nothing");
            }
        }
        Ok(())
    }
}

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
