//! The outcome of a cancel request: plain data.

use crate::ids::{ClientId, WorkerId};

/// The client that has sent a cancel request or a signal: its worker, its slot, and its serial
/// number, which distinguishes it from later clients in the slot.
pub(crate) type Requester = (WorkerId, ClientId, u64);

/// Is a cancel request for a server under way? Until it is over, the server is linked to no other
/// client, whose query could be cancelled.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCancel(bool);

impl ServerCancel {
    #[inline]
    pub(crate) fn is_under_way(self) -> bool {
        self.0
    }

    pub(super) fn begin(&mut self) {
        self.0 = true;
    }

    pub(super) fn end(&mut self) {
        self.0 = false;
    }
}

/// The result of forwarding a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelEnd {
    /// The other side has read it and closed the connection.
    Taken,
    /// It could not be sent.
    Unsent,
    /// `cancel_wait_timeout` has passed. `sent`: the request may still be carried out.
    Late { sent: bool },
}

/// The outcome of a cancel request; of several answers the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelOutcome {
    /// No client has this key.
    Unknown,
    /// The key's client has no query running.
    Idle,
    /// It could not be forwarded.
    Unsent,
    /// It took longer than `cancel_wait_timeout`.
    Late,
    /// It was forwarded.
    Sent,
}

impl CancelOutcome {
    /// Returns the text for the log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "failed cancel request",
            Self::Idle => "cancel request for idle client",
            Self::Unsent => "cancel request could not be sent",
            Self::Late => "cancel_wait_timeout",
            Self::Sent => "successfully sent cancel request",
        }
    }
}

impl CancelEnd {
    /// Returns the text for the log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.outcome().reason()
    }

    /// Returns the outcome of a request that ended like this.
    #[must_use]
    pub fn outcome(self) -> CancelOutcome {
        match self {
            Self::Taken => CancelOutcome::Sent,
            Self::Unsent => CancelOutcome::Unsent,
            Self::Late { .. } => CancelOutcome::Late,
        }
    }
}
