//! A server that is being opened, with the addresses to be tried.

use std::{collections::VecDeque, sync::Arc};

use config::ServerTls;
use net::sys::Address;

use crate::exchange::leases::LeaseEnd;

/// A server that is being connected.
#[derive(Debug)]
pub(super) struct Connecting {
    /// Distinguishes this attempt from others in the same slot.
    pub(super) ticket: u64,
    /// The addresses to be tried after the present one.
    pub(super) addresses: VecDeque<Address>,
    /// The present address.
    pub(super) tried: Option<Address>,
    /// The backlog of the listening socket was full. The kernel cannot wait for it, so Weir tries
    /// again.
    pub(super) retry: bool,
    /// Database and user, for the log.
    pub(super) name: Option<(String, String)>,
    /// The host name for a TCP connection.
    pub(super) host: Option<String>,
    pub(super) tls: Arc<ServerTls>,
    /// The lease without which nothing may be sent to it.
    pub(super) lease: Option<Arc<LeaseEnd>>,
}

impl Connecting {
    pub(super) fn new(ticket: u64, name: Option<(String, String)>) -> Self {
        let addresses = VecDeque::new();
        let tls = Arc::default();
        let (tried, host, lease) = (None, None, None);
        Self { ticket, addresses, tried, retry: false, name, host, tls, lease }
    }
}
