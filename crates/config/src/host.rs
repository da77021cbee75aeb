//! Where a PostgreSQL server listens. Names are not resolved here.

use std::fmt;
use std::path::PathBuf;

use crate::value::{Kind, Value, ValueError};

/// One address of a database entry, without its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A host name or an IP address.
    Tcp(String),
    /// The folder that holds the socket `.s.PGSQL.PORT`.
    Unix(PathBuf),
    /// The same in Linux's abstract socket name space; the text is without its leading `@`.
    Abstract(String),
}

impl Host {
    /// Reads a host by its first character, as libpq does: `/` is a folder, `@` an abstract name.
    pub fn new(text: &str) -> Self {
        match text.as_bytes().first() {
            Some(b'/') => Self::Unix(PathBuf::from(text)),
            Some(b'@') => Self::Abstract(text[1..].to_owned()),
            _ => Self::Tcp(text.to_owned()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(name) => f.write_str(name),
            Self::Unix(folder) => write!(f, "{}", folder.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

impl Value for Vec<Host> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let hosts: Self =
            text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(Host::new).collect();
        match hosts.is_empty() {
            true => Err(ValueError::Expected("at least one host".to_owned())),
            false => Ok(hosts),
        }
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<_> = self.iter().map(Host::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_character_decides() {
        let hosts = Vec::<Host>::parse("db1, 10.0.0.1,/run/postgresql,@weir").unwrap();
        let expected = [
            Host::Tcp("db1".into()),
            Host::Tcp("10.0.0.1".into()),
            Host::Unix("/run/postgresql".into()),
            Host::Abstract("weir".into()),
        ];
        assert_eq!(hosts, expected);
        assert_eq!(hosts.show().as_deref(), Some("db1,10.0.0.1,/run/postgresql,@weir"));
    }

    #[test]
    fn a_list_without_a_host_is_an_error() {
        assert!(Vec::<Host>::parse(" , ").is_err());
    }
}
