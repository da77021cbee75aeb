//! Chains made and judged by the `openssl` command.
//!
//! A line describes a chain, such as `root ca | leaf < root days=-2..-1`: certificates from the
//! trusted one to the peer's. Each has its name, its issuer unless it is self-signed, and words:
//!
//! | word | meaning |
//! |---|---|
//! | `ca` | basic constraints and key usage of a CA |
//! | `key=`, `md=` | kind of the key; hash of the signature |
//! | `as=NAME` | has the key of that certificate |
//! | `subject=/CN=…` | instead of `/CN=NAME` |
//! | `days=A..B` | dates, counted from today |
//! | `trusted`, `sent`, `kept` | stands in the CA file, is sent by the peer, or neither |
//! | any other `key=value` | an extension, as in OpenSSL's configuration |
//!
//! By default the first certificate is trusted and the others are sent. A certificate without
//! extensions has version 1, as `openssl x509 -req` makes it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use weir_x509::Purpose;
use x509_parser::pem::Pem;

const CONFIGURATION: &str = "[req]\ndistinguished_name = any\n[any]\n[ca]\ndefault_ca = own\n[own]\n\
    database = index.txt\nnew_certs_dir = .\ndefault_md = sha256\npolicy = any\n\
    unique_subject = no\nrand_serial = yes\n";
const CA: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n";

/// A folder with keys and certificates; it is removed at the end.
#[derive(Debug)]
pub(crate) struct Workshop {
    folder: PathBuf,
}

/// Certificates of one line, in files and in DER.
#[derive(Debug)]
pub(crate) struct Made {
    folder: PathBuf,
    own: PathBuf,
    pub(crate) own_der: Vec<u8>,
    pub(crate) trusted: Vec<Vec<u8>>,
    pub(crate) sent: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Kept,
    Sent,
    Trusted,
}

impl Workshop {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-x509-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("our own folder");
        fs::write(folder.join("configuration"), CONFIGURATION).expect("our own folder");
        Self { folder }
    }

    /// Makes the certificates of a line.
    pub(crate) fn make(&self, line: &str) -> Made {
        // OpenSSL's list of signed certificates would grow without use here.
        fs::write(self.folder.join("index.txt"), "").expect("our own folder");
        let certificates: Vec<&str> = line.split('|').map(str::trim).collect();
        let (mut trusted, mut sent, mut own) = (Vec::new(), Vec::new(), PathBuf::new());
        for (at, certificate) in certificates.iter().enumerate() {
            let default = if at == 0 { Role::Trusted } else { Role::Sent };
            let (file, role) = self.sign(certificate, default);
            match role {
                Role::Trusted => trusted.push(file.clone()),
                Role::Sent if at + 1 < certificates.len() => sent.push(file.clone()),
                Role::Sent | Role::Kept => {}
            }
            own = file;
        }
        self.bundle("trusted.pem", &trusted);
        self.bundle("sent.pem", &sent);
        let ders = |files: Vec<PathBuf>| files.iter().map(|file| der(file)).collect();
        let own_der = der(&own);
        Made { folder: self.folder.clone(), own, own_der, trusted: ders(trusted), sent: ders(sent) }
    }

    fn sign(&self, certificate: &str, default: Role) -> (PathBuf, Role) {
        let mut words = certificate.split_ascii_whitespace().peekable();
        let name = words.next().expect("a name");
        let issuer = words.next_if_eq(&"<").and_then(|_| words.next());
        let (mut role, mut extensions) = (default, String::new());
        let (mut kind, mut hash, mut key_name) = ("p256", None, name);
        let (mut subject, mut dates) = (format!("/CN={name}"), None);
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("ca", _) => extensions.push_str(CA),
                ("trusted", _) => role = Role::Trusted,
                ("sent", _) => role = Role::Sent,
                ("kept", _) => role = Role::Kept,
                ("key", value) => kind = value,
                ("md", value) => hash = Some(value),
                ("as", value) => key_name = value,
                ("subject", value) => subject = value.replace('_', " "),
                ("days", value) => {
                    let (from, to) = value.split_once("..").expect("two days");
                    dates = Some((time(from), time(to)));
                }
                _ => extensions.push_str(&format!("{word}\n")),
            }
        }
        let key = self.key(key_name, kind);
        // Later certificates of the line read their issuer's key from here.
        fs::copy(&key, self.folder.join(format!("{name}.key"))).expect("our own folder");
        let (request, file) = (format!("{name}.csr"), format!("{name}.pem"));
        let key = key.to_str().expect("a plain path").to_owned();
        self.run(&[
            "req",
            "-new",
            "-config",
            "configuration",
            "-key",
            &key,
            "-subj",
            &subject,
            "-out",
            &request,
        ]);
        let mut sign = vec![
            "ca",
            "-batch",
            "-config",
            "configuration",
            "-preserveDN",
            "-notext",
            "-in",
            &request,
            "-out",
            &file,
        ];
        let (issuer_key, issuer_file);
        match issuer {
            Some(issuer) => {
                (issuer_key, issuer_file) = (format!("{issuer}.key"), format!("{issuer}.pem"));
                sign.extend(["-cert", &issuer_file, "-keyfile", &issuer_key]);
            }
            None => sign.extend(["-selfsign", "-keyfile", &key]),
        }
        match &dates {
            Some((from, to)) => sign.extend(["-startdate", from, "-enddate", to]),
            None => sign.extend(["-days", "100"]),
        }
        if let Some(hash) = hash {
            sign.extend(["-md", hash]);
        }
        if !extensions.is_empty() {
            fs::write(self.folder.join("extensions"), extensions).expect("our own folder");
            sign.extend(["-extfile", "extensions"]);
        }
        self.run(&sign);
        (self.folder.join(file), role)
    }

    /// Returns a key; each name and kind has one.
    fn key(&self, name: &str, kind: &str) -> PathBuf {
        let file = self.folder.join(format!("{name}-{kind}.key"));
        if !file.exists() {
            let mut args =
                vec!["genpkey", "-out", file.to_str().expect("a plain path"), "-algorithm"];
            args.extend(match kind {
                "p256" => vec!["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
                "p384" => vec!["EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
                "p521" => vec!["EC", "-pkeyopt", "ec_paramgen_curve:P-521"],
                "ed25519" => vec!["ED25519"],
                "rsa1024" => vec!["RSA", "-pkeyopt", "rsa_keygen_bits:1024"],
                "rsa2048" => vec!["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                "pss2048" => vec!["RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"],
                "pss1024" => vec!["RSA-PSS", "-pkeyopt", "rsa_keygen_bits:1024"],
                _ => panic!("no kind of key: {kind}"),
            });
            self.run(&args);
        }
        file
    }

    fn bundle(&self, name: &str, files: &[PathBuf]) {
        let all: String =
            files.iter().map(|file| fs::read_to_string(file).expect("our own folder")).collect();
        fs::write(self.folder.join(name), all).expect("our own folder");
    }

    fn run(&self, args: &[&str]) {
        let output = openssl(&self.folder, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {args:?}: {said}");
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Made {
    /// Returns the file of the peer's private key.
    pub(crate) fn key(&self) -> PathBuf {
        self.own.with_extension("key")
    }

    /// Returns the file of the trusted certificates.
    pub(crate) fn trusted_file(&self) -> PathBuf {
        self.folder.join("trusted.pem")
    }

    /// Returns the file of the peer's certificate.
    pub(crate) fn own_file(&self) -> &Path {
        &self.own
    }

    /// Asks OpenSSL whether the peer's certificate is valid, with PgBouncer's options. Returns its
    /// reason if not.
    pub(crate) fn verify(&self, purpose: Purpose, more: &[&str]) -> Result<(), String> {
        let purpose = match purpose {
            Purpose::Client => "sslclient",
            Purpose::Server => "sslserver",
        };
        let mut args = vec![
            "verify",
            "-purpose",
            purpose,
            "-auth_level",
            "2",
            "-no-CApath",
            "-no-CAstore",
            "-verify_depth",
            "6",
            "-CAfile",
            "trusted.pem",
        ];
        if !self.sent.is_empty() {
            args.extend(["-untrusted", "sent.pem"]);
        }
        args.extend(more);
        args.push(self.own.to_str().expect("a plain path"));
        let output = openssl(&self.folder, &args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }
}

fn der(file: &Path) -> Vec<u8> {
    let text = fs::read(file).expect("our own folder");
    Pem::iter_from_buffer(&text).next().expect("a certificate").expect("of text").contents
}

fn openssl(folder: &Path, args: &[&str]) -> Output {
    Command::new("openssl").current_dir(folder).args(args).output().expect("openssl is installed")
}

/// Returns the time in this number of days, in OpenSSL's format.
fn time(days: &str) -> String {
    let date = Command::new("date")
        .args(["-u", "-d", &format!("{days} days"), "+%Y%m%d%H%M%SZ"])
        .output()
        .expect("date is installed");
    String::from_utf8(date.stdout).expect("a date").trim().to_owned()
}
