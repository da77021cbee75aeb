//! Patroni's list of the members of a cluster (`GET /cluster`), read from JSON. Plain data.
//!
//! The roles in it are not used: Weir asks the nodes.

use config::{Api, Host, Node};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::NODES_MAX;

const NAME_LEN_MAX: usize = 63;
/// PostgreSQL's default port.
const PORT: u16 = 5432;

/// The members of a cluster.
#[derive(Debug, Deserialize)]
pub(super) struct Members {
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    name: String,
    /// Missing before PostgreSQL has been started there.
    host: Option<String>,
    port: Option<u16>,
    api_url: Option<String>,
    #[serde(default)]
    tags: Map<String, Value>,
}

impl Members {
    /// # Errors
    /// When the text is not such a list, in words.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(text)
            .map_err(|error| format!("it is not a list of members: {error}"))?;
        match read.members.len() {
            0..=NODES_MAX => Ok(read),
            many => Err(format!("{many} members are too many")),
        }
    }

    /// Returns the nodes, by name.
    ///
    /// # Errors
    /// When there is none, or a member has no usable name or address.
    pub(super) fn nodes(&self) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        for member in &self.members {
            nodes.extend(member.node()?);
        }
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        for (at, node) in nodes.iter().enumerate() {
            let is_other = |other: &&Node| {
                other.name == node.name || (&other.host, other.port) == (&node.host, node.port)
            };
            if let Some(other) = nodes[..at].iter().find(is_other) {
                return Err(format!("members {other} and {node} are one by name or address"));
            }
        }
        match nodes.is_empty() {
            true => Err("no member has an address".to_owned()),
            false => Ok(nodes),
        }
    }

    /// Returns the API of a member, if it is known.
    pub(super) fn api(&self, name: &str) -> Option<Api> {
        let member = self.members.iter().find(|member| member.name == name)?;
        Api::new(member.api_url.as_deref()?)
    }
}

impl Member {
    /// Returns its node; none if it has no address yet.
    fn node(&self) -> Result<Option<Node>, String> {
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.chars().any(char::is_control) {
            return Err(format!("a member has the name {name:?}"));
        }
        let Some(host) = self.host.as_deref().filter(|host| !host.is_empty()) else {
            return Ok(None);
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if !host.chars().all(is_plain) || self.port == Some(0) {
            return Err(format!("member {name} has the address {host:?}"));
        }
        Ok(Some(Node {
            name: name.clone(),
            host: Host::Tcp(host.to_owned()),
            port: self.port.unwrap_or(PORT),
            weight: if self.is_tagged("noloadbalance") { 0 } else { 1 },
        }))
    }

    fn is_tagged(&self, tag: &str) -> bool {
        self.tags.get(tag).is_some_and(|value| match value {
            Value::Bool(is_set) => *is_set,
            Value::String(text) => text.eq_ignore_ascii_case("true"),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(members: &str) -> Result<Vec<String>, String> {
        let members = Members::read(format!("{{\"members\": [{members}]}}").as_bytes())?;
        Ok(members.nodes()?.iter().map(Node::to_string).collect())
    }

    #[test]
    fn members_with_an_address_are_nodes() {
        let text = r#"
            {"name": "b", "role": "replica", "state": "running", "host": "10.0.0.2", "port": 5433,
             "api_url": "http://10.0.0.2:8008/patroni", "timeline": 1, "lag": 0,
             "tags": {"noloadbalance": true, "nofailover": false}},
            {"name": "a", "role": "leader", "host": "db-a", "port": 5432},
            {"name": "c", "role": "replica", "state": "creating replica"}"#;
        assert_eq!(nodes(text).unwrap(), ["a=db-a:5432", "b=10.0.0.2:5433*0"]);
        let members = Members::read(format!("{{\"members\": [{text}]}}").as_bytes()).unwrap();
        assert_eq!(members.api("b").unwrap().to_string(), "10.0.0.2:8008");
        assert_eq!((members.api("a"), members.api("x")), (None, None));
    }

    #[test]
    fn nonsense_is_an_error() {
        let member = |text: &str| format!(r#"{{"name": "a", "host": "h"{text}}}"#);
        for (text, why) in [
            (r#"{"name": "c"}"#.to_owned(), "no member has an address"),
            (String::new(), "no member has an address"),
            ("5".to_owned(), "it is not a list of members: invalid type"),
            (r#"{"host": "h"}"#.to_owned(), "it is not a list of members: missing field `name`"),
            (member(r#", "port": 70000"#), "it is not a list of members: invalid value"),
            (member(r#", "port": 0"#), "member a has the address \"h\""),
            (r#"{"name": "a", "host": "/run"}"#.to_owned(), "member a has the address \"/run\""),
            (r#"{"name": "\n", "host": "h"}"#.to_owned(), "a member has the name \"\\n\""),
            (
                format!("{}, {}", member(""), r#"{"name": "b", "host": "h"}"#),
                "members a=h:5432 and b=h:5432 are one by name or address",
            ),
            (vec![member(""); 101].join(","), "101 members are too many"),
        ] {
            let error = nodes(&text).unwrap_err();
            assert!(error.starts_with(why), "{text}: {error}");
        }
        let deep = [b"[".repeat(1_000), b"]".repeat(1_000)].concat();
        for text in [&b""[..], b"<html>", b"{}", b"{\"members\": {}}", b"\xff\xfe", &deep] {
            assert!(Members::read(text).is_err());
        }
    }
}
