//! The result of showing a server's message to the ledger.

use super::entry::Expect;

/// The receiver of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client,
    Nobody,
}

/// The server has sent a message that it does not owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server sent message {code:?} instead of {expected:?}")]
pub struct Unexpected {
    pub code: char,
    pub expected: Option<Expect>,
}

/// The effect of a message on the ledger.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    pub owner: Owner,
    /// Serial number of the entry that the message belongs to; 0 = none.
    pub serial: u64,
    /// The statement that the entry names on the server.
    pub statement: u64,
    /// The client's name for the statement, if this answers a Parse that must fail because the name
    /// is in use.
    pub taken: Option<Box<[u8]>>,
}

impl Settled {
    /// A message that belongs to no entry.
    pub fn unowed() -> Self {
        Self { owner: Owner::Client, serial: 0, statement: 0, taken: None }
    }
}
