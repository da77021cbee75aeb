//! What a server is being asked while its client is held back. Which step follows which is in
//! `lifecycle/link.rs`.

/// What a server is being asked before its client's bytes may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Nothing yet: another worker had it and may not have read all that it has said. An idle server
    /// has nothing to say but bad news.
    Hear,
    /// Is it alive (`server_check_query`)?
    Check,
    /// Take the client's values of parameters.
    Apply,
    /// The same in another order, the server having refused it in the usual one.
    Reapply,
    /// Prepare statements that the client has prepared by SQL.
    Statements,
    /// Tell which of them there are.
    Recount,
    /// Come to the end of the batch that was refused (see [`crate::relay::kept_request`]).
    Unwind,
    /// Prepare the refused statement anew.
    Renew,
    /// Prepare a statement that the server does not have, and tell what it returns now.
    Confirm,
    /// Drop a client's settings, before `auth_query` is asked.
    Restore,
    /// Answer `auth_query`.
    Ask,
    /// Nothing yet: a cancel request is under way that would hit the question.
    AwaitCancel,
    /// Tell what its client's last transaction has left in the session.
    Probe,
    /// Send a mark to the listener, and listen no more.
    HandOver,
    /// Tell whether its client may signal another one; or nothing, while Weir does so.
    Signal,
}

impl Preparation {
    /// Is the server asked something for certain?
    pub fn asks(self) -> bool {
        self != Self::Signal
    }

    /// Does it answer what its client has asked?
    pub fn is_clients(self) -> bool {
        match self {
            Self::Unwind | Self::Renew | Self::Confirm | Self::AwaitCancel => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Recount
            | Self::Restore
            | Self::Ask
            | Self::Probe
            | Self::HandOver
            | Self::Signal => false,
        }
    }

    /// Is a statement of the client's prepared? That may wait for a lock, as its own request would.
    pub fn renews(self) -> bool {
        match self {
            Self::Renew | Self::Confirm => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Recount
            | Self::Unwind
            | Self::Restore
            | Self::Ask
            | Self::AwaitCancel
            | Self::Probe
            | Self::HandOver
            | Self::Signal => false,
        }
    }

    /// Is the server being given what a client has in its session, or losing it?
    pub fn applies(self) -> bool {
        match self {
            Self::Apply | Self::Reapply | Self::Statements | Self::Recount | Self::Restore => true,
            Self::Hear
            | Self::Check
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Ask
            | Self::AwaitCancel
            | Self::Probe
            | Self::HandOver
            | Self::Signal => false,
        }
    }
}
