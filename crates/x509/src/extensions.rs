//! The contents of a certificate's extensions.

use x509_parser::{
    der_parser::{Oid, oid},
    extensions::{
        self, ExtendedKeyUsage, GeneralName, GeneralSubtree, NSCertType, ParsedExtension,
        X509Extension,
    },
};

use crate::{Purpose, name::Name};

/// An extension that OpenSSL refuses unless it was told to accept such certificates.
const PROXY_CERTIFICATE: Oid<'static> = oid!(1.3.6.1.5.5.7.1.14);
/// Microsoft's and Netscape's old names for a server's purpose.
const SERVER_GATED: [Oid<'static>; 2] = [oid!(1.3.6.1.4.1.311.10.3.3), oid!(2.16.840.1.113730.4.1)];

/// The extensions that matter for the result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions {
    pub(crate) basic: Option<Basic>,
    pub(crate) key_usage: Option<KeyUsage>,
    pub(crate) purposes: Option<Purposes>,
    pub(crate) netscape: Option<NetscapeType>,
    pub(crate) subject_key: Option<Vec<u8>>,
    pub(crate) authority_key: Option<AuthorityKey>,
    /// The subject alternative names.
    pub(crate) names: Vec<SubjectName>,
    pub(crate) constraints: Option<Constraints>,
    pub(crate) is_proxy: bool,
    /// There is a critical extension that OpenSSL does not know.
    pub(crate) has_unknown_critical: bool,
    /// An extension cannot be read, contradicts itself, or is repeated.
    pub(crate) is_unsound: bool,
}

/// Basic constraints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basic {
    pub(crate) is_ca: bool,
    pub(crate) path_len: Option<u32>,
}

/// The permitted uses of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyUsage {
    pub(crate) signs: bool,
    pub(crate) enciphers_keys: bool,
    pub(crate) agrees_on_keys: bool,
    pub(crate) signs_certificates: bool,
}

/// The extended key usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purposes {
    pub(crate) client: bool,
    pub(crate) server: bool,
}

/// Netscape's certificate type, older than the extended key usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetscapeType {
    pub(crate) client: bool,
    pub(crate) server: bool,
    pub(crate) tls_ca: bool,
    pub(crate) any_ca: bool,
}

/// The identification of the issuer's certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthorityKey {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) serial: Option<Vec<u8>>,
    /// The issuer's issuer.
    pub(crate) issuer: Option<Name>,
}

/// One alternative name of a subject, or the base of a name constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubjectName {
    Address(Vec<u8>),
    Directory(Name),
    Dns(String),
    Email(String),
    /// Another kind, by its tag.
    Other(u32),
    Uri(String),
    /// An unreadable name of this kind, by its tag.
    Unreadable(u32),
}

/// The names that a CA may certify.
#[derive(Clone, Debug, Default)]
pub(crate) struct Constraints {
    pub(crate) permitted: Vec<SubjectName>,
    pub(crate) excluded: Vec<SubjectName>,
}

impl Extensions {
    pub(crate) fn read(extensions: &[X509Extension<'_>]) -> Self {
        let mut read = Self::default();
        for (at, extension) in extensions.iter().enumerate() {
            let is_known = read.take(extension);
            let earlier = extensions.iter().take(at);
            if is_known && earlier.into_iter().any(|earlier| earlier.oid == extension.oid) {
                read.is_unsound = true;
            }
            read.has_unknown_critical |= extension.critical && !is_supported(&extension.oid);
        }
        read
    }

    /// Records one extension. Returns false if it has no meaning here.
    fn take(&mut self, extension: &X509Extension<'_>) -> bool {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(basic) => {
                self.basic = Some(Basic { is_ca: basic.ca, path_len: basic.path_len_constraint });
            }
            ParsedExtension::KeyUsage(usage) => {
                self.is_unsound |= usage.flags == 0;
                self.key_usage = Some(KeyUsage {
                    signs: usage.digital_signature(),
                    enciphers_keys: usage.key_encipherment(),
                    agrees_on_keys: usage.key_agreement(),
                    signs_certificates: usage.key_cert_sign(),
                });
            }
            ParsedExtension::ExtendedKeyUsage(usage) => self.purposes = Some(purposes(usage)),
            ParsedExtension::NSCertType(kind) => self.netscape = Some(netscape(kind)),
            ParsedExtension::SubjectKeyIdentifier(key) => self.subject_key = Some(key.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(key) => {
                self.authority_key = Some(authority_key(key));
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                self.names = names.general_names.iter().map(subject_name).collect();
            }
            ParsedExtension::NameConstraints(constraints) => {
                self.constraints = Some(Constraints {
                    permitted: bases(constraints.permitted_subtrees.as_deref()),
                    excluded: bases(constraints.excluded_subtrees.as_deref()),
                });
            }
            ParsedExtension::ParseError { .. } if is_read(&extension.oid) => self.is_unsound = true,
            _ if extension.oid == PROXY_CERTIFICATE => self.is_proxy = true,
            _ => return false,
        }
        true
    }
}

impl Purposes {
    pub(crate) fn allow(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Client => self.client,
            Purpose::Server => self.server,
        }
    }
}

impl NetscapeType {
    pub(crate) fn allows(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Client => self.client,
            Purpose::Server => self.server,
        }
    }
}

/// Does the extension matter here, so that it must be readable?
fn is_read(oid: &Oid<'_>) -> bool {
    [
        oid!(2.5.29.14),             // subject key identifier
        oid!(2.5.29.15),             // key usage
        oid!(2.5.29.17),             // subject alternative name
        oid!(2.5.29.19),             // basic constraints
        oid!(2.5.29.30),             // name constraints
        oid!(2.5.29.35),             // authority key identifier
        oid!(2.5.29.37),             // extended key usage
        oid!(2.16.840.1.113730.1.1), // Netscape certificate type
    ]
    .contains(oid)
}

/// Does OpenSSL accept the extension where it is critical?
fn is_supported(oid: &Oid<'_>) -> bool {
    [
        oid!(2.5.29.15),             // key usage
        oid!(2.5.29.17),             // subject alternative name
        oid!(2.5.29.19),             // basic constraints
        oid!(2.5.29.30),             // name constraints
        oid!(2.5.29.31),             // distribution points of revocation lists
        oid!(2.5.29.32),             // certificate policies
        oid!(2.5.29.33),             // policy mappings
        oid!(2.5.29.36),             // policy constraints
        oid!(2.5.29.37),             // extended key usage
        oid!(2.5.29.54),             // inhibit any policy
        oid!(2.16.840.1.113730.1.1), // Netscape certificate type
        oid!(1.3.6.1.5.5.7.48.1.5),  // no check of OCSP responders
        PROXY_CERTIFICATE,
    ]
    .contains(oid)
}

/// Reads the extended key usage. As in OpenSSL, `anyExtendedKeyUsage` stands for neither purpose.
fn purposes(usage: &ExtendedKeyUsage<'_>) -> Purposes {
    let is_gated = usage.other.iter().any(|other| SERVER_GATED.contains(other));
    Purposes { client: usage.client_auth, server: usage.server_auth || is_gated }
}

fn netscape(kind: &NSCertType) -> NetscapeType {
    NetscapeType {
        client: kind.ssl_client(),
        server: kind.ssl_server(),
        tls_ca: kind.ssl_ca(),
        any_ca: kind.ssl_ca() || kind.smime_ca() || kind.object_signing_ca(),
    }
}

fn authority_key(key: &extensions::AuthorityKeyIdentifier<'_>) -> AuthorityKey {
    let issuers = key.authority_cert_issuer.iter().flatten();
    let issuer = issuers.into_iter().find_map(|name| match name {
        GeneralName::DirectoryName(name) => Some(Name::new(name)),
        _ => None,
    });
    AuthorityKey {
        key: key.key_identifier.as_ref().map(|key| key.0.to_vec()),
        serial: key.authority_cert_serial.map(<[u8]>::to_vec),
        issuer,
    }
}

fn bases(subtrees: Option<&[GeneralSubtree<'_>]>) -> Vec<SubjectName> {
    subtrees.unwrap_or_default().iter().map(|subtree| subject_name(&subtree.base)).collect()
}

fn subject_name(name: &GeneralName<'_>) -> SubjectName {
    match name {
        GeneralName::RFC822Name(name) => SubjectName::Email((*name).to_owned()),
        GeneralName::DNSName(name) => SubjectName::Dns((*name).to_owned()),
        GeneralName::DirectoryName(name) => SubjectName::Directory(Name::new(name)),
        GeneralName::URI(uri) => SubjectName::Uri((*uri).to_owned()),
        GeneralName::IPAddress(address) => SubjectName::Address(address.to_vec()),
        GeneralName::OtherName(..) => SubjectName::Other(0),
        GeneralName::X400Address(_) => SubjectName::Other(3),
        GeneralName::EDIPartyName(_) => SubjectName::Other(5),
        GeneralName::RegisteredID(_) => SubjectName::Other(8),
        GeneralName::Invalid(tag, _) => SubjectName::Unreadable(tag.0),
    }
}
