//! The nodes of a cluster: a name and an address each.

use core::net::IpAddr;
use std::fmt;

use crate::host::Host;
use crate::value::{Kind, Value, ValueError};

/// PostgreSQL's default port.
pub(crate) const PORT: u16 = 5432;
const WEIGHT_MAX: u16 = 1000;

/// One node of an entry of `[clusters]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// A short name for the console and the log.
    pub name: String,
    pub host: Host,
    pub port: u16,
    /// Its share of the reads; 0 = none.
    pub weight: u16,
}

impl Node {
    fn new(text: &str) -> Option<Self> {
        let (name, address) = text.split_once('=')?;
        let (name, address) = (name.trim(), address.trim());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_plain) {
            return None;
        }
        let (address, weight) = match address.rsplit_once('*') {
            Some((address, weight)) => (address.trim(), weight.trim().parse().ok()?),
            None => (address, 1),
        };
        if weight > WEIGHT_MAX {
            return None;
        }
        let (host, port) = split(address)?;
        let port = match port {
            None => PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        };
        let name = name.to_owned();
        (!host.is_empty()).then(|| Self { name, host: Host::new(host), port, weight })
    }

    /// Is its host a name, which may have several addresses?
    #[must_use]
    pub fn is_named(&self) -> bool {
        match &self.host {
            Host::Tcp(host) => host.parse::<IpAddr>().is_err(),
            Host::Unix(_) | Host::Abstract(_) => false,
        }
    }

    /// Is it the same server under the same name?
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        (&self.name, &self.host, self.port) == (&other.name, &other.host, other.port)
    }

    /// Do two lists have the same servers in the same order?
    #[must_use]
    pub fn are_same_servers(one: &[Self], other: &[Self]) -> bool {
        one.len() == other.len()
            && one.iter().zip(other).all(|(own, same)| own.is_same_server(same))
    }
}

/// Splits `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`.
pub(crate) fn split(address: &str) -> Option<(&str, Option<&str>)> {
    match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest {
                "" => Some((host, None)),
                rest => Some((host, Some(rest.strip_prefix(':')?))),
            }
        }
        None => match address.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => None,
            Some((host, port)) => Some((host, Some(port))),
            None => Some((address, None)),
        },
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, host, port, weight } = self;
        match host {
            Host::Tcp(ip) if ip.contains(':') => write!(f, "{name}=[{ip}]:{port}"),
            Host::Tcp(_) | Host::Unix(_) | Host::Abstract(_) => write!(f, "{name}={host}:{port}"),
        }?;
        if *weight == 1 { Ok(()) } else { write!(f, "*{weight}") }
    }
}

impl Value for Vec<Node> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let nodes: Self = items.map(Node::new).collect::<Option<_>>().ok_or(ValueError::Nodes)?;
        let is_named_twice = |(at, node): (usize, &Node)| {
            nodes[..at].iter().any(|other| {
                other.name == node.name || (&other.host, other.port) == (&node.host, node.port)
            })
        };
        match nodes.is_empty() || nodes.iter().enumerate().any(is_named_twice) {
            true => Err(ValueError::Nodes),
            false => Ok(nodes),
        }
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<_> = self.iter().map(Node::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_name_a_host_and_perhaps_a_port() {
        let nodes =
            Vec::<Node>::parse("a=10.0.0.1, b = db2:5433 * 2,c=[::1]:5434*0,d=/run/pg").unwrap();
        let expected = [
            ("a", Host::Tcp("10.0.0.1".into()), 5432, 1),
            ("b", Host::Tcp("db2".into()), 5433, 2),
            ("c", Host::Tcp("::1".into()), 5434, 0),
            ("d", Host::Unix("/run/pg".into()), 5432, 1),
        ];
        let found: Vec<_> = nodes
            .iter()
            .map(|node| (&*node.name, node.host.clone(), node.port, node.weight))
            .collect();
        assert_eq!(found, expected);
        let text = nodes.show().unwrap();
        assert_eq!(text, "a=10.0.0.1:5432,b=db2:5433*2,c=[::1]:5434*0,d=/run/pg:5432");
        assert_eq!(Vec::<Node>::parse(&text).unwrap(), nodes);
    }

    #[test]
    fn lists_without_names_or_with_a_node_twice_are_refused() {
        for text in [
            "", " , ", "10.0.0.1", "=h", "a=", "a=h,a=g", "a=h,b=h", "a=h:0", "a=h:x", "a=::1",
            "a=[::1", "a=[::1]x", "a b=h", "a=h*", "a=h*x", "a=h*1001",
        ] {
            assert_eq!(Vec::<Node>::parse(text), Err(ValueError::Nodes), "{text:?}");
        }
    }
}
