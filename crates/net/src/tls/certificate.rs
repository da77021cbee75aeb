//! The names and digests of certificates.

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _,
    signature_algorithm::SignatureAlgorithm,
};

/// The names in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// The common name of its subject. Of several the first counts, as for PostgreSQL. Others may be
    /// common to many users, such as the folder of a directory (`CN=somebody,CN=Users`).
    pub common_name: Option<String>,
    pub dns_names: Vec<String>,
}

impl PeerNames {
    pub(crate) fn of(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::default() };
        let subject = certificate.subject().iter_common_name().next();
        let common_name = subject.and_then(|name| name.as_str().ok()).map(str::to_owned);
        let mut dns_names = Vec::new();
        if let Ok(Some(others)) = certificate.subject_alternative_name() {
            dns_names.extend(others.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            }));
        }
        Self { common_name, dns_names }
    }
}

/// Returns the end of a certificate's validity, in seconds since 1970.
pub(crate) fn not_after(der: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Returns the channel binding `tls-server-end-point` (RFC 5929, 4.1): the certificate's digest by
/// the hash of its own signature, where MD5 and SHA-1 count as SHA-256. Returns `None` if its
/// signature names no hash (Ed25519); the RFC has no rule for that.
pub(crate) fn end_point(der: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let signature = &certificate.signature_algorithm;
    let hash = match SignatureAlgorithm::try_from(signature) {
        Ok(SignatureAlgorithm::RSASSA_PSS(pss)) => pss.hash_algorithm_oid().to_id_string(),
        _ => signature.algorithm.to_id_string(),
    };
    Some(match hash.as_str() {
        // md5, sha1, sha256 with RSA; sha1, sha256 with ECDSA; sha1, sha256 with RSA-PSS.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2"
        | "1.3.14.3.2.26"
        | "2.16.840.1.101.3.4.2.1" => Sha256::digest(der).to_vec(),
        // sha224
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" | "2.16.840.1.101.3.4.2.4" => {
            Sha224::digest(der).to_vec()
        }
        // sha384
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => {
            Sha384::digest(der).to_vec()
        }
        // sha512
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => {
            Sha512::digest(der).to_vec()
        }
        _ => return None,
    })
}
