//! Why LDAP options cannot be used. No text repeats a possible password.

use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LdapError {
    /// The name is not repeated: it may be half of a password.
    #[error("an LDAP option has no value")]
    NoValue,
    /// The key is not repeated: it may be half of a password.
    #[error("invalid LDAP key parameter")]
    Key,
    #[error("a quote is not closed")]
    Unclosed,
    #[error("invalid ldapscheme value: \"{0}\"")]
    Scheme(String),
    #[error("could not parse LDAP URL \"{0}\"")]
    Url(String),
    #[error("unsupported LDAP URL scheme: {0}")]
    UrlScheme(String),
    #[error("invalid LDAP port number: \"{0}\"")]
    Port(String),
    #[error("authentication method \"ldap\" requires argument \"ldapserver\"")]
    NoServer,
    #[error(
        "authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", or \
         \"ldapsuffix\" to be set"
    )]
    NoBase,
    #[error("cannot mix options for simple bind and search+bind modes")]
    TwoModes,
    #[error("cannot use ldapsearchattribute together with ldapsearchfilter")]
    TwoFilters,
}
