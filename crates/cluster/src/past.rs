//! The steps that Weir has done about the loss of one primary, kept for the next attempt.

use crate::cluster::NodeId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The lost primary, and its timeline.
    pub(crate) of: Option<(NodeId, u32)>,
    /// `fence_command` has succeeded.
    pub(crate) is_fenced: bool,
    /// The node that was ordered to promote itself. It may do so at any time.
    pub(crate) ordered: Option<NodeId>,
}

impl Past {
    /// Returns the record of a new loss of this primary: nothing is done yet.
    pub(crate) fn of(primary: NodeId, timeline: u32) -> Self {
        Self { of: Some((primary, timeline)), ..Self::default() }
    }

    /// Returns the record of another process about the loss of this primary.
    #[must_use]
    pub fn resumed(
        primary: NodeId,
        timeline: u32,
        is_fenced: bool,
        ordered: Option<NodeId>,
    ) -> Self {
        Self { of: Some((primary, timeline)), is_fenced, ordered }
    }

    /// Returns what was done about the loss of this primary: nothing, if it is another loss.
    pub(crate) fn about(self, primary: NodeId, timeline: u32) -> Self {
        if self.is_about(primary, timeline) { self } else { Self::of(primary, timeline) }
    }

    pub(crate) fn is_about(&self, primary: NodeId, timeline: u32) -> bool {
        self.of == Some((primary, timeline))
    }

    /// Learns that there is a primary. The old one may have come back; then the next loss needs
    /// another fence, and a node that was ordered may still promote itself.
    pub fn opened(&mut self, timeline: u32) {
        match self.of {
            Some((_, lost)) if timeline <= lost => self.is_fenced = false,
            Some(_) | None => *self = Self::default(),
        }
    }

    /// Returns the node that may still promote itself by Weir's order.
    #[must_use]
    pub fn ordered(&self) -> Option<NodeId> {
        self.ordered
    }
}
