//! A worker's requests to the cold side.

use std::{os::fd::OwnedFd, sync::Arc};

use engine::{
    client::Identity,
    ids::{ClientId, ServerId, WorkerId},
    shell::{Check, ConsoleLogin, Wanted},
};
use wire::startup::CancelKey;

use super::{mail::ShellHub, peer::Peer};
use net::tls::Tls;

/// A worker's request to the cold thread.
#[derive(Debug)]
pub(crate) enum ColdRequest {
    Resolve(Question),
    /// A connection from a proxy, which must announce its client.
    Arrival(Arrival),
    Check(Inquiry),
    Password(PasswordRequest),
    Console(ConsoleRequest),
}

/// A worker's request to look up a host name.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// It is a node of a cluster, of which one address is used.
    pub(crate) is_node: bool,
    pub(crate) worker: WorkerId,
    pub(crate) ticket: u64,
}

/// A connection from a proxy, accepted by a worker.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    /// The proxy.
    pub(crate) peer: Peer,
    pub(crate) worker: WorkerId,
    /// Counts the client among those that are logging in.
    pub(crate) seat: Arc<()>,
}

/// A worker's request to check a client that logs in.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) worker: WorkerId,
    pub(crate) client: ClientId,
    pub(crate) serial: u64,
    pub(crate) check: Check,
    /// The client's address, without a port.
    pub(crate) host: String,
}

/// A worker's request for the password of a server's login.
#[derive(Debug)]
pub(crate) struct PasswordRequest {
    pub(crate) worker: WorkerId,
    pub(crate) server: ServerId,
    pub(crate) serial: u64,
    pub(crate) wanted: Wanted,
}

/// A client that logged in to the console database. Its socket is non-blocking.
#[derive(Debug)]
pub struct ConsoleConnection {
    pub fd: OwnedFd,
    /// The TLS state, if the connection uses TLS.
    pub tls: Option<Box<Tls>>,
    pub peer: Peer,
    pub login: ConsoleLogin,
    /// Output that the socket has not accepted yet. It is written first, and unchanged.
    pub unsent: Vec<u8>,
    /// Held as long as the connection lasts.
    pub seat: ConsoleSeat,
}

/// A console client's count in `max_client_conn` and similar limits. Dropping it ends the count.
#[derive(Debug)]
pub struct ConsoleSeat {
    hub: Arc<ShellHub>,
    identity: Option<Arc<Identity>>,
}

impl ConsoleSeat {
    pub(crate) fn new(hub: Arc<ShellHub>, identity: Option<Arc<Identity>>) -> Self {
        Self { hub, identity }
    }
}

impl Drop for ConsoleSeat {
    fn drop(&mut self) {
        if let Some(identity) = self.identity.take() {
            self.hub.client_left(&identity);
        }
    }
}

/// An event for the console.
#[derive(Debug)]
pub enum ConsoleRequest {
    Connection(ConsoleConnection),
    /// A cancel request, whose key may belong to a client of the console.
    Cancel(CancelKey),
}
