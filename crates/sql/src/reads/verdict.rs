//! The verdict on a text: may it run on a standby? If not, the verdict has a reason.

/// The servers on which a text may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One statement that reads, outside a transaction block.
    Read,
    /// BEGIN or START TRANSACTION with READ ONLY. All of the transaction may run on a standby.
    ReadOnlyTransaction,
    Refused(Refusal),
}

/// A reason for the primary, as SHOW ROUTES counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    Empty,
    Unclear,
    Several,
    Command,
    Transaction,
    Serializable,
    Writes,
    Locks,
    Analyze,
    Copy,
    Sequence,
    Session,
    Opaque,
    Node,
    Name,
}

impl Refusal {
    pub const ALL: [Self; 15] = [
        Self::Empty,
        Self::Unclear,
        Self::Several,
        Self::Command,
        Self::Transaction,
        Self::Serializable,
        Self::Writes,
        Self::Locks,
        Self::Analyze,
        Self::Copy,
        Self::Sequence,
        Self::Session,
        Self::Opaque,
        Self::Node,
        Self::Name,
    ];

    /// Returns the word for this reason on the console and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Unclear => "unclear",
            Self::Several => "several",
            Self::Command => "command",
            Self::Transaction => "transaction",
            Self::Serializable => "serializable",
            Self::Writes => "writes",
            Self::Locks => "locks",
            Self::Analyze => "analyze",
            Self::Copy => "copy",
            Self::Sequence => "sequence",
            Self::Session => "session",
            Self::Opaque => "opaque",
            Self::Node => "node",
            Self::Name => "name",
        }
    }

    /// Returns the reason as a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Empty => "The text has no statement.",
            Self::Unclear => "Weir cannot read the text for certain.",
            Self::Several => "The text has more than one statement.",
            Self::Command => "The statement's first word is not that of a read.",
            Self::Transaction => "The transaction is not READ ONLY.",
            Self::Serializable => "A standby runs no SERIALIZABLE or DEFERRABLE transaction.",
            Self::Writes => "The statement contains a word that writes.",
            Self::Locks => "The statement takes a lock.",
            Self::Analyze => "EXPLAIN ANALYZE runs on the primary.",
            Self::Copy => "Of COPY, only COPY ... TO STDOUT is a read.",
            Self::Sequence => "The statement uses a sequence.",
            Self::Session => "The statement uses or changes the state of the session.",
            Self::Opaque => "The statement runs SQL that its text does not show.",
            Self::Node => "The statement's result depends on the node.",
            Self::Name => "A function, operator or relation of this name needs the primary.",
        }
    }
}
