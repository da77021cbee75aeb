//! Connections that speak PostgreSQL's replication protocol (protocol chapter 55.4): how a client
//! requests it in its startup packet. `lifecycle/replicate.rs` and `engine/opening.rs` have the rest.

use wire::startup::StartupPacket;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationKind {
    /// `replication=true`: the write-ahead log of the whole cluster, base backups.
    Physical,
    /// `replication=database`: decoded changes of one database, and SQL.
    Logical,
}

impl ReplicationKind {
    /// Returns the value of the startup parameter for the server.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Physical => "yes",
            Self::Logical => "database",
        }
    }

    /// Returns the name that the console shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Logical => "logical",
        }
    }

    /// Returns None for PostgreSQL's forms of "no". Values that PostgreSQL would refuse also give
    /// None, as in PgBouncer.
    fn parse(value: &[u8]) -> Option<Self> {
        if value == b"database" {
            return Some(Self::Logical);
        }
        let value = value.to_ascii_lowercase();
        let begins = |word: &[u8]| !value.is_empty() && word.starts_with(&value);
        let yes = begins(b"true") || begins(b"yes") || value == b"on" || value == b"1";
        yes.then_some(Self::Physical)
    }
}

/// A replication client's request.
#[derive(Clone, Debug)]
pub struct Replication {
    pub kind: ReplicationKind,
    /// The client's `options`, which are passed on unchanged.
    pub options: Option<Vec<u8>>,
}

impl Replication {
    pub fn of(packet: &StartupPacket<'_>) -> Option<Box<Self>> {
        let kind = ReplicationKind::parse(packet.get("replication")?)?;
        Some(Box::new(Self { kind, options: packet.get("options").map(<[u8]>::to_vec) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_postgresql() {
        use ReplicationKind::{Logical, Physical};
        for (value, kind) in [
            ("true", Some(Physical)),
            ("T", Some(Physical)),
            ("yes", Some(Physical)),
            ("on", Some(Physical)),
            ("1", Some(Physical)),
            ("database", Some(Logical)),
            ("DATABASE", None),
            ("o", None),
            ("", None),
            ("false", None),
            ("off", None),
            ("0", None),
            ("truely", None),
        ] {
            assert_eq!(ReplicationKind::parse(value.as_bytes()), kind, "{value}");
        }
    }
}
