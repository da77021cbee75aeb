//! The connection of a server that is in no worker's table. It moves with the server: into its pool
//! and out of it, and from worker to worker.

use std::{
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::Arc,
};

use engine::ids::WorkerId;
use net::{
    sys::Address,
    tls::{ForServers, Tls},
};

use super::leases::LeaseEnd;

#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) fd: OwnedFd,
    /// The generation of the descriptor in the table of `home`.
    pub(crate) generation: u32,
    /// The worker whose epoll watches the socket.
    pub(crate) home: WorkerId,
    pub(crate) tls: Option<Box<Tls>>,
    pub(crate) remote: Option<Box<Remote>>,
}

/// The other end of a server's socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remote {
    pub(crate) address: Address,
    /// The host name that was connected to, which the certificate must name.
    pub(crate) host: Option<String>,
    /// The TLS with which it began, for cancel requests too: a reload may have changed the settings.
    pub(crate) tls: Option<ForServers>,
    /// The lease without which nothing may be sent to it: it is the writer of several Weirs.
    pub(crate) lease: Option<Arc<LeaseEnd>>,
}

/// The connection of a server as the console shows it.
#[derive(Clone, Debug)]
pub(crate) struct ServerSocket {
    /// -1 if the server has no socket yet.
    pub(crate) fd: RawFd,
    pub(crate) address: Address,
    /// A description of its TLS; empty without TLS.
    pub(crate) tls: String,
}

impl Transport {
    pub(crate) fn address(&self) -> Option<&Address> {
        self.remote.as_ref().map(|remote| &remote.address)
    }

    pub(crate) fn describe(&self) -> ServerSocket {
        ServerSocket {
            fd: self.fd.as_raw_fd(),
            address: self.address().cloned().unwrap_or_default(),
            tls: self.tls.as_deref().map_or_else(String::new, Tls::describe),
        }
    }
}
