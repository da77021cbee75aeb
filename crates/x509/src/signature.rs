//! Public keys, and whether a signature was made with one.

use aws_lc_rs::{
    digest::{self, Digest},
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
        RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
        RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
        UnparsedPublicKey, VerificationAlgorithm,
    },
};
use x509_parser::{
    der_parser::{Oid, oid},
    prelude::FromDer as _,
    public_key,
    signature_algorithm::RsaSsaPssParams,
    x509::{AlgorithmIdentifier, SubjectPublicKeyInfo},
};

/// The smallest RSA key that OpenSSL's security level 2 accepts, in bits.
const RSA_BITS_MIN: usize = 2048;

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Ecdsa(Curve, Vec<u8>),
    Ed25519(Vec<u8>),
    /// An `RSAPublicKey` in DER, and the modulus' length in bits.
    Rsa(Vec<u8>, usize),
    /// An RSA key for signatures by PSS only.
    RsaPss(Vec<u8>, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    /// MD5 or SHA-1. Signatures with them are refused. A trusted certificate may be self-signed
    /// with them, because that signature is not checked.
    Weak,
}

/// A signature scheme. ECDSA combines any curve with any hash; only TLS 1.3 restricts this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Ecdsa(Hash),
    Ed25519,
    RsaPkcs1(Hash),
    RsaPss(Hash),
}

impl Key {
    /// Returns the key, or `None` if it is of a kind that is not supported.
    pub(crate) fn read(info: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        let bits = info.subject_public_key.data.to_vec();
        let kind = &info.algorithm.algorithm;
        if *kind == oid!(1.2.840.113549.1.1.1) {
            let Ok(public_key::PublicKey::RSA(rsa)) = info.parsed() else { return None };
            return Some(Self::Rsa(bits, rsa.key_size()));
        }
        // Without parameters, any hash is allowed.
        if *kind == oid!(1.2.840.113549.1.1.10) && info.algorithm.parameters().is_none() {
            let (_, rsa) = public_key::RSAPublicKey::from_der(&bits).ok()?;
            let len = rsa.key_size();
            return Some(Self::RsaPss(bits, len));
        }
        if *kind == oid!(1.3.101.112) {
            return Some(Self::Ed25519(bits));
        }
        if *kind != oid!(1.2.840.10045.2.1) {
            return None;
        }
        let curve = info.algorithm.parameters()?.as_oid().ok()?;
        let curves = [
            (oid!(1.2.840.10045.3.1.7), Curve::P256),
            (oid!(1.3.132.0.34), Curve::P384),
            (oid!(1.3.132.0.35), Curve::P521),
        ];
        let (_, curve) = curves.into_iter().find(|(oid, _)| *oid == curve)?;
        Some(Self::Ecdsa(curve, bits))
    }

    /// Is the key long enough for OpenSSL's security level 2?
    pub fn is_strong(&self) -> bool {
        !matches!(self, Self::Rsa(_, bits) | Self::RsaPss(_, bits) if *bits < RSA_BITS_MIN)
    }

    /// Can this kind of key have made a signature of this scheme?
    pub(crate) fn suits(&self, scheme: Scheme) -> bool {
        matches!(
            (self, scheme),
            (Self::Ecdsa(..), Scheme::Ecdsa(_))
                | (Self::Ed25519(_), Scheme::Ed25519)
                | (Self::Rsa(..), Scheme::RsaPkcs1(_) | Scheme::RsaPss(_))
                | (Self::RsaPss(..), Scheme::RsaPss(_))
        )
    }

    /// Does the signature of the message belong to this public key?
    #[must_use]
    pub fn verify(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> bool {
        let plain = |algorithm: &'static dyn VerificationAlgorithm, key: &Vec<u8>| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (self, scheme) {
            (Self::Ecdsa(curve, point), Scheme::Ecdsa(hash)) => {
                curve.verify(point, hash, message, signature)
            }
            (Self::Ed25519(key), Scheme::Ed25519) => plain(&ED25519, key),
            (Self::Rsa(key, _), Scheme::RsaPkcs1(Hash::Sha256)) => {
                plain(&RSA_PKCS1_2048_8192_SHA256, key)
            }
            (Self::Rsa(key, _), Scheme::RsaPkcs1(Hash::Sha384)) => {
                plain(&RSA_PKCS1_2048_8192_SHA384, key)
            }
            (Self::Rsa(key, _), Scheme::RsaPkcs1(Hash::Sha512)) => {
                plain(&RSA_PKCS1_2048_8192_SHA512, key)
            }
            (Self::Rsa(key, _) | Self::RsaPss(key, _), Scheme::RsaPss(Hash::Sha256)) => {
                plain(&RSA_PSS_2048_8192_SHA256, key)
            }
            (Self::Rsa(key, _) | Self::RsaPss(key, _), Scheme::RsaPss(Hash::Sha384)) => {
                plain(&RSA_PSS_2048_8192_SHA384, key)
            }
            (Self::Rsa(key, _) | Self::RsaPss(key, _), Scheme::RsaPss(Hash::Sha512)) => {
                plain(&RSA_PSS_2048_8192_SHA512, key)
            }
            _ => false,
        }
    }
}

impl Curve {
    /// ECDSA signs a number: as many leading bits of the hash as the curve's order has. The library
    /// supports one hash per curve, so any other hash is converted to its length first.
    fn verify(self, point: &[u8], hash: Hash, message: &[u8], signature: &[u8]) -> bool {
        let (algorithm, usual) = match self {
            Self::P256 => (&ECDSA_P256_SHA256_ASN1, &digest::SHA256),
            Self::P384 => (&ECDSA_P384_SHA384_ASN1, &digest::SHA384),
            Self::P521 => (&ECDSA_P521_SHA512_ASN1, &digest::SHA512),
        };
        let Some(hash) = hash.algorithm() else { return false };
        let digest = digest::digest(hash, message);
        let len = usual.output_len();
        let mut number = vec![0; len.saturating_sub(digest.as_ref().len())];
        number.extend(digest.as_ref().iter().take(len));
        let Ok(digest) = Digest::import_less_safe(&number, usual) else { return false };
        UnparsedPublicKey::new(algorithm, point).verify_digest(&digest, signature).is_ok()
    }
}

impl Hash {
    fn algorithm(self) -> Option<&'static digest::Algorithm> {
        match self {
            Self::Sha224 => Some(&digest::SHA224),
            Self::Sha256 => Some(&digest::SHA256),
            Self::Sha384 => Some(&digest::SHA384),
            Self::Sha512 => Some(&digest::SHA512),
            Self::Weak => None,
        }
    }

    fn read(oid: &Oid<'_>) -> Option<Self> {
        let hashes = [
            (oid!(2.16.840.1.101.3.4.2.1), Self::Sha256),
            (oid!(2.16.840.1.101.3.4.2.2), Self::Sha384),
            (oid!(2.16.840.1.101.3.4.2.3), Self::Sha512),
        ];
        hashes.into_iter().find_map(|(known, hash)| (known == *oid).then_some(hash))
    }
}

impl Scheme {
    /// Returns the scheme of a certificate's signature, or `None` if it is not supported.
    pub(crate) fn read(identifier: &AlgorithmIdentifier<'_>) -> Option<Self> {
        let oid = &identifier.algorithm;
        if *oid == oid!(1.2.840.113549.1.1.10) {
            return Self::read_pss(identifier);
        }
        let schemes = [
            (oid!(1.2.840.10045.4.1), Self::Ecdsa(Hash::Weak)),
            (oid!(1.2.840.10045.4.3.1), Self::Ecdsa(Hash::Sha224)),
            (oid!(1.2.840.10045.4.3.2), Self::Ecdsa(Hash::Sha256)),
            (oid!(1.2.840.10045.4.3.3), Self::Ecdsa(Hash::Sha384)),
            (oid!(1.2.840.10045.4.3.4), Self::Ecdsa(Hash::Sha512)),
            (oid!(1.2.840.113549.1.1.4), Self::RsaPkcs1(Hash::Weak)),
            (oid!(1.2.840.113549.1.1.5), Self::RsaPkcs1(Hash::Weak)),
            (oid!(1.2.840.113549.1.1.14), Self::RsaPkcs1(Hash::Sha224)),
            (oid!(1.2.840.113549.1.1.11), Self::RsaPkcs1(Hash::Sha256)),
            (oid!(1.2.840.113549.1.1.12), Self::RsaPkcs1(Hash::Sha384)),
            (oid!(1.2.840.113549.1.1.13), Self::RsaPkcs1(Hash::Sha512)),
            (oid!(1.3.101.112), Self::Ed25519),
        ];
        schemes.into_iter().find_map(|(known, scheme)| (known == *oid).then_some(scheme))
    }

    /// Reads the parameters of PSS with a single hash; the library checks that the salt has the
    /// hash's length.
    fn read_pss(identifier: &AlgorithmIdentifier<'_>) -> Option<Self> {
        let parameters = RsaSsaPssParams::try_from(identifier.parameters()?).ok()?;
        let hash = Hash::read(parameters.hash_algorithm_oid())?;
        let mask = parameters.mask_gen_algorithm().ok()?;
        let same = Hash::read(&mask.hash) == Some(hash) && mask.mgf == oid!(1.2.840.113549.1.1.8);
        same.then_some(Self::RsaPss(hash))
    }
}
