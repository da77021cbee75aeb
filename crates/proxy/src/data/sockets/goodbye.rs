//! Closes a client's socket: unsent output is sent first, and unread bytes are read.

use std::os::fd::RawFd;

use engine::ids::Micros;

use super::Sockets;
use crate::data::{
    conn::{Lingering, Pending},
    table::Kind,
};
use net::sys::{epoll, socket};

/// The time for which unsent output of a closed client is kept.
const LINGER: Micros = 5_000_000;

impl Sockets {
    /// Keeps the unsent output of a client that has left.
    pub(super) fn linger(&mut self, fd: RawFd, pending: Box<Pending>) {
        let token = self.table.token(fd);
        self.table.change(token, Kind::Lingering);
        self.lingering.insert(fd, Lingering { pending, until: self.now + LINGER });
    }

    pub(crate) fn linger_event(&mut self, fd: RawFd, events: u32) {
        let Some(lingering) = self.lingering.get_mut(&fd) else { return };
        let is_broken = events & epoll::BROKEN != 0;
        if is_broken || lingering.pending.send(fd).unwrap_or(true) {
            self.lingering.remove(&fd);
            self.say_goodbye(fd, true);
        }
    }

    /// Gives up output that was kept too long.
    pub(super) fn end_lingering(&mut self) {
        let now = self.now;
        let late = self.lingering.extract_if(|_, lingering| lingering.until <= now);
        let late: Vec<_> = late.map(|(fd, _)| fd).collect();
        late.into_iter().for_each(|fd| self.discard_client(fd));
    }

    /// Closes a client's socket. Unread bytes would turn the close into a reset, which can overtake
    /// the error message. So they are read first, unless the client has closed its side already.
    pub(super) fn say_goodbye(&mut self, fd: RawFd, unread: bool) {
        if unread {
            socket::shutdown(fd, true);
            let mut waste = [0; 4096];
            for _ in 0..16 {
                if !matches!(socket::recv(fd, &mut waste), Ok(1..)) {
                    break;
                }
            }
        }
        self.discard_client(fd);
    }

    /// If there are lobbies, backends may have descriptors of a client that has left one.
    fn discard_client(&mut self, fd: RawFd) {
        if self.shared.lobby.is_open() {
            socket::shutdown(fd, false);
        }
        self.discard(fd);
    }
}
