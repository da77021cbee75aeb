//! The requests of clients, and the answers.

use std::time::Duration;

use super::clients::Level;

/// One request of a client.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) client: usize,
    pub(super) level: Level,
    pub(super) begin: Duration,
    pub(super) end: Duration,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A value was appended to a list.
    Append { list: u64, value: String, outcome: Outcome<()> },
    /// A value was written to a register. Each write gets the next version.
    Write { register: u64, value: String, outcome: Outcome<u64> },
    /// All values of a list.
    ReadList { list: u64, seen: Vec<String> },
    /// The version and the value of a register.
    ReadRegister { register: u64, seen: Option<(u64, String)> },
}

#[derive(Clone, Debug)]
pub(super) enum Outcome<T> {
    Acknowledged(T, Term),
    /// Weir has said that it was rolled back.
    RolledBack,
    /// It may have been done.
    Unknown,
}

/// The timeline and the node of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Term {
    pub(super) timeline: u32,
    pub(super) node: String,
}

impl What {
    /// Returns the term of an acknowledged write.
    pub(super) fn term(&self) -> Option<&Term> {
        match self {
            Self::Append { outcome: Outcome::Acknowledged((), term), .. }
            | Self::Write { outcome: Outcome::Acknowledged(_, term), .. } => Some(term),
            Self::Append { .. }
            | Self::Write { .. }
            | Self::ReadList { .. }
            | Self::ReadRegister { .. } => None,
        }
    }
}
