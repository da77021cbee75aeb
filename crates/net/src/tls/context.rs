//! TLS as configured: certificates, keys and ciphers, read from their files. A context is created
//! as a whole or not at all. Connections keep the one with which they began.

use std::{collections::HashMap, path::Path, sync::Arc};

use config::{AuthType, Config, Global, ServerTls, SslMode};
use rustls::{
    ClientConfig, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use x509::{Anchors, Certificate};

use super::{
    certificate, ciphers,
    session::RECORD_LEN,
    verify::{ClientVerifier, ServerVerifier},
};

/// The ALPN name of PostgreSQL's protocol (PostgreSQL 17's direct TLS requires it).
pub const PROTOCOL: &[u8] = b"postgresql";

/// The configuration of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{key}: {reason}", in_words(self.database.as_deref()))]
pub struct TlsError {
    /// The key of the configuration with the mistake.
    pub key: &'static str,
    /// The database that has TLS settings of its own.
    pub database: Option<String>,
    pub reason: String,
    /// Every file is valid, but a certificate and a private key do not match.
    pub is_mismatch: bool,
}

/// The TLS of connections to clients and to servers.
#[derive(Clone, Debug, Default)]
pub struct TlsContexts {
    pub clients: Option<ForClients>,
    /// None is kept for settings without TLS.
    servers: HashMap<ServerTls, ForServers>,
    /// The contexts before the last reload. A pool that has not heard of it still asks for them.
    former: HashMap<ServerTls, ForServers>,
}

/// The files of these settings could not be read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the files of its server_tls_ keys could not be loaded, and the log says why")]
pub struct NotLoaded;

/// The TLS of connections from clients.
#[derive(Clone, Debug)]
pub struct ForClients {
    pub config: Arc<ServerConfig>,
    /// `tls-server-end-point` of our certificate (RFC 5929); empty if it has none.
    pub end_point: Arc<[u8]>,
    /// The end of its validity, in seconds since 1970.
    not_after: Option<i64>,
}

/// The TLS of connections to servers.
#[derive(Clone, Debug)]
pub struct ForServers {
    pub config: Arc<ClientConfig>,
    /// May a server refuse TLS?
    pub is_optional: bool,
    /// Must the certificate name the host that Weir connects to?
    pub checks_name: bool,
    /// The end of the validity of our certificate, if there is one, in seconds since 1970.
    not_after: Option<i64>,
}

impl TlsContexts {
    /// Reads all files.
    ///
    /// # Errors
    /// When a file cannot be read, has the wrong contents, or a value is unknown.
    pub fn load(config: &Config) -> Result<Self, TlsError> {
        let global = &config.global;
        if global.auth_type == AuthType::Cert && global.client_tls_sslmode != SslMode::VerifyFull {
            let reason = "auth_type=cert requires client_tls_sslmode=SSLMODE_VERIFY_FULL";
            return Err(TlsError::new("auth_type", reason));
        }
        let clients = ForClients::load(global)?;
        let mut contexts = Self { clients, ..Self::default() };
        contexts.add(global.server_tls())?;
        for database in config.databases.values().chain(&config.fallback) {
            let added = contexts.add(config.server_tls(database));
            added.map_err(|error| TlsError { database: Some(database.name.clone()), ..error })?;
        }
        Ok(contexts)
    }

    fn add(&mut self, tls: ServerTls) -> Result<(), TlsError> {
        if tls.sslmode != SslMode::Disable && !self.servers.contains_key(&tls) {
            let context = ForServers::load(&tls)?;
            self.servers.insert(tls, context);
        }
        Ok(())
    }

    /// Returns the TLS of connections to servers with these settings; `None` if they use none.
    ///
    /// # Errors
    /// When there is none, though the settings want it: a reload could not read the files.
    pub fn servers(&self, tls: &ServerTls) -> Result<Option<&ForServers>, NotLoaded> {
        match tls.sslmode {
            SslMode::Disable => Ok(None),
            SslMode::Allow
            | SslMode::Prefer
            | SslMode::Require
            | SslMode::VerifyCa
            | SslMode::VerifyFull => {
                let found = self.servers.get(tls).or_else(|| self.former.get(tls));
                found.map(Some).ok_or(NotLoaded)
            }
        }
    }

    /// Notes the contexts that these replace.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        Self { former: before.servers.clone(), ..self }
    }

    /// Returns these contexts also for the settings of `next`, which has another certificate or private
    /// key than `running`, and they do not fit to each other yet.
    #[must_use]
    pub fn until_they_fit(&self, running: &Config, next: &Config) -> Self {
        let mut contexts = self.clone();
        let usual = (running.global.server_tls(), next.global.server_tls());
        let entries = next.databases.values().chain(&next.fallback);
        let own = entries.map(|entry| (running.server_tls(entry), next.server_tls(entry)));
        for (before, after) in own.chain([usual]) {
            if let Ok(Some(context)) = self.servers(&before) {
                contexts.servers.entry(after).or_insert_with(|| context.clone());
            }
        }
        contexts
    }

    /// Returns the key of each certificate that Weir shows, and the end of its validity in seconds since
    /// 1970. Of several for servers, it is the one that ends first.
    #[must_use]
    pub fn certificates(&self) -> Vec<(&'static str, i64)> {
        let clients = self.clients.as_ref().and_then(|clients| clients.not_after);
        let servers = self.servers.values().filter_map(|servers| servers.not_after).min();
        [("client_tls_cert_file", clients), ("server_tls_cert_file", servers)]
            .into_iter()
            .filter_map(|(key, until)| Some((key, until?)))
            .collect()
    }
}

impl ForClients {
    /// Reads the files, if clients may use TLS.
    ///
    /// # Errors
    /// When a file cannot be read, has the wrong contents, or a value is unknown.
    pub fn load(global: &Global) -> Result<Option<Self>, TlsError> {
        let mode = global.client_tls_sslmode;
        if mode == SslMode::Disable {
            return Ok(None);
        }
        let provider = provider(&Choice {
            ciphers: ("client_tls_ciphers", &global.client_tls_ciphers),
            ciphers13: ("client_tls13_ciphers", global.client_tls13_ciphers.as_deref()),
            curve: ("client_tls_ecdhcurve", &global.client_tls_ecdhcurve),
        })?;
        let (key_file, cert_file) = (&global.client_tls_key_file, &global.client_tls_cert_file);
        if key_file.is_empty() || cert_file.is_empty() {
            let reason = "To allow TLS connections from clients, client_tls_key_file and \
                      client_tls_cert_file must be set.";
            return Err(TlsError::new("client_tls_sslmode", reason));
        }
        let own =
            own(&provider, ("client_tls_cert_file", cert_file), ("client_tls_key_file", key_file))?;
        let not_after = not_after(&own);
        let end_point = own.end_entity_cert().ok().and_then(|own| certificate::end_point(own));
        let end_point = end_point.unwrap_or_default();
        let versions = protocols("client_tls_protocols", &global.client_tls_protocols)?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| TlsError::new("client_tls_protocols", error))?;
        let is_mandatory = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
        let builder = if is_mandatory || !global.client_tls_ca_file.is_empty() {
            let anchors = anchors("client_tls_ca_file", &global.client_tls_ca_file)?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier::new(anchors, is_mandatory)))
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.max_fragment_size = Some(RECORD_LEN);
        config.ticketer =
            ring::Ticketer::new().map_err(|error| TlsError::new("client_tls_sslmode", error))?;
        config.send_tls13_tickets = 1;
        Ok(Some(Self { config: Arc::new(config), end_point: end_point.into(), not_after }))
    }
}

impl ForServers {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read, has the wrong contents, or a value is unknown.
    pub fn load(tls: &ServerTls) -> Result<Self, TlsError> {
        let provider = provider(&Choice {
            ciphers: ("server_tls_ciphers", &tls.ciphers),
            ciphers13: ("server_tls13_ciphers", tls.ciphers13.as_deref()),
            curve: ("", "auto"),
        })?;
        let checks_name = tls.verifies_fully();
        let checks_chain = checks_name || tls.sslmode == SslMode::VerifyCa;
        let anchors = match (checks_chain, tls.ca_file.as_str()) {
            (false, _) => None,
            (true, "") => Some(system_anchors("server_tls_ca_file")?),
            (true, file) => Some(anchors("server_tls_ca_file", file)?),
        };
        let verifier = ServerVerifier { anchors, checks_name };
        let versions = protocols("server_tls_protocols", &tls.protocols)?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| TlsError::new("server_tls_protocols", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (key_file, cert_file) = (&tls.key_file, &tls.cert_file);
        let mut not_after = None;
        let mut config = if key_file.is_empty() || cert_file.is_empty() {
            builder.with_no_client_auth()
        } else {
            let cert = ("server_tls_cert_file", cert_file.as_str());
            let own = own(&provider, cert, ("server_tls_key_file", key_file))?;
            not_after = self::not_after(&own);
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.max_fragment_size = Some(RECORD_LEN);
        let is_optional = matches!(tls.sslmode, SslMode::Allow | SslMode::Prefer);
        Ok(Self { config: Arc::new(config), is_optional, checks_name, not_after })
    }

    /// Reads the files for `https`: the server's certificate must be valid and name it. An empty
    /// name is no file; without authorities, those of the system count.
    ///
    /// # Errors
    /// When a file cannot be read or has the wrong contents. The key in the error is that of servers
    /// for the same file (`server_tls_…`).
    pub fn for_https(authorities: &str, certificate: &str, key: &str) -> Result<Self, TlsError> {
        let made = Self::load(&ServerTls {
            sslmode: SslMode::VerifyFull,
            ca_file: authorities.to_owned(),
            cert_file: certificate.to_owned(),
            key_file: key.to_owned(),
            ..Global::default().server_tls()
        })?;
        let mut config = ClientConfig::clone(&made.config);
        config.alpn_protocols.clear();
        Ok(Self { config: Arc::new(config), ..made })
    }
}

/// Returns the end of the validity of our certificate, in seconds since 1970.
fn not_after(own: &CertifiedKey) -> Option<i64> {
    own.end_entity_cert().ok().and_then(|own| certificate::not_after(own))
}

impl TlsError {
    fn new(key: &'static str, reason: impl std::fmt::Display) -> Self {
        Self { key, database: None, reason: reason.to_string(), is_mismatch: false }
    }
}

fn in_words(database: Option<&str>) -> String {
    database.map(|name| format!("databases.{name}: ")).unwrap_or_default()
}

/// The keys and values that select protocols and ciphers.
struct Choice<'a> {
    ciphers: (&'static str, &'a str),
    ciphers13: (&'static str, Option<&'a str>),
    curve: (&'static str, &'a str),
}

/// Returns the selected versions of 1.2 and 1.3. Older versions may be named, and are not offered.
fn protocols(
    key: &'static str,
    value: &str,
) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let mut versions = Vec::new();
    for word in value.split([',', ':']).map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "all" | "secure" | "default" | "tlsv1" => versions.extend([&TLS12, &TLS13]),
            "tlsv1.0" | "tlsv1.1" => {}
            "tlsv1.2" => versions.push(&TLS12),
            "tlsv1.3" => versions.push(&TLS13),
            other => return Err(TlsError::new(key, format!("unknown TLS version {other:?}"))),
        }
    }
    if versions.is_empty() {
        let reason =
            format!("{value:?} allows neither TLSv1.2 nor TLSv1.3; Weir supports no others");
        return Err(TlsError::new(key, reason));
    }
    Ok(versions)
}

fn provider(choice: &Choice<'_>) -> Result<Arc<CryptoProvider>, TlsError> {
    // Both do the same; docs/decisions/008 has the reason for using both.
    let key_provider = aws_lc_rs::default_provider().key_provider;
    let mut provider = CryptoProvider { key_provider, ..ring::default_provider() };
    let (key, value) = choice.ciphers;
    if !matches!(value, "default" | "secure" | "fast" | "normal" | "all" | "") {
        keep_ciphers(&mut provider, key, value, &TLS12)?;
    }
    if let (key, Some(value)) = choice.ciphers13 {
        keep_ciphers(&mut provider, key, value, &TLS13)?;
    }
    let (key, value) = choice.curve;
    if !matches!(value, "auto" | "none" | "") {
        let wanted = match value.to_ascii_lowercase().as_str() {
            "x25519" => rustls::NamedGroup::X25519,
            "prime256v1" | "secp256r1" | "p-256" => rustls::NamedGroup::secp256r1,
            "secp384r1" | "p-384" => rustls::NamedGroup::secp384r1,
            _ => {
                let reason = format!(
                    "unknown curve {value:?}; expected auto, X25519, prime256v1 or secp384r1"
                );
                return Err(TlsError::new(key, reason));
            }
        };
        provider.kx_groups.retain(|group| group.name() == wanted);
    }
    Ok(Arc::new(provider))
}

/// Keeps the version's cipher suites that the list allows.
fn keep_ciphers(
    provider: &mut CryptoProvider,
    key: &'static str,
    list: &str,
    version: &SupportedProtocolVersion,
) -> Result<(), TlsError> {
    let is_allowed =
        |suite: &rustls::SupportedCipherSuite| ciphers::allows(list, &openssl_name(suite));
    let is_of_version =
        |suite: &rustls::SupportedCipherSuite| suite.version().version == version.version;
    if !provider.cipher_suites.iter().any(|suite| is_of_version(suite) && is_allowed(suite)) {
        let known: Vec<String> =
            provider.cipher_suites.iter().filter(|s| is_of_version(s)).map(openssl_name).collect();
        let reason = format!("{list:?} selects no suite that Weir supports: {}", known.join(", "));
        return Err(TlsError::new(key, reason));
    }
    provider.cipher_suites.retain(|suite| !is_of_version(suite) || is_allowed(suite));
    Ok(())
}

/// Returns OpenSSL's name: `ECDHE-RSA-AES128-GCM-SHA256` for
/// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. TLS 1.3's names are the same everywhere.
fn openssl_name(suite: &rustls::SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    name.trim_start_matches("TLS_")
        .replace("_WITH", "")
        .replace("AES_", "AES")
        .replace("POLY1305_SHA256", "POLY1305")
        .replace('_', "-")
}

fn certificates(key: &'static str, file: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    if file.is_empty() {
        return Err(TlsError::new(key, "must be set for this sslmode"));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(key, file)?).collect();
    let found = found.map_err(|error| TlsError::new(key, format!("{file}: {error}")))?;
    if found.is_empty() {
        return Err(TlsError::new(key, format!("{file}: no certificate in PEM format")));
    }
    Ok(found)
}

/// Reads our own certificate of any version, with its chain, and its key.
fn own(
    provider: &CryptoProvider,
    (cert_key, cert_file): (&'static str, &str),
    (key_key, key_file): (&'static str, &str),
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert_key, cert_file)?;
    let signer = provider.key_provider.load_private_key(key(key_key, key_file)?);
    let signer = signer.map_err(|error| TlsError::new(key_key, format!("{key_file}: {error}")))?;
    let own = parsed(cert_key, cert_file, &chain)?.swap_remove(0);
    if signer.public_key().is_some_and(|public| public.as_ref() != own.key_der()) {
        let reason = format!("{cert_file}: the key in {key_file} belongs to another certificate");
        return Err(TlsError { is_mismatch: true, ..TlsError::new(cert_key, reason) });
    }
    Ok(CertifiedKey::new(chain, signer))
}

fn anchors(key: &'static str, file: &str) -> Result<Anchors, TlsError> {
    parsed(key, file, &certificates(key, file)?).map(Anchors::new)
}

fn parsed(
    key: &'static str,
    file: &str,
    certificates: &[CertificateDer<'_>],
) -> Result<Vec<Certificate>, TlsError> {
    let parsed = certificates.iter().map(|certificate| Certificate::read(certificate));
    parsed.collect::<Result<_, _>>().map_err(|error| TlsError::new(key, format!("{file}: {error}")))
}

/// Returns the authorities that the system trusts.
fn system_anchors(key: &'static str) -> Result<Anchors, TlsError> {
    let anchors = super::verify::system_anchors();
    if anchors.is_empty() {
        return Err(TlsError::new(key, "is not set, and the system has no trusted certificates"));
    }
    Ok(anchors)
}

fn key(key: &'static str, file: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(key, file)?).map_err(|error| {
        TlsError::new(key, format!("{file}: no unencrypted private key in PEM format ({error})"))
    })
}

fn read(key: &'static str, file: &str) -> Result<Vec<u8>, TlsError> {
    config::read_file(Path::new(file))
        .map_err(|error| TlsError::new(key, format!("{file}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Choice<'static>)) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut choice =
            Choice { ciphers: ("c", "default"), ciphers13: ("c13", None), curve: ("e", "auto") };
        change(&mut choice);
        provider(&choice)
    }

    #[test]
    fn versions_that_are_not_there_are_left_out() {
        let count = |value| protocols("p", value).map(|versions| versions.len());
        assert_eq!(count("secure").ok(), Some(2));
        assert_eq!(count("tlsv1.0,tlsv1.3").ok(), Some(1));
        assert!(count("tlsv1.0, tlsv1.1").is_err_and(|error| error.reason.contains("neither")));
        assert!(count("tlsv2").is_err_and(|error| error.reason.contains("tlsv2")));
    }

    #[test]
    fn cipher_suites_are_chosen_by_openssls_names() {
        let chosen = with(|choice| choice.ciphers.1 = "ECDHE-RSA-AES128-GCM-SHA256:unknown");
        let names: Vec<String> =
            chosen.expect("one is known").cipher_suites.iter().map(openssl_name).collect();
        assert!(names.contains(&"ECDHE-RSA-AES128-GCM-SHA256".to_owned()), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("CHACHA20") && name.contains("ECDHE")));
        assert!(names.contains(&"TLS_AES_256_GCM_SHA384".to_owned()), "1.3 is another key's");

        let chosen = with(|choice| choice.ciphers13.1 = Some("TLS_CHACHA20_POLY1305_SHA256"));
        let suites = chosen.expect("it is known").cipher_suites.clone();
        assert_eq!(suites.iter().filter(|suite| suite.tls13().is_some()).count(), 1);

        let chosen = with(|choice| choice.ciphers.1 = "HIGH:!aNULL:!AESGCM").expect("some are");
        let count = chosen.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
        assert_eq!(count, 2, "ChaCha20 with RSA and with ECDSA");

        let refused = with(|choice| choice.ciphers.1 = "RC4-MD5:3DES").expect_err("not there");
        assert!(refused.reason.contains("ECDHE-RSA-CHACHA20-POLY1305"), "{refused}");
    }

    #[test]
    fn a_curve_is_chosen_by_name() {
        let chosen = with(|choice| choice.curve.1 = "prime256v1").expect("it is known");
        assert_eq!(chosen.kx_groups.len(), 1);
        assert_eq!(chosen.kx_groups[0].name(), rustls::NamedGroup::secp256r1);
        assert!(with(|choice| choice.curve.1 = "brainpool").is_err());
    }
}
