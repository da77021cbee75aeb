//! Is the other end the server it should be? By libpq's words: `verify-ca` asks for a certificate
//! from a known authority, `verify-full` also for the right name, the modes below for neither.

use std::{sync::Arc, time::SystemTime};

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::certificate;

#[derive(Debug)]
pub(super) struct ServerVerifier {
    /// None: whoever it is will do.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates trusted by themselves, whatever they may be used for: a server's own
    /// self-signed one is a usual content of `server_tls_ca_file`.
    trusted: Vec<CertificateDer<'static>>,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerVerifier {
    /// Without trusted certificates nothing is checked.
    pub(super) fn new(
        trusted: Vec<CertificateDer<'static>>,
        checks_name: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let chain = if trusted.is_empty() {
            None
        } else {
            let mut roots = RootCertStore::empty();
            for certificate in &trusted {
                roots.add(certificate.clone()).map_err(|error| error.to_string())?;
            }
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            Some(verifier.build().map_err(|error| error.to_string())?)
        };
        Ok(Self { chain, trusted, checks_name, provider: provider.clone() })
    }

    /// A certificate that is trusted itself needs no chain, but its dates count, and its name.
    fn verify_trusted(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
    ) -> Result<ServerCertVerified, Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if !certificate::is_within_its_dates(own, now.as_secs().cast_signed()) {
            return Err(CertificateError::Expired.into());
        }
        if self.checks_name {
            verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.trusted.iter().any(|trusted| trusted == own) {
            return self.verify_trusted(own, name);
        }
        // The name is looked at last, when all else is in order.
        match chain.verify_server_cert(own, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, own, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, own, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
