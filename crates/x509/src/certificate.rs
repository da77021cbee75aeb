//! A certificate that was read.

use x509_parser::{
    certificate::X509Certificate, der_parser::oid, prelude::FromDer as _, x509::X509Version,
};

use crate::{
    extensions::Extensions,
    name::{self, Name},
    signature::{Key, Scheme},
};

/// The bytes are not an X.509 certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct Malformed;

/// A certificate, of any version.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: Vec<u8>,
    pub(crate) is_version_1: bool,
    pub(crate) serial: Vec<u8>,
    pub(crate) subject: Name,
    pub(crate) issuer: Name,
    /// The subject in DER.
    subject_der: Vec<u8>,
    /// The subject's common names.
    pub(crate) common_names: Vec<String>,
    /// The subject's e-mail addresses.
    pub(crate) emails: Vec<String>,
    /// Seconds since 1970.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    /// The public key with its algorithm, in DER.
    key_der: Vec<u8>,
    key: Option<Key>,
    pub(crate) extensions: Extensions,
    /// The part that the issuer has signed.
    signed: Vec<u8>,
    scheme: Option<Scheme>,
    signature: Vec<u8>,
}

impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// When the bytes are not one certificate and nothing else.
    pub fn read(der: &[u8]) -> Result<Self, Malformed> {
        let Ok(([], read)) = X509Certificate::from_der(der) else { return Err(Malformed) };
        let named = |wanted| {
            let attributes = read.subject().iter_attributes();
            let found = attributes.filter(move |attribute| *attribute.attr_type() == wanted);
            found.filter_map(|attribute| name::text(attribute.attr_value())).collect()
        };
        // Both places that name the algorithm must agree.
        let is_sound = read.tbs_certificate.signature == read.signature_algorithm;
        Ok(Self {
            is_version_1: read.version() == X509Version::V1,
            serial: read.raw_serial().to_vec(),
            subject: Name::new(read.subject()),
            issuer: Name::new(read.issuer()),
            subject_der: read.subject().as_raw().to_vec(),
            common_names: named(oid!(2.5.4.3)),
            emails: named(oid!(1.2.840.113549.1.9.1)),
            not_before: read.validity().not_before.timestamp(),
            not_after: read.validity().not_after.timestamp(),
            key_der: read.public_key().raw.to_vec(),
            key: Key::read(read.public_key()),
            extensions: Extensions::read(read.extensions()),
            signed: read.tbs_certificate.as_ref().to_vec(),
            scheme: is_sound.then(|| Scheme::read(&read.signature_algorithm)).flatten(),
            signature: read.signature_value.data.to_vec(),
            der: der.to_vec(),
        })
    }

    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the subject's distinguished name in DER.
    #[must_use]
    pub fn subject_der(&self) -> &[u8] {
        &self.subject_der
    }

    /// Returns the public key, or `None` if it is of a kind that is not supported.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns the public key with its algorithm (SubjectPublicKeyInfo) in DER.
    #[must_use]
    pub fn key_der(&self) -> &[u8] {
        &self.key_der
    }

    /// Is the certificate valid at this time, by its own dates?
    #[must_use]
    pub fn is_within_its_dates(&self, unix_seconds: i64) -> bool {
        (self.not_before..=self.not_after).contains(&unix_seconds)
    }

    /// Are issuer and subject the same name?
    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Does the certificate claim to be signed by its own key? The signature itself is not checked.
    pub(crate) fn is_self_signed(&self) -> bool {
        self.is_self_issued() && self.may_issue(self)
    }

    /// Can this certificate's key have signed the other certificate, by names, key identifiers and
    /// algorithms?
    pub(crate) fn may_issue(&self, other: &Self) -> bool {
        if self.extensions.is_unsound || other.extensions.is_unsound || self.subject != other.issuer
        {
            return false;
        }
        if let Some(wanted) = &other.extensions.authority_key {
            let differs = |wanted: &Option<Vec<u8>>, own: Option<&Vec<u8>>| {
                wanted.as_ref().zip(own).is_some_and(|(wanted, own)| wanted != own)
            };
            if differs(&wanted.key, self.extensions.subject_key.as_ref())
                || differs(&wanted.serial, Some(&self.serial))
                || wanted.issuer.as_ref().is_some_and(|issuer| *issuer != self.issuer)
            {
                return false;
            }
        }
        self.key.as_ref().zip(other.scheme).is_some_and(|(key, scheme)| key.suits(scheme))
    }

    /// Has this certificate's key signed the other certificate?
    pub(crate) fn has_signed(&self, other: &Self) -> bool {
        let signed = self.key.as_ref().zip(other.scheme);
        signed.is_some_and(|(key, scheme)| key.verify(scheme, &other.signed, &other.signature))
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}
