//! The rules of `auth_hba_file`: the authentication method for a client, depending on its address,
//! database and user. The first matching rule decides.
//!
//! The language is PgBouncer's subset of PostgreSQL's (chapter "The pg_hba.conf File"). An invalid
//! line is ignored with a warning. `hba/parse.rs` reads the lines, and `hba/ident.rs` the maps of
//! `auth_ident_file`.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ldap::LdapOptions;

pub use self::ident::{IdentMap, IdentMaps};

mod ident;
mod parse;
pub(crate) mod words;

/// All rules, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hba {
    pub rules: Vec<Rule>,
    /// The databases of PostgreSQL that only these users may use: `only DATABASES USERS`. Weir's own;
    /// the library in the server writes it for databases that not every role may connect to.
    pub reserved: BTreeMap<String, BTreeSet<String>>,
    /// The length in bytes to which PostgreSQL cuts the names of users: `name_len_max NUMBER`. Weir's
    /// own, from the library as well.
    pub name_len_max: Option<usize>,
    /// The OIDs of PostgreSQL's roles: `role NAME OID`. Weir's own, from the library as well.
    pub roles: BTreeMap<String, u32>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The line's number, from 1.
    pub line: usize,
    pub connection: Connection,
    pub databases: Names,
    pub users: Names,
    /// Ignored for [`Connection::Local`].
    pub address: Address,
    pub method: Method,
    /// The users that a system's user or a certificate's owner may log in as; None: the user with
    /// the same name.
    pub map: Option<Arc<IdentMap>>,
}

/// The connection type that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Through the unix socket.
    Local,
    /// By TCP, with TLS or without.
    Host,
    HostSsl,
    HostNoSsl,
}

/// Databases or users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub all: bool,
    /// The database with the user's name. Never set for users.
    pub same_user: bool,
    /// Physical replication, which other rules do not cover. Never set for users.
    pub replication: bool,
    pub names: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    All,
    /// Address and mask, of the same family.
    Net(IpAddr, IpAddr),
}

/// An authentication method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    Trust,
    Reject,
    /// Rejects with a text for the client: `reject "TEXT"`. Weir's own; the library in the server
    /// writes it for rules of `pg_hba.conf` that Weir cannot judge.
    Refuse(Arc<str>),
    /// Or SCRAM, where the secret is a SCRAM verifier.
    Md5,
    Password,
    ScramSha256,
    /// By the name of the operating system's user.
    Peer,
    Cert(CertName),
    Ldap(Arc<LdapOptions>),
    /// By this service of PAM. `pam pamservice="NAME"` is Weir's own.
    Pam(Arc<str>),
}

/// The names of a certificate that may be the name of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertName {
    /// The common name and the DNS names, as in PgBouncer.
    Any,
    /// The common name, as in PostgreSQL: `cert clientname=CN`. Weir's own.
    Common,
}

/// The service of PAM if none is named, as for PgBouncer. Existing machines have their rules there.
pub const PAM_SERVICE: &str = "pgbouncer";

/// The properties of a client that rules examine.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// None for the unix socket.
    pub address: Option<IpAddr>,
    pub tls: bool,
    /// Does it request physical replication?
    pub replication: bool,
    pub database: &'a str,
    /// The database's other name: the console has two.
    pub alias: Option<&'a str>,
    pub user: &'a str,
}

impl Hba {
    /// Returns the first matching rule.
    pub fn rule(&self, visitor: &Visitor<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.fits(visitor))
    }

    /// Returns the user that PostgreSQL would take a client for.
    pub fn known_user<'a>(&self, user: &'a str) -> &'a str {
        &user[..user.floor_char_boundary(self.name_len_max.unwrap_or(usize::MAX))]
    }

    /// May the user connect to this database of PostgreSQL, once it has proved who it is?
    pub fn may_connect(&self, database: &str, user: &str) -> bool {
        self.reserved.get(database).is_none_or(|users| users.contains(user))
    }
}

impl Rule {
    fn fits(&self, visitor: &Visitor<'_>) -> bool {
        let connected = match (self.connection, visitor.address) {
            (Connection::Local, None) => true,
            (Connection::Local, Some(_)) | (_, None) => false,
            (Connection::Host, Some(_)) => true,
            (Connection::HostSsl, Some(_)) => visitor.tls,
            (Connection::HostNoSsl, Some(_)) => !visitor.tls,
        };
        let near = visitor.address.is_none_or(|address| self.address.contains(address));
        let Visitor { database, alias, user, .. } = *visitor;
        let database_fits = match visitor.replication {
            true => self.databases.replication,
            false => {
                let mut names = [database].into_iter().chain(alias);
                names.any(|name| self.databases.contains(name, user))
            }
        };
        connected && near && database_fits && (self.users.all || self.users.names.contains(user))
    }
}

impl Names {
    fn contains(&self, database: &str, user: &str) -> bool {
        self.all || (self.same_user && database == user) || self.names.contains(database)
    }
}

impl Address {
    fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::All, _) => true,
            (Self::Net(IpAddr::V4(net), IpAddr::V4(mask)), IpAddr::V4(address)) => {
                address.to_bits() & mask.to_bits() == net.to_bits()
            }
            (Self::Net(IpAddr::V6(net), IpAddr::V6(mask)), IpAddr::V6(address)) => {
                address.to_bits() & mask.to_bits() == net.to_bits()
            }
            (Self::Net(..), _) => false,
        }
    }
}

#[cfg(test)]
mod tests;
