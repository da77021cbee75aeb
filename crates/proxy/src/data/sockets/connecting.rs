//! A server that is being opened: the addresses still to be tried.

use std::collections::VecDeque;

use net::sys::Address;

/// A server on its way to being connected.
#[derive(Debug)]
pub(super) struct Connecting {
    /// Tells this attempt from another one in the same slot.
    pub(super) ticket: u64,
    /// Still to be tried, after the present one.
    pub(super) addresses: VecDeque<Address>,
    /// The present one.
    pub(super) tried: Option<Address>,
    /// The listener's queue was full: the kernel cannot wait for it, so we try again.
    pub(super) retry: bool,
    /// Database and user, for the log.
    pub(super) name: Option<(String, String)>,
    /// The name it is reached by over TCP.
    pub(super) host: Option<String>,
}

impl Connecting {
    pub(super) fn new(ticket: u64, name: Option<(String, String)>) -> Self {
        let addresses = VecDeque::new();
        Self { ticket, addresses, tried: None, retry: false, name, host: None }
    }
}
