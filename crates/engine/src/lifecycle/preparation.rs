//! The steps of preparing a server while its client is held back, and what follows for the client.
//! `lifecycle/prepare.rs` has their order.

use crate::ids::Newcomer;
use crate::login::auth_answer::AuthAnswer;
use crate::session::probe::Probe;

/// The question to a server, and the part of the answer that has arrived.
#[derive(Debug)]
pub struct PrincipalQuestion {
    pub answer: Option<Box<AuthAnswer>>,
    /// The client whose login waits for the answer.
    pub(crate) newcomer: Option<Newcomer>,
}

/// Can a client be read after its server has changed?
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    /// The client has a server that is ready.
    Now,
    /// The client waits, has lost its server, or has been closed.
    NotYet,
}

/// The step that Weir waits for before the client's bytes may be forwarded.
#[derive(Debug)]
pub enum Preparation {
    /// A stolen server may have unread messages: read them first. Messages of an idle server
    /// usually announce its end.
    Hear,
    /// The reply to `server_check_query`.
    Check,
    /// The server accepts the client's values of parameters.
    Apply,
    /// The server accepts the client's values, and gets this request of the client in the same
    /// write.
    Ahead(Vec<u8>),
    /// The server accepts the values in the other order, after it refused the usual one.
    Reapply,
    /// The server prepares the statements that the client has prepared by SQL.
    Statements,
    /// The server lists which of them exist.
    Recount(Option<Box<Probe>>),
    /// The refused batch ends (see [`crate::relay::kept_request`]).
    Unwind,
    /// The server prepares the refused statement again.
    Renew,
    /// The server prepares a statement that it does not have, and describes its result.
    Confirm,
    /// The server drops a client's settings, before `auth_query` runs.
    Restore,
    /// The reply to `auth_query`.
    Ask(Option<Box<AuthAnswer>>),
    /// A server without a client tells what a new server would be.
    TellPrincipal(Box<PrincipalQuestion>),
    /// Nothing is asked: a cancel request is under way, which would cancel Weir's own query.
    AwaitCancel,
    /// The server tells what the last transaction has left in the session. If the server has
    /// reported this, nothing is asked.
    Probe(Option<Box<Probe>>),
    /// The server sends a mark to the listener, and stops listening.
    HandOver,
    /// The server tells whether the client may signal another one. While Weir signals, nothing is
    /// asked.
    Signal(Option<Box<AuthAnswer>>),
    /// The server is put into a failed transaction, because the client's own was lost.
    Fail,
    /// The server begins the client's transaction, which a reader had begun.
    Begin,
}

impl Preparation {
    /// Returns the part of a probe's reply that has arrived.
    pub fn probe(&mut self) -> Option<&mut Option<Box<Probe>>> {
        match self {
            Self::Recount(probe) | Self::Probe(probe) => Some(probe),
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Ahead(_)
            | Self::Reapply
            | Self::Statements
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Restore
            | Self::Ask(_)
            | Self::TellPrincipal(_)
            | Self::AwaitCancel
            | Self::HandOver
            | Self::Signal(_)
            | Self::Fail
            | Self::Begin => None,
        }
    }

    /// Returns the part of the reply about a user that has arrived.
    pub fn auth_answer(&mut self) -> Option<&mut Option<Box<AuthAnswer>>> {
        match self {
            Self::Ask(answer) | Self::Signal(answer) => Some(answer),
            Self::TellPrincipal(question) => Some(&mut question.answer),
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Ahead(_)
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Restore
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver
            | Self::Fail
            | Self::Begin => None,
        }
    }

    /// Does this step certainly send a query, and nothing of the client's?
    pub fn asks(&self) -> bool {
        !matches!(self, Self::Signal(_) | Self::Ahead(_))
    }

    /// Was the client's request sent to the server?
    pub fn has_sent(&self) -> bool {
        matches!(self, Self::Ahead(_))
    }

    /// Is this step part of the client's own request?
    pub fn is_clients(&self) -> bool {
        match self {
            Self::Unwind | Self::Renew | Self::Confirm | Self::AwaitCancel => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Ahead(_)
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Restore
            | Self::Ask(_)
            | Self::TellPrincipal(_)
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_)
            | Self::Fail
            | Self::Begin => false,
        }
    }

    /// Does this step prepare a client's statement? That may wait for a lock, as the client's own
    /// request would.
    pub fn renews(&self) -> bool {
        match self {
            Self::Renew | Self::Confirm => true,
            Self::Hear
            | Self::Check
            | Self::Apply
            | Self::Ahead(_)
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Unwind
            | Self::Restore
            | Self::Ask(_)
            | Self::TellPrincipal(_)
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_)
            | Self::Fail
            | Self::Begin => false,
        }
    }

    /// Does this step restore or drop session state of a client?
    pub fn applies(&self) -> bool {
        match self {
            Self::Apply
            | Self::Ahead(_)
            | Self::Reapply
            | Self::Statements
            | Self::Recount(_)
            | Self::Restore => true,
            Self::Hear
            | Self::Check
            | Self::Unwind
            | Self::Renew
            | Self::Confirm
            | Self::Ask(_)
            | Self::TellPrincipal(_)
            | Self::AwaitCancel
            | Self::Probe(_)
            | Self::HandOver
            | Self::Signal(_)
            | Self::Fail
            | Self::Begin => false,
        }
    }
}
