//! Why a line of `auth_hba_file` or `auth_ident_file` is invalid.

use core::net::IpAddr;

use thiserror::Error;

use super::ldap::LdapError;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HbaError {
    #[error("unknown type")]
    NoType,
    #[error("unknown type {0}")]
    Type(String),
    #[error("a quote is not closed")]
    Unclosed,
    #[error("did not find {0}")]
    Missing(&'static str),
    #[error("a name is missing")]
    NoName,
    #[error("{0} is not supported")]
    Keyword(String),
    #[error("groups are not supported")]
    Groups,
    #[error("@{0} is nested too deeply")]
    TooDeep(String),
    #[error("cannot read @{0}")]
    Unreadable(String),
    #[error("failed to parse address {0}")]
    Address(String),
    #[error("failed to parse mask {0}")]
    Mask(String),
    #[error("invalid mask")]
    MaskBits,
    /// No address can match such a network.
    #[error("address {address} does not match mask {mask}")]
    Mismatch { address: IpAddr, mask: IpAddr },
    #[error("unsupported method {0}")]
    Method(String),
    #[error("unsupported parameters")]
    Parameters,
    #[error("ident map {0} is not in the form map=value")]
    MapForm(String),
    #[error("ident map {0} is not in auth_ident_file")]
    NoMap(String),
    #[error(transparent)]
    Ldap(#[from] LdapError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentError {
    #[error("a quote is not closed")]
    Unclosed,
    #[error("the name of the map is missing")]
    NoMap,
    #[error("the system's user is missing")]
    NoSystemUser,
    #[error("no user")]
    NoUser,
    #[error("unsupported parameters")]
    Parameters,
}
