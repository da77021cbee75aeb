//! Finds which of many connections have events, level-triggered, with the finest timeout of the
//! kernel. A load generator must start requests on the microsecond; a worker of the pooler need
//! not.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use super::Caller;
use crate::sys::{
    Epoll, Events,
    epoll::{PEER_DONE, READABLE, WRITABLE},
};

/// Events taken at a time.
const BATCH: usize = 512;

/// One thread's set of watched connections.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    events: Events,
}

/// An event of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub token: u64,
    /// There are bytes, an end or an error to be received.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
}

impl Poller {
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, events: Events::with_room(BATCH) })
    }

    /// Watches a new connection. It is no longer watched once it is dropped.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn add(&self, caller: &Caller, token: u64) -> io::Result<()> {
        self.epoll.add(caller.fd.as_raw_fd(), interest(caller), token)
    }

    /// Updates the watched events. Call it when [`Caller::is_blocked`] has changed.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn update(&self, caller: &Caller, token: u64) -> io::Result<()> {
        self.epoll.modify(caller.fd.as_raw_fd(), interest(caller), token)
    }

    /// Waits for an event, at most for `timeout`; `None` is without a limit.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // epoll_wait(2) counts in milliseconds; ppoll(2) waits for shorter times.
        let timeout_ms = match timeout {
            None => -1,
            Some(timeout) => {
                if !timeout.is_zero() {
                    self.epoll.wait_finely(timeout)?;
                }
                0
            }
        };
        self.epoll.wait(&mut self.events, timeout_ms)
    }

    /// Returns how many events the last wait found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one of them.
    #[must_use]
    pub fn event(&self, index: usize) -> Event {
        let (token, events) = self.events.at(index);
        Event { token, readable: events & !WRITABLE != 0, writable: events & WRITABLE != 0 }
    }
}

fn interest(caller: &Caller) -> u32 {
    let read = READABLE | PEER_DONE;
    if caller.is_blocked() { read | WRITABLE } else { read }
}
