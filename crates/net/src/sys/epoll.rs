//! epoll(7): which sockets have events.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr,
    time::Duration,
};

use super::checked;

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer will send nothing more.
pub const PEER_DONE: u32 = libc::EPOLLRDHUP as u32;
/// The connection is closed in both directions.
pub const BROKEN: u32 = libc::EPOLLHUP as u32 | libc::EPOLLERR as u32;
/// Report changes, not states.
pub const EDGE: u32 = libc::EPOLLET as u32;
/// Report one event, then none until the entry is changed.
pub const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// Wake only one of the threads that watch it.
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// The events of an ordinary connection.
pub const READ: u32 = READABLE | PEER_DONE | EDGE;
/// The events of an ordinary connection whose output is kept.
pub const READ_WRITE: u32 = READ | WRITABLE;

/// One worker's set of watched descriptors. Other threads may take descriptors out of it.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the set of a descriptor that another process has opened.
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Returns the descriptor, for another process.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Watches `fd`. A state that exists already is reported as well.
    pub fn add(&self, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, token)
    }

    /// Changes the events that `fd` is watched for. A state that exists already is reported again.
    pub fn modify(&self, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, token)
    }

    pub fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, events: u32, u64: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64 };
        // SAFETY: the event is a live value, only read during the call.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, ptr::from_mut(&mut event)) })
            .map(drop)
    }

    /// Waits until an event or the end of the timeout, in nanoseconds. Then [`Self::wait`] returns
    /// the events.
    pub fn wait_finely(&self, timeout: Duration) -> io::Result<()> {
        let mut own = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        };
        // SAFETY: one live pollfd and a live timespec; no signal mask is changed.
        let waited =
            checked(unsafe { libc::ppoll(&raw mut own, 1, &raw const timeout, ptr::null()) });
        match waited {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for events, at most `timeout_ms` milliseconds.
    pub fn wait(&self, events: &mut Events, timeout_ms: i32) -> io::Result<()> {
        let room = events.buffer.len() as libc::c_int;
        // SAFETY: the kernel writes at most `room` events to the buffer, which is as long.
        let count = checked(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.buffer.as_mut_ptr(), room, timeout_ms)
        });
        events.count = 0;
        match count {
            Ok(count) => events.count = count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The events of one wait.
#[derive(Debug)]
pub struct Events {
    buffer: Box<[libc::epoll_event]>,
    count: usize,
}

impl Events {
    pub fn with_room(room: usize) -> Self {
        Self { buffer: vec![libc::epoll_event { events: 0, u64: 0 }; room].into(), count: 0 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns token and events of one of them.
    pub fn at(&self, index: usize) -> (u64, u32) {
        let event = self.buffer[index];
        (event.u64, event.events)
    }
}
