//! A cancel request under way, and what becomes of it: plain data.

use wire::startup::CancelKey;

use crate::ids::{ClientId, Micros, ServerId, WorkerId};

/// A request on its way to PostgreSQL, or to a peer.
#[derive(Debug)]
pub(crate) struct Cancel {
    pub to: To,
    /// The client that waits for it to be over; none, if it is for a client that was lost.
    pub requester: Option<(WorkerId, ClientId, u64)>,
    /// When it is tried again, if the peer could not be reached.
    pub again_at: Option<Micros>,
}

/// Where a request goes.
#[derive(Debug)]
pub(crate) enum To {
    /// To this server, with its serial number: is the one in that slot still the one that was meant?
    Server(ServerId, u64),
    /// To this peer, and the key that its client named.
    Peer(u32, CancelKey),
    /// To the other process of an online restart.
    Process,
}

impl Cancel {
    pub(crate) fn new(to: To, requester: Option<(WorkerId, ClientId, u64)>) -> Self {
        Self { to, requester, again_at: None }
    }
}

/// How passing on a cancel request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelEnd {
    /// The other side has taken it and closed the connection.
    Taken,
    /// It could not be sent.
    Unsent,
    /// `cancel_wait_timeout` has passed. `sent`: it may be carried out at any moment.
    Late { sent: bool },
}

/// What became of a cancel request; of several answers the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelOutcome {
    /// Nobody has that key.
    Unknown,
    /// Its owner waits for nothing.
    Idle,
    /// It could not be passed on.
    Unsent,
    /// It took longer than `cancel_wait_timeout`.
    Late,
    /// It was passed on.
    Sent,
}

impl CancelOutcome {
    /// For the log.
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
    /// For the log.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.outcome().reason()
    }

    /// What became of the request, ended so.
    #[must_use]
    pub fn outcome(self) -> CancelOutcome {
        match self {
            Self::Taken => CancelOutcome::Sent,
            Self::Unsent => CancelOutcome::Unsent,
            Self::Late { .. } => CancelOutcome::Late,
        }
    }
}
