//! The requests of clients, and the answers.

use std::time::Duration;

use super::clients::Level;

/// One request of a client.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) client: usize,
    /// The number of the client's connection.
    pub(super) session: usize,
    pub(super) level: Level,
    pub(super) begin: Duration,
    pub(super) end: Duration,
    pub(super) what: What,
}

/// A list or a register, to which each write adds a value. A list keeps all values. A register has only the last one, with
/// the number of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    List(u64),
    Register(u64),
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Write { key: Key, value: String, outcome: Outcome },
    Read { key: Key, seen: Seen, place: Place },
}

/// The end of a write.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Acknowledged(Done),
    /// Weir has said that it was rolled back, or its COMMIT was not sent.
    RolledBack,
    /// It may have been committed. Before its COMMIT, the node may have said where it was done.
    Unknown(Option<Done>),
}

/// A write that a node has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) term: Term,
    /// The number of values with it.
    pub(super) number: u64,
}

/// A timeline, and the node that is its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) timeline: u32,
    pub(super) node: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    All(Vec<String>),
    /// The number of values, and the last one.
    Last(u64, String),
}

/// The node that has run a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Primary(Term),
    Standby { node: String },
}

impl What {
    /// Returns the term of a primary that has answered this.
    pub(super) fn term(&self) -> Option<&Term> {
        match self {
            Self::Write { outcome: Outcome::Acknowledged(done), .. }
            | Self::Write { outcome: Outcome::Unknown(Some(done)), .. } => Some(&done.term),
            Self::Read { place: Place::Primary(term), .. } => Some(term),
            Self::Write { .. } | Self::Read { .. } => None,
        }
    }

    pub(super) fn is_acknowledged_write(&self) -> bool {
        matches!(self, Self::Write { outcome: Outcome::Acknowledged(_), .. })
    }

    pub(super) fn is_standby_read(&self) -> bool {
        matches!(self, Self::Read { place: Place::Standby { .. }, .. })
    }
}
