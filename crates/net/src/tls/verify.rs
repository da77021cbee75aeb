//! Verifies the other end. [`x509`] judges certificates as OpenSSL does; this file connects it to
//! rustls, for servers and for clients.
//!
//! Servers, in libpq's terms: `verify-ca` requires a certificate of a known authority,
//! `verify-full` also the right name, and lower modes neither.

use std::{net::IpAddr, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use x509::{Anchors, Certificate, Curve, Hash, Host, Key, Malformed, Purpose, Refusal, Scheme};

/// The signature schemes that peers may use in handshakes, the preferred ones first.
const SCHEMES: [SignatureScheme; 13] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    OF_PSS_KEYS[2].0,
    OF_PSS_KEYS[1].0,
    OF_PSS_KEYS[0].0,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// PSS with a key that is for PSS only (`rsa_pss_pss_…` of RFC 8446). rustls has no names for these and
/// knows them in TLS 1.3 only.
const OF_PSS_KEYS: [(SignatureScheme, Hash); 3] = [
    (SignatureScheme::Unknown(0x0809), Hash::Sha256),
    (SignatureScheme::Unknown(0x080a), Hash::Sha384),
    (SignatureScheme::Unknown(0x080b), Hash::Sha512),
];

/// The reasons for which TLS has alerts of their own.
const WITH_ALERTS: [(Refusal, CertificateError); 6] = [
    (Refusal::Expired, CertificateError::Expired),
    (Refusal::NotYetValid, CertificateError::NotValidYet),
    (Refusal::UnknownIssuer, CertificateError::UnknownIssuer),
    (Refusal::Purpose, CertificateError::InvalidPurpose),
    (Refusal::Signature, CertificateError::BadSignature),
    (Refusal::CriticalExtension, CertificateError::UnhandledCriticalExtension),
];

/// Judges the certificates of servers.
#[derive(Debug)]
pub struct ServerVerifier {
    /// `None`: every certificate is accepted.
    pub anchors: Option<Anchors>,
    pub checks_name: bool,
}

/// Judges the certificates of clients.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    anchors: Anchors,
    /// The authorities' names, by which a client selects one of its certificates.
    hints: Vec<DistinguishedName>,
    /// Must a client show a certificate?
    is_mandatory: bool,
}

impl ClientVerifier {
    pub(crate) fn new(anchors: Anchors, is_mandatory: bool) -> Self {
        let subjects = anchors.iter().map(|anchor| anchor.subject_der().to_vec());
        let hints = subjects.map(DistinguishedName::from).collect();
        Self { anchors, hints, is_mandatory }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(anchors) = &self.anchors else { return Ok(ServerCertVerified::assertion()) };
        let own = verify(anchors, own, others, Purpose::Server, now)?;
        if self.checks_name && !is_for(&own, name) {
            let (expected, presented) = (name.to_owned(), Vec::new());
            return Err(CertificateError::NotValidForNameContext { expected, presented }.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.accepts_unproven(own)? {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.accepts_unproven(own)? {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

impl ServerVerifier {
    /// Is the server's signature not verified? The library verifies none by a short RSA key. Then an
    /// attacker can show the certificate of such a server, and channel binding does not detect it.
    fn accepts_unproven(&self, own: &CertificateDer<'_>) -> Result<bool, Error> {
        Ok(self.anchors.is_none() && read(own)?.key().is_some_and(|key| !key.is_strong()))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify(&self.anchors, own, others, Purpose::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

/// Returns the authorities that the system trusts.
pub fn system_anchors() -> Anchors {
    let found = rustls_native_certs::load_native_certs().certs;
    Anchors::new(found.iter().filter_map(|der| Certificate::read(der).ok()).collect())
}

/// Returns why a TLS connection failed. A refused certificate is described in OpenSSL's words.
pub fn reason(error: &Error) -> String {
    let Error::InvalidCertificate(certificate) = error else { return error.to_string() };
    let refusal = match certificate {
        CertificateError::NotValidForNameContext { expected, .. } => {
            format!("name {:?} not present in server certificate", expected.to_str())
        }
        CertificateError::Other(refusal) => refusal.0.to_string(),
        other => match WITH_ALERTS.iter().find(|(_, alert)| alert == other) {
            Some((refusal, _)) => refusal.to_string(),
            None => other.to_string(),
        },
    };
    format!("certificate verify failed: {refusal}")
}

fn verify(
    anchors: &Anchors,
    own: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    purpose: Purpose,
    now: UnixTime,
) -> Result<Certificate, Error> {
    let own = read(own)?;
    let others = others.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let verdict = anchors.verify(&own, &others, purpose, now.as_secs().cast_signed());
    verdict.map_err(refused)?;
    Ok(own)
}

fn read(der: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::read(der).map_err(|Malformed| CertificateError::BadEncoding.into())
}

/// Makes an error of a reason, with the reason's alert if TLS has one.
fn refused(refusal: Refusal) -> Error {
    let alert = WITH_ALERTS.into_iter().find(|(known, _)| *known == refusal);
    let other = || CertificateError::Other(OtherError(Arc::new(refusal)));
    alert.map_or_else(other, |(_, alert)| alert).into()
}

fn is_for(own: &Certificate, name: &ServerName<'_>) -> bool {
    match name {
        ServerName::DnsName(name) => own.is_for(Host::Name(name.as_ref())),
        ServerName::IpAddress(address) => own.is_for(Host::Address(IpAddr::from(*address))),
        _ => false,
    }
}

/// In TLS 1.2 any curve may be used with any hash.
fn verify_tls12(
    message: &[u8],
    own: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    check(message, &read(own)?, signed, |_| true)
}

/// In TLS 1.3 the hash belongs to the curve, and RSA signs by PSS only.
fn verify_tls13(
    message: &[u8],
    own: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let own = read(own)?;
    check(message, &own, signed, |scheme| match (own.key(), scheme) {
        (Some(Key::Ecdsa(curve, _)), Scheme::Ecdsa(hash)) => matches!(
            (curve, hash),
            (Curve::P256, Hash::Sha256) | (Curve::P384, Hash::Sha384) | (Curve::P521, Hash::Sha512)
        ),
        (_, Scheme::RsaPkcs1(_)) => false,
        _ => true,
    })
}

fn check(
    message: &[u8],
    own: &Certificate,
    signed: &DigitallySignedStruct,
    is_allowed: impl Fn(Scheme) -> bool,
) -> Result<HandshakeSignatureValid, Error> {
    // A key for PSS only has schemes of its own.
    let is_pss_only = matches!(own.key(), Some(Key::RsaPss(..)));
    let is_right =
        |scheme: &Scheme| is_allowed(*scheme) && is_of_pss_keys(signed.scheme) == is_pss_only;
    let scheme = scheme(signed.scheme).filter(is_right);
    let is_good = scheme
        .zip(own.key())
        .is_some_and(|(scheme, key)| key.verify(scheme, message, signed.signature()));
    match is_good {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

fn is_of_pss_keys(scheme: SignatureScheme) -> bool {
    OF_PSS_KEYS.iter().any(|(known, _)| *known == scheme)
}

fn scheme(scheme: SignatureScheme) -> Option<Scheme> {
    if let Some((_, hash)) = OF_PSS_KEYS.iter().find(|(known, _)| *known == scheme) {
        return Some(Scheme::RsaPss(*hash));
    }
    Some(match scheme {
        SignatureScheme::ECDSA_NISTP256_SHA256 => Scheme::Ecdsa(Hash::Sha256),
        SignatureScheme::ECDSA_NISTP384_SHA384 => Scheme::Ecdsa(Hash::Sha384),
        SignatureScheme::ECDSA_NISTP521_SHA512 => Scheme::Ecdsa(Hash::Sha512),
        SignatureScheme::ED25519 => Scheme::Ed25519,
        SignatureScheme::RSA_PKCS1_SHA256 => Scheme::RsaPkcs1(Hash::Sha256),
        SignatureScheme::RSA_PKCS1_SHA384 => Scheme::RsaPkcs1(Hash::Sha384),
        SignatureScheme::RSA_PKCS1_SHA512 => Scheme::RsaPkcs1(Hash::Sha512),
        SignatureScheme::RSA_PSS_SHA256 => Scheme::RsaPss(Hash::Sha256),
        SignatureScheme::RSA_PSS_SHA384 => Scheme::RsaPss(Hash::Sha384),
        SignatureScheme::RSA_PSS_SHA512 => Scheme::RsaPss(Hash::Sha512),
        _ => return None,
    })
}
