//! A time in which a cluster has no primary.

use crate::ids::Micros;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub why: String,
    pub since: Micros,
    pub kind: OutageKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutageKind {
    /// Weir changes the primary by order of an operator. That ends by itself, so `failover_wait`
    /// does not apply.
    Planned,
    /// The last primary does not answer. Connections to it may never end by themselves.
    Silent,
    #[default]
    Other,
}
