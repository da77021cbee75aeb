//! What a server is being asked while its client is held back. Which step follows which is in
//! `lifecycle/link.rs`.

use crate::login::auth_answer::AuthAnswer;
use crate::session::probe::Probe;

/// What a server is being asked before its client's bytes may follow.
#[derive(Debug)]
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
    Recount(Option<Box<Probe>>),
    /// Come to the end of the batch that was refused (see [`crate::relay::kept_request`]).
    Unwind,
    /// Prepare the refused statement anew.
    Renew,
    /// Prepare a statement that the server does not have, and tell what it returns now.
    Confirm,
    /// Drop a client's settings, before `auth_query` is asked.
    Restore,
    /// Answer `auth_query`.
    Ask(Option<Box<AuthAnswer>>),
    /// Nothing yet: a cancel request is under way that would hit the question.
    AwaitCancel,
    /// Tell what its client's last transaction has left in the session. Nothing is asked if the server
    /// has reported it.
    Probe(Option<Box<Probe>>),
    /// Send a mark to the listener, and listen no more.
    HandOver,
    /// Tell whether its client may signal another one; or nothing, while Weir does so.
    Signal(Option<Box<AuthAnswer>>),
}

impl Preparation {
    /// The answer to the probe, as far as it has come.
    pub fn probe(&mut self) -> Option<&mut Option<Box<Probe>>> {
        match self {
            Self::Recount(probe) | Self::Probe(probe) => Some(probe),
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Restore
            | Self::Ask(_)
            | Self::AwaitCancel
            | Self::HandOver
            | Self::Signal(_) => None,
        }
    }

    /// The answer to a question about a user, as far as it has come.
    pub fn auth_answer(&mut self) -> Option<&mut Option<Box<AuthAnswer>>> {
        match self {
            Self::Ask(answer) | Self::Signal(answer) => Some(answer),
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Restore
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver => None,
        }
    }

    /// Is the server asked something for certain?
    pub fn asks(&self) -> bool {
        !matches!(self, Self::Signal(_))
    }

    /// Does it answer what its client has asked?
    pub fn is_clients(&self) -> bool {
        match self {
            Self::Unwind | Self::Renew | Self::Confirm | Self::AwaitCancel => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Restore
            | Self::Ask(_)
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_) => false,
        }
    }

    /// Is a statement of the client's prepared? That may wait for a lock, as its own request would.
    pub fn renews(&self) -> bool {
        match self {
            Self::Renew | Self::Confirm => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Unwind
            | Self::Restore
            | Self::Ask(_)
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_) => false,
        }
    }

    /// Is the server being given what a client has in its session, or losing it?
    pub fn applies(&self) -> bool {
        match self {
            Self::Apply | Self::Reapply | Self::Statements | Self::Recount(_) | Self::Restore => {
                true
            }
            Self::Hear
            | Self::Check
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Ask(_)
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_) => false,
        }
    }
}
