//! The results for one node, each with its reason.

use crate::fact::Lsn;

/// The use that a node is fit for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node has not answered since the start, or since it was down.
    Unknown(Reason),
    /// The primary: all transactions go there.
    Writable,
    /// A standby that follows the primary.
    Readable,
    /// The node answers, but is not to be used.
    Unfit(Reason),
    /// The node accepts writes, but is not the cluster's primary.
    FalsePrimary(Reason),
    Down(Reason),
}

impl Verdict {
    /// Returns the word for SHOW NODES and the log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown",
            Self::Writable => "writable",
            Self::Readable => "readable",
            Self::Unfit(_) => "unfit",
            Self::FalsePrimary(_) => "false primary",
            Self::Down(_) => "down",
        }
    }

    /// Returns the reason, if the node is not used as what it claims to be.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Writable | Self::Readable => None,
            Self::Unknown(reason)
            | Self::Unfit(reason)
            | Self::FalsePrimary(reason)
            | Self::Down(reason) => Some(reason),
        }
    }
}

/// Why a node is not used, or why a cluster has no primary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("not asked yet")]
    NotAsked,
    #[error("cannot be asked: {0}")]
    Obstacle(String),
    #[error("connections are refused")]
    Refused,
    #[error("no answer")]
    Silent,
    #[error("PostgreSQL starts or shuts down")]
    Unready,
    #[error("system identifier {own}, the cluster has {cluster}")]
    Stranger { own: u64, cluster: u64 },
    #[error("system identifier {own}, and the nodes do not agree on one")]
    NoIdentifier { own: u64 },
    #[error("timeline {own}, and timeline {newest} exists")]
    OldTimeline { own: u32, newest: u32 },
    #[error("the primary of timeline {timeline} is node {primary}")]
    SecondOfTimeline { timeline: u32, primary: String },
    #[error("another server was the primary of timeline {timeline} at the same time")]
    Beside { timeline: u32 },
    #[error(
        "an older copy of the primary: it had WAL up to {own}, and the primary up to {primary}"
    )]
    OldCopy { own: Lsn, primary: Lsn },
    #[error("the same server as node {node}")]
    SameServer { node: String },
    #[error("PostgreSQL was restarted")]
    Restarted,
    #[error("the same server has the address of node {node} now")]
    Moved { node: String },
    #[error("nodes {} claim to be primary on timeline {timeline}", .nodes.join(" and "))]
    TwoPrimaries { timeline: u32, nodes: Vec<String> },
    #[error("the cluster has no primary")]
    NoPrimary,
    #[error("does not stream from a primary")]
    NotStreaming,
    #[error("waiting for the first answer of node {0}")]
    WaitsFor(String),
    #[error("no node of timeline {timeline} accepts writes")]
    NoneWrites { timeline: u32 },
    #[error("primary {node} is lost: {why}")]
    Lost { node: String, why: Box<Self> },
    #[error("the nodes have different system identifiers, and no majority has the same")]
    Strangers,
    #[error("no node answers")]
    NobodyAnswers,
    #[error("its nodes are not known yet")]
    NoNodes,
    #[error("it is not a node of the cluster any more")]
    Removed,
    #[error("detached by an operator")]
    Detached,
}
