//! The state of a process with its descriptors, as another process receives it.

use std::{
    collections::VecDeque,
    io, mem,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use engine::records::{HandoverState, Malformed, WorkerRecords};
use net::sys::rights;

use crate::frame::read_fds;
use crate::lobby::{Arrival, Arrived, Reserved};

/// Why nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error("cannot take over without unix_socket_dir")]
    NoSocket,
    #[error(
        "cannot take over: no process answers on {0}. If it is a socket of the service manager, \
         start Weir by the service manager"
    )]
    NoAnswer(String),
    #[error("the running process does not hand over: {0}")]
    Refused(String),
    #[error(
        "the running process is not Weir, and cannot hand over its connections: stop it, then start \
         Weir without -R"
    )]
    Foreign,
    #[error("the running process was lost while it handed over: {0}")]
    Lost(#[from] io::Error),
    #[error("the running process sent a state that cannot be read: {0}")]
    Malformed(#[from] Malformed),
    #[error("the running process sent a wrong number of descriptors, off by {0}")]
    Descriptors(usize),
}

/// Returns the head of a state: the numbers of listening sockets and of other descriptors after it.
pub(crate) fn head(listeners: usize, sockets: usize) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&(listeners as u32).to_be_bytes());
    head[4..].copy_from_slice(&(sockets as u32).to_be_bytes());
    head
}

/// Reads a head, the state and the descriptors.
pub(super) fn read_state(from: &UnixStream, body: &[u8]) -> Result<Received, TakeOverError> {
    let (counts, state) = body.split_at_checked(8).ok_or(TakeOverError::Foreign)?;
    let count = |at: usize| {
        counts[at..at + 4].iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte))
    };
    let (listeners, sockets) = (count(0), count(4));
    let mut handover_state = HandoverState::from_bytes(state)?;
    let expected: usize = handover_state.worker_records.iter().map(sockets_of).sum();
    if expected != sockets {
        return Err(TakeOverError::Descriptors(expected.abs_diff(sockets)));
    }
    let lobbies = mem::take(&mut handover_state.lobbies).into_iter();
    let mut arrived = Arrived::new();
    let lobbies: Vec<_> = lobbies.map(|record| Reserved::new(record, &mut arrived)).collect();
    let mut fds = VecDeque::from(read_fds(from, listeners + sockets)?);
    if fds.len() != listeners + sockets {
        return Err(TakeOverError::Descriptors(fds.len().abs_diff(listeners + sockets)));
    }
    let listeners = fds.drain(..listeners).collect();
    let lobbies = lobbies.into_iter();
    let lobbies = lobbies.map(|lobby| lobby.fill(|| rights::receive(from.as_raw_fd())));
    let lobbies = lobbies.collect::<io::Result<_>>()?;
    Ok(Received { handover_state, listeners, fds, lobbies })
}

/// A state and the descriptors that follow it.
pub(super) struct Received {
    pub(super) handover_state: HandoverState,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) fds: VecDeque<OwnedFd>,
    pub(super) lobbies: Vec<Arrival>,
}

/// Returns how many descriptors belong to the records of one worker.
fn sockets_of(records: &WorkerRecords) -> usize {
    let servers = records.clients.iter().filter(|client| client.server.is_some()).count();
    records.clients.len() + servers + records.parked.len() + records.attending.len()
}
