//! eventfd(2): wakes a thread that sleeps in epoll.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
};

use super::checked;

/// A counter to watch edge-triggered. Every [`EventFd::notify`] is an edge, so the counter is never
/// read. It would take half a million years of wakes to fill it.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight live bytes are read. It can fail only if the counter is full.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }
}
