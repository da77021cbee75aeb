//! Connections that speak PostgreSQL's replication protocol (protocol chapter 55.4): what a client
//! says about that in its startup packet. What is done for it is in `lifecycle/replicate.rs`.

use wire::startup::StartupPacket;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationKind {
    /// `replication=true`: the write-ahead log of the whole cluster, base backups.
    Physical,
    /// `replication=database`: decoded changes of one database, and SQL.
    Logical,
}

impl ReplicationKind {
    /// The value of the startup parameter, as the server gets it.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Physical => "yes",
            Self::Logical => "database",
        }
    }

    /// As the console calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Logical => "logical",
        }
    }

    /// None for what PostgreSQL takes for "no", and, as in PgBouncer, for what it would refuse.
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

/// What a replicating client has asked for.
#[derive(Clone, Debug)]
pub struct Replication {
    pub kind: ReplicationKind,
    /// Its `options`, which the server gets as they are.
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
