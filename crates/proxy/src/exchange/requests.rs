//! A worker's requests to the cold side.

use std::{os::fd::OwnedFd, sync::Arc};

use engine::{
    client::Identity,
    ids::{ClientId, WorkerId},
    shell::{Check, ConsoleLogin},
};
use wire::startup::CancelKey;

use super::{mail::ShellHub, peer::Peer};
use net::tls::Tls;

/// A worker's request to the cold thread.
#[derive(Debug)]
pub(crate) enum ColdRequest {
    Resolve(Question),
    /// A proxy is to say who its client is.
    Arrival(Arrival),
    Check(Inquiry),
    Console(ConsoleRequest),
}

/// A worker's question for the addresses of a host name.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) host: String,
    pub(crate) port: u16,
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
    /// Its place among those who are logging in.
    pub(crate) seat: Arc<()>,
}

/// A worker's question about a client that logs in.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) worker: WorkerId,
    pub(crate) client: ClientId,
    pub(crate) serial: u64,
    pub(crate) check: Check,
    /// Where the client is, without a port.
    pub(crate) host: String,
}

/// A client that logged in to the console database. Its socket is non-blocking.
#[derive(Debug)]
pub struct ConsoleConnection {
    pub fd: OwnedFd,
    /// If the connection has TLS: its state.
    pub tls: Option<Box<Tls>>,
    pub peer: Peer,
    pub login: ConsoleLogin,
    /// Bytes for the client that its socket has not taken yet. They are written first, and
    /// unchanged.
    pub unsent: Vec<u8>,
    /// Held as long as the connection lasts.
    pub seat: ConsoleSeat,
}

/// A console's share of `max_client_conn` and similar limits. It is given back when this is
/// dropped.
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
    /// Somebody asks to cancel what a client with this key is doing. It may be one of the console.
    Cancel(CancelKey),
}
