//! The address of a PostgreSQL server. Names are not resolved here.

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
    /// A name in Linux's abstract socket name space, without its leading `@`.
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
            true => Err(ValueError::Hosts),
            false => Ok(hosts),
        }
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<_> = self.iter().map(Host::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

/// The ports of a database entry: one for all its hosts, or one for each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ports(Vec<u16>);

impl Ports {
    /// Returns the port of the host at this position of the list.
    pub fn of(&self, host: usize) -> u16 {
        self.0.get(host).or(self.0.first()).copied().unwrap_or_default()
    }

    /// Is there one port, or as many as hosts?
    pub fn fit(&self, hosts: usize) -> bool {
        self.0.len() == 1 || self.0.len() == hosts
    }
}

impl From<u16> for Ports {
    fn from(port: u16) -> Self {
        Self(vec![port])
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl Value for Ports {
    const KIND: Kind = Kind::Numbers;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let ports: Vec<u16> =
            text.split(',').map(<u16 as Value>::parse).collect::<Result<_, _>>()?;
        match ports.contains(&0) {
            true => Err(ValueError::Ports),
            false => Ok(Self(ports)),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_for_all_hosts_or_each_has_its_own() {
        let one = Ports::parse("5432").unwrap();
        assert_eq!((one.of(0), one.of(2)), (5432, 5432));
        assert!(one.fit(0) && one.fit(3));
        let two = Ports::parse("5432, 5433").unwrap();
        assert_eq!((two.of(0), two.of(1)), (5432, 5433));
        assert!(two.fit(2) && !two.fit(1) && !two.fit(3));
        assert_eq!(two.show().as_deref(), Some("5432,5433"));
        for text in ["", "0", "5432,", "5432,x", "65536"] {
            assert!(Ports::parse(text).is_err(), "{text:?}");
        }
    }

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
