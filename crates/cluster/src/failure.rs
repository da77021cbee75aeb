//! Why a promotion is not begun, or has failed.

use crate::commits::Doubt;
use crate::fact::Lsn;

/// Why a promotion is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the cluster has no primary: {0}")]
    NoPrimary(String),
    #[error("node {0} is the primary already")]
    IsPrimary(String),
    #[error("node {node} cannot become the primary: it is {word}{why}")]
    Unfit { node: String, word: &'static str, why: String },
    #[error("node {node} cannot become the primary: it is {bytes} bytes behind")]
    Behind { node: String, bytes: u64 },
}

/// Why a promotion has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the members do not agree: {0}")]
    Disagreed(String),
    #[error("{servers} server connections were still in use after switchover_drain")]
    Busy { servers: u32 },
    #[error("the primary was lost: {0}")]
    PrimaryLost(String),
    #[error("node {node} is not fit any more: it is {word}")]
    TargetLost { node: String, word: &'static str },
    #[error("the end of the WAL is unknown: {0}")]
    NoMark(String),
    #[error("stop_command failed: {0}")]
    NotStopped(String),
    #[error("node {0} still accepts connections after stop_command")]
    StillRuns(String),
    #[error("node {0} has not replayed the end of the WAL in time")]
    NotReplayed(String),
    #[error("fence_command failed: {0}")]
    NotFenced(String),
    /// The cluster manager's words.
    #[error("{0}")]
    Refused(String),
    #[error("node {node} is still the primary{why}")]
    NotMoved { node: String, why: String },
    #[error("no standby of timeline {timeline} answers")]
    NoCandidate { timeline: u32 },
    #[error("committed transactions may be lost: {why}; at least {bytes} bytes are at risk")]
    Loss { why: Risk, bytes: u64 },
    #[error("node {node} was not promoted in time{why}")]
    NotPromoted { node: String, why: String },
    #[error("the order to promote a node was not sent: {0}")]
    Unsent(String),
    #[error("node {0} was promoted instead")]
    Another(String),
    #[error("the primary is back")]
    Returned,
    #[error("timeline {timeline} exists: another node was promoted")]
    NewTimeline { timeline: u32 },
    #[error(
        "node {0} was ordered to promote itself and does not answer as a standby: it may still \
         become the primary, so no other node is promoted"
    )]
    Ordered(String),
    #[error("{why}; then start_command failed: {trouble}")]
    NotStarted { why: Box<Self>, trouble: String },
    #[error("{why}; then start_command succeeded, but node {node} is not the primary again")]
    NotBack { why: Box<Self>, node: String },
}

/// Why an acknowledged commit may be on no standby that answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Risk {
    #[error("{missing} of the standbys do not answer, and commits waited for {quorum}")]
    Missing { missing: u32, quorum: u32 },
    #[error("no standby has received {since}, before which commits may have waited for others")]
    Behind { since: Lsn },
    #[error("{0}")]
    Doubt(#[from] Doubt),
}
