//! What becomes of a cancel request.

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
pub enum CancelFate {
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

impl CancelFate {
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
        self.fate().reason()
    }

    /// What became of the request, ended so.
    #[must_use]
    pub fn fate(self) -> CancelFate {
        match self {
            Self::Taken => CancelFate::Sent,
            Self::Unsent => CancelFate::Unsent,
            Self::Late { .. } => CancelFate::Late,
        }
    }
}
