//! Clients and servers that come from the process before this one, in a late hand-over of an online
//! restart.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use engine::{
    prepared::Statement,
    records::{ClientRecord, HandoverState, ServerRecord},
};

/// A client with its socket, and that of its server if it has one.
type ClientParts = (ClientRecord, OwnedFd, Option<OwnedFd>);

/// The part of a late hand-over that all workers need. The clients and servers are not in it.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) handover_state: HandoverState,
    /// Those of each old worker's records, by number.
    pub(crate) statements: Vec<HashMap<u64, Arc<Statement>>>,
}

/// The clients and servers that one worker gets.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) inheritance: Arc<Inheritance>,
    /// One for each worker of the old process.
    pub(crate) parts: Vec<Parts>,
}

/// The part that one worker gets of the records of one old worker.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) clients: Vec<ClientParts>,
    pub(crate) parked: Vec<(ServerRecord, OwnedFd)>,
}
