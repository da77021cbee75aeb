//! Certificates for one test: authorities, and certificates that they sign. The files belong to the
//! unprivileged user, as PostgreSQL requires for its key.

mod manual;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, RevokedCertParams, SerialNumber, date_time_ymd,
};

pub use self::manual::ManualAuthority;
use crate::{guest, scratch};

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    file: PathBuf,
}

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug)]
pub enum Signature {
    /// ECDSA with this hash.
    Sha256,
    Sha384,
    /// A signature without a separate hash.
    Ed25519,
}

/// A certificate with its chain, and its key, in files.
#[derive(Debug)]
pub struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    serial: u64,
}

/// The properties of a certificate to be made.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The subject's common name.
    pub name: &'a str,
    /// DNS names and addresses in addition to it.
    pub hosts: &'a [&'a str],
    pub expired: bool,
}

impl Authority {
    /// Makes a self-signed authority.
    pub fn new(name: &str) -> Self {
        Self::of_key(name, KeyPair::generate().expect("a key"))
    }

    /// Makes a self-signed authority with this kind of key.
    pub fn signing_with(name: &str, kind: Signature) -> Self {
        let kind = match kind {
            Signature::Sha256 => &PKCS_ECDSA_P256_SHA256,
            Signature::Sha384 => &PKCS_ECDSA_P384_SHA384,
            Signature::Ed25519 => &PKCS_ED25519,
        };
        Self::of_key(name, KeyPair::generate_for(kind).expect("a key"))
    }

    fn of_key(name: &str, key: KeyPair) -> Self {
        let params = authority_params(name);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self::with(pem, Issuer::new(params, key))
    }

    /// Makes an authority that is signed by this one.
    pub fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = authority_params(name);
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Self::with(pem, Issuer::new(params, key))
    }

    fn with(pem: String, issuer: Issuer<'static, KeyPair>) -> Self {
        let file = write("authority.pem", &pem);
        Self { issuer, pem, file }
    }

    /// Returns the file of its own certificate.
    pub fn file(&self) -> &str {
        text(&self.file)
    }

    /// Signs a certificate. Its file also contains the authority's own, for clients that only trust
    /// an authority above it.
    pub fn issue(&self, wanted: &Wanted<'_>) -> Identity {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        let key = KeyPair::generate().expect("a key");
        let hosts: Vec<String> = wanted.hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).expect("sound names");
        params.distinguished_name.push(DnType::CommonName, wanted.name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(if wanted.expired { 2021 } else { 2120 }, 1, 1);
        let own = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let certificate = write("certificate.pem", &format!("{own}{}", self.pem));
        Identity { certificate, key: write("key.pem", &key.serialize_pem()), serial }
    }

    /// Returns a file with its own certificate and a revocation list that contains `identity`.
    pub fn revoke(&self, identity: &Identity) -> String {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(2120, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(identity.serial),
                revocation_time: date_time_ymd(2021, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list").pem().expect("of text");
        text(&write("revoked.pem", &format!("{}{list}", self.pem))).to_owned()
    }

    /// Makes a certificate for `localhost` and 127.0.0.1.
    pub fn server(&self) -> Identity {
        self.issue(&Wanted {
            name: "localhost",
            hosts: &["localhost", "127.0.0.1"],
            expired: false,
        })
    }

    /// Makes a certificate that names a user.
    pub fn user(&self, name: &str) -> Identity {
        self.issue(&Wanted { name, hosts: &[], expired: false })
    }
}

impl Identity {
    pub fn certificate(&self) -> &str {
        text(&self.certificate)
    }

    pub fn key(&self) -> &str {
        text(&self.key)
    }

    /// Writes its certificate and key into the files of `other`.
    pub fn replace(&self, other: &Self) {
        for (from, to) in [(&self.certificate, &other.certificate), (&self.key, &other.key)] {
            fs::copy(from, to).expect("our own files");
            secure(to);
        }
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn write(name: &str, pem: &str) -> PathBuf {
    let path = scratch::folder("pki").join(name);
    fs::write(&path, pem).expect("our own folder");
    secure(&path);
    path
}

fn secure(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("our own file");
    guest::give_away(path);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}
