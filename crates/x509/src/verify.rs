//! Checks whether a chain is valid for a purpose and a time.

use crate::{Anchors, Certificate, Purpose, chain::Chain, constraints};

/// Why a certificate is refused, in OpenSSL's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("certificate has expired")]
    Expired,
    #[error("certificate is not yet valid")]
    NotYetValid,
    #[error("unable to get issuer certificate")]
    UnknownIssuer,
    #[error("self-signed certificate")]
    SelfSigned,
    #[error("certificate chain too long")]
    TooLong,
    #[error("unhandled critical extension")]
    CriticalExtension,
    #[error("proxy certificates not allowed")]
    Proxy,
    #[error("invalid certificate")]
    Unsound,
    #[error("invalid CA certificate")]
    NotACa,
    #[error("unsuitable certificate purpose")]
    Purpose,
    #[error("path length constraint exceeded")]
    PathLength,
    #[error("key usage does not include certificate signing")]
    MayNotSign,
    #[error("certificate signature failure")]
    Signature,
    #[error("certificate key too weak, or of an unsupported kind")]
    Key,
    #[error("a CA does not permit a name of this certificate")]
    Constraint,
}

impl Anchors {
    /// Does this certificate lead to one of these anchors, and is it valid for this purpose now?
    /// `others` are the other certificates that the peer has sent.
    ///
    /// # Errors
    /// Returns the first reason for refusing it.
    pub fn verify(
        &self,
        own: &Certificate,
        others: &[Certificate],
        purpose: Purpose,
        now: i64,
    ) -> Result<(), Refusal> {
        if own.extensions.is_unsound {
            return Err(Refusal::Unsound);
        }
        let Chain(chain) = self.chain(own, others, now)?;
        check_extensions(&chain, purpose)?;
        if !chain.iter().all(|certificate| certificate.key().is_some_and(crate::Key::is_strong)) {
            return Err(Refusal::Key);
        }
        for certificate in &chain {
            check_dates(certificate, now)?;
        }
        // The cheap checks come first; the signature of the last certificate is not checked.
        for (certificate, issuer) in chain.iter().zip(chain.iter().skip(1)) {
            check_signature(certificate, issuer)?;
        }
        constraints::check(&chain)
    }
}

fn check_extensions(chain: &[&Certificate], purpose: Purpose) -> Result<(), Refusal> {
    // The number of CAs below, for path lengths.
    let mut below = 0;
    for (at, certificate) in chain.iter().enumerate() {
        let extensions = &certificate.extensions;
        if extensions.has_unknown_critical {
            return Err(Refusal::CriticalExtension);
        }
        if extensions.is_proxy {
            return Err(Refusal::Proxy);
        }
        if at > 0 && !may_be_ca(certificate, at + 1 == chain.len()) {
            return Err(Refusal::NotACa);
        }
        if !suits(certificate, at, purpose) {
            return Err(Refusal::Purpose);
        }
        let path_len = extensions.basic.and_then(|basic| basic.path_len);
        if at > 1 && path_len.is_some_and(|path_len| below > path_len) {
            return Err(Refusal::PathLength);
        }
        if at > 0 && !certificate.is_self_issued() {
            below += 1;
        }
    }
    Ok(())
}

/// May the certificate issue another one? The last of a chain may also be a self-signed one of
/// version 1, or qualify by its key usage alone or by Netscape's type.
fn may_be_ca(certificate: &Certificate, is_last: bool) -> bool {
    let extensions = &certificate.extensions;
    if extensions.key_usage.is_some_and(|usage| !usage.signs_certificates) {
        return false;
    }
    match extensions.basic {
        Some(basic) => basic.is_ca,
        None if !is_last => false,
        None if certificate.is_version_1 && certificate.is_self_signed() => true,
        None if extensions.key_usage.is_some() => true,
        None => extensions.netscape.is_some_and(|kind| kind.any_ca && kind.tls_ca),
    }
}

/// May the certificate be used for this purpose, at this position of the chain?
fn suits(certificate: &Certificate, at: usize, purpose: Purpose) -> bool {
    let extensions = &certificate.extensions;
    if extensions.purposes.is_some_and(|purposes| !purposes.allow(purpose)) {
        return false;
    }
    if at > 0 {
        return true;
    }
    let by_usage = extensions.key_usage.is_none_or(|usage| {
        let signs = usage.signs || usage.agrees_on_keys;
        signs || (purpose == Purpose::Server && usage.enciphers_keys)
    });
    by_usage && extensions.netscape.is_none_or(|kind| kind.allows(purpose))
}

fn check_dates(certificate: &Certificate, now: i64) -> Result<(), Refusal> {
    if certificate.is_within_its_dates(now) {
        return Ok(());
    }
    Err(if now < certificate.not_before { Refusal::NotYetValid } else { Refusal::Expired })
}

fn check_signature(certificate: &Certificate, issuer: &Certificate) -> Result<(), Refusal> {
    if issuer.extensions.key_usage.is_some_and(|usage| !usage.signs_certificates) {
        return Err(Refusal::MayNotSign);
    }
    if !issuer.has_signed(certificate) {
        return Err(Refusal::Signature);
    }
    Ok(())
}
