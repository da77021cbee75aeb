//! Clients and servers that arrive from the predecessor after the start of an online restart,
//! because they were busy before.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use engine::{
    prepared::Statement,
    records::{ClientRecord, HandoverState, ServerRecord},
};

/// A client with its socket, and that of its server if it has one.
type ClientArrival = (ClientRecord, OwnedFd, Option<OwnedFd>);

/// The common part of a late hand-over for all workers, without the clients and servers.
#[derive(Debug)]
pub(crate) struct PredecessorState {
    pub(crate) handover_state: HandoverState,
    /// The statements in the records of each worker of the predecessor, by number.
    pub(crate) statements: Vec<HashMap<u64, Arc<Statement>>>,
}

/// The clients and servers that arrive at one worker.
#[derive(Debug)]
pub(crate) struct WorkerArrivals {
    pub(crate) state: Arc<PredecessorState>,
    /// One entry for each worker of the predecessor.
    pub(crate) parts: Vec<Arrivals>,
}

/// The clients and servers that one worker gets from one worker of the predecessor.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) clients: Vec<ClientArrival>,
    pub(crate) parked: Vec<(ServerRecord, OwnedFd)>,
}
