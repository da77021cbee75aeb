//! A time in which a cluster has no primary.

use crate::ids::Micros;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub why: String,
    pub since: Micros,
    pub kind: OutageKind,
}

impl Outage {
    /// Has an operator ordered it?
    pub fn is_ordered(&self) -> bool {
        matches!(self.kind, OutageKind::Planned | OutageKind::Resuming)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutageKind {
    /// Weir changes the primary by order of an operator. That ends by itself, so `failover_wait`
    /// does not apply.
    Planned,
    /// Such a change is over. Listeners are opened before clients go on, which takes a moment.
    Resuming,
    /// The last primary does not answer. Connections to it may never end by themselves.
    Silent,
    #[default]
    Other,
}
