//! One entry of the ledger: a message that the server has to answer. The entry says what Weir does
//! with the answer, and what must be undone if the server discards the message.

use std::sync::Arc;

use crate::relay::prepared::Statement;
use crate::session::state::Lent;

/// A message that the server has to answer. The variant tells which reply completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Completed by ReadyForQuery.
    Query,
    /// Completed by ReadyForQuery.
    FunctionCall,
    /// Completed by ReadyForQuery.
    Sync,
    Parse,
    Bind,
    /// Completed by RowDescription or NoData.
    Describe,
    /// Completed by CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    Close,
    /// CopyDone or CopyFail: never answered, but its place in the order matters.
    CopyEnd,
    /// A Sync and a Close of Weir's: completed by CloseComplete, after any number of ReadyForQuery.
    Count,
}

/// The way in which Weir treats a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The reply goes to the linked client.
    Forward,
    /// The reply answers a message of Weir's own and is discarded. An error in its place goes to
    /// the client.
    Swallow,
    /// Weir did not send the message to the server, and makes up this reply when its turn comes.
    Synthesize(Reply),
    /// Like Forward, but in an error text, Weir's name for the statement is replaced by the
    /// client's.
    Replace,
    /// A repeated Describe: the client already has the parameters and gets the rest.
    Continue,
    /// The reply answers a message of Weir's own that concerns no client. It is discarded, errors
    /// included.
    Internal,
}

/// Replies that Weir can make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    ParseComplete,
    CloseComplete,
    /// A notice that the next statement needs a session of its own (`auto_unsupported = warn`).
    Unsupported,
}

/// The records to restore if the server discards this message.
#[derive(Clone, Debug)]
pub enum Undo {
    /// Nothing. The client's Parse used a name that it already has, so it must fail.
    Taken { name: Box<[u8]> },
    /// The client's Parse: the client does not get the name. If the statement was sent, the server
    /// does not have it either.
    Parse { name: Arc<[u8]>, statement: Arc<Statement>, sent: bool },
    /// The client's Close: the client still has the name, from the Parse with that serial number.
    /// `lent`: the server also had the statement under that name.
    Close { name: Arc<[u8]>, statement: Arc<Statement>, since: u64, lent: Option<Lent> },
    /// A Parse of Weir's: the server does not have the statement.
    Prepare { statement: Arc<Statement> },
    /// A Close of Weir's: the server may still have the statement.
    Evict { statement: Arc<Statement> },
    /// The client's Parse of its unnamed statement. If it failed, there is no unnamed statement
    /// now. If the server discarded it, the previous one remains.
    ParseUnnamed { before: u64, message: Vec<u8> },
    /// The client's Query or Close: its unnamed statement remains.
    DropUnnamed { before: u64 },
    /// A Parse of Weir's: the server does not have the client's unnamed statement.
    PrepareUnnamed,
    /// A Parse of Weir's that lends a statement: the server does not have it.
    Lend { name: Arc<[u8]> },
}

impl Undo {
    /// Number of the statement that the message makes or closes on the server.
    pub(super) fn changed_statement(&self) -> Option<u64> {
        match self {
            Self::Parse { statement, sent: true, .. }
            | Self::Prepare { statement }
            | Self::Evict { statement } => Some(statement.id),
            Self::Taken { .. }
            | Self::Parse { .. }
            | Self::Close { .. }
            | Self::ParseUnnamed { .. }
            | Self::DropUnnamed { .. }
            | Self::PrepareUnnamed
            | Self::Lend { .. } => None,
        }
    }

    /// Bytes that it keeps. A shared statement counts in full.
    pub(super) fn bytes(&self) -> usize {
        let kept = match self {
            Self::Taken { name } => name.len(),
            Self::Parse { name, statement, .. } | Self::Close { name, statement, .. } => {
                name.len() + statement.bytes()
            }
            Self::Prepare { statement } | Self::Evict { statement } => statement.bytes(),
            Self::ParseUnnamed { message, .. } => message.len(),
            Self::DropUnnamed { .. } | Self::PrepareUnnamed | Self::Lend { .. } => 0,
        };
        size_of::<Self>() + kept
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub expect: Expect,
    pub verb: Verb,
    /// From the worker's message counter. Orders the entries of one pipeline.
    pub serial: u64,
    /// The statement that a Bind, Describe or Parse names on the server; 0 = none of Weir's.
    pub statement: u64,
    pub undo: Option<Box<Undo>>,
    /// The message itself failed. False if the server discarded it.
    pub failed: bool,
}

impl Entry {
    pub fn new(expect: Expect, verb: Verb) -> Self {
        Self { expect, verb, serial: 0, statement: 0, undo: None, failed: false }
    }

    pub fn undo(mut self, undo: Undo) -> Self {
        self.undo = Some(Box::new(undo));
        self
    }

    /// Is it a message of Weir's own that concerns no client?
    pub(super) fn is_weirs(&self) -> bool {
        self.verb == Verb::Internal
    }

    /// Is it answered with ReadyForQuery?
    pub(super) fn ends_batch(&self) -> bool {
        matches!(self.expect, Expect::Query | Expect::FunctionCall | Expect::Sync)
    }

    /// Does the server wait for a Sync after this message?
    pub(super) fn opens_batch(&self) -> bool {
        let extended = match self.expect {
            Expect::Parse | Expect::Bind | Expect::Describe | Expect::Execute | Expect::Close => {
                true
            }
            Expect::Query
            | Expect::FunctionCall
            | Expect::Sync
            | Expect::CopyEnd
            | Expect::Count => false,
        };
        extended && self.synthesized().is_none()
    }

    /// Bytes that it keeps for undoing.
    pub(super) fn undo_bytes(&self) -> usize {
        self.undo.as_deref().map_or(0, Undo::bytes)
    }

    /// Does it change the client's unnamed statement?
    pub(super) fn changes_unnamed(&self) -> bool {
        matches!(self.undo.as_deref(), Some(Undo::ParseUnnamed { .. } | Undo::DropUnnamed { .. }))
    }

    pub(super) fn synthesized(&self) -> Option<Reply> {
        match self.verb {
            Verb::Synthesize(reply) => Some(reply),
            Verb::Forward | Verb::Swallow | Verb::Replace | Verb::Continue | Verb::Internal => None,
        }
    }
}
