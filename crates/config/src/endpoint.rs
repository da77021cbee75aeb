//! The services that a cluster names: Patroni's REST API, host names in DNS, and etcd.

use std::fmt;

use crate::node::{PORT, split};
use crate::value::{Kind, Value, ValueError};

/// Patroni's default port.
const API_PORT: u16 = 8008;
/// Etcd's default port for clients.
const ETCD_PORT: u16 = 2379;

/// A host with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

/// The REST API of one Patroni.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    pub is_tls: bool,
    pub endpoint: Endpoint,
}

/// The API of one member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdApi(Api);

impl Endpoint {
    fn new(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = split(text)?;
        let port = match port {
            None => default_port,
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let is_host = !host.is_empty() && host.chars().all(is_plain);
        is_host.then(|| Self { host: host.to_owned(), port })
    }
}

impl Api {
    /// Reads `HOST:PORT`, or a URL without a path. Patroni itself puts `/patroni` behind its URLs.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        Self::at(text.strip_suffix("/patroni").unwrap_or(text), API_PORT)
    }

    fn at(text: &str, default_port: u16) -> Option<Self> {
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => (false, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        Some(Self { is_tls, endpoint: Endpoint::new(rest, default_port)? })
    }
}

impl EtcdApi {
    /// Returns the URL, with `http` or `https` and the port.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.0.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.0.endpoint)
    }

    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.is_tls
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_tls { "https://" } else { "" }, self.endpoint)
    }
}

impl fmt::Display for EtcdApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses a list in which nothing is twice.
pub(crate) fn list<T: PartialEq>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let all: Vec<T> = items.map(parse).collect::<Option<_>>()?;
    let is_twice = |(at, item): (usize, &T)| all[..at].contains(item);
    (!all.is_empty() && !all.iter().enumerate().any(is_twice)).then_some(all)
}

pub(crate) fn shown<T: fmt::Display>(all: &[T]) -> Option<String> {
    let texts: Vec<_> = all.iter().map(T::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

impl Value for Vec<Api> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        list(text, Api::new).ok_or(ValueError::Apis)
    }

    fn show(&self) -> Option<String> {
        shown(self)
    }
}

impl Value for Vec<EtcdApi> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        list(text, |item| Api::at(item, ETCD_PORT).map(EtcdApi)).ok_or(ValueError::EtcdApis)
    }

    fn show(&self) -> Option<String> {
        shown(self)
    }
}

impl Value for Vec<Endpoint> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        list(text, |item| Endpoint::new(item, PORT)).ok_or(ValueError::HostNames)
    }

    fn show(&self) -> Option<String> {
        shown(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_an_address_or_a_url() {
        let text = "10.0.0.1, db2:9008,https://db3,http://[::1]:8009/, http://db4:1/patroni";
        let apis = Vec::<Api>::parse(text).unwrap();
        let shown = apis.show().unwrap();
        assert_eq!(shown, "10.0.0.1:8008,db2:9008,https://db3:8008,[::1]:8009,db4:1");
        assert_eq!(Vec::<Api>::parse(&shown).unwrap(), apis);
        for text in ["", "a,a:8008", "ftp://a", "http://", "a/b", "a:0", "a:b", "user@a", "a b"] {
            assert_eq!(Vec::<Api>::parse(text), Err(ValueError::Apis), "{text:?}");
        }
    }

    #[test]
    fn etcd_has_a_port_of_its_own() {
        let apis = Vec::<EtcdApi>::parse("10.0.0.1, https://etcd2/,[::1]:2380").unwrap();
        assert_eq!(apis.show().unwrap(), "10.0.0.1:2379,https://etcd2:2379,[::1]:2380");
        let urls: Vec<_> = apis.iter().map(EtcdApi::url).collect();
        assert_eq!(urls, ["http://10.0.0.1:2379", "https://etcd2:2379", "http://[::1]:2380"]);
        assert_eq!(Vec::<EtcdApi>::parse("a/patroni"), Err(ValueError::EtcdApis));
    }

    #[test]
    fn a_host_name_has_postgresqls_port() {
        let names = Vec::<Endpoint>::parse("db.example.org, db2:5433").unwrap();
        assert_eq!(names.show().unwrap(), "db.example.org:5432,db2:5433");
        for text in [" , ", "a,a", "/run/pg", "@pg", "a:99999"] {
            assert_eq!(Vec::<Endpoint>::parse(text), Err(ValueError::HostNames), "{text:?}");
        }
    }
}
