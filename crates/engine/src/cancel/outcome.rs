//! A cancel request under way, and its outcome: plain data.

use wire::startup::CancelKey;

use crate::ids::{ClientId, Micros, ServerId, WorkerId};

/// A cancel request on its way to PostgreSQL or to a peer.
#[derive(Debug)]
pub(crate) struct Cancel {
    pub to: To,
    /// The client that waits for the request to end; None if the server's own client was lost.
    pub requester: Option<(WorkerId, ClientId, u64)>,
    /// When it is tried again, if the peer could not be reached.
    pub again_at: Option<Micros>,
}

/// The destination of a cancel request.
#[derive(Debug)]
pub(crate) enum To {
    /// To the server in this slot, if its serial number still is the same.
    Server(ServerId, u64),
    /// To this peer, with the key from the client's request.
    Peer(u32, CancelKey),
    /// To the other process of an online restart.
    Process,
}

impl Cancel {
    pub(crate) fn new(to: To, requester: Option<(WorkerId, ClientId, u64)>) -> Self {
        Self { to, requester, again_at: None }
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
