//! The state of one connected socket beyond its descriptor: its readiness, unsent output, and the
//! TLS state. An ordinary socket has no output and no TLS, and costs 32 bytes.

use std::{cell::RefCell, io, os::fd::RawFd};

use engine::ids::Micros;

use crate::data::table::Token;
use net::{
    sys::{epoll, socket},
    tls::Tls,
};

/// There may be something to read. Edge-triggered events come once, so this is kept.
pub(crate) const READABLE: u8 = 1;
/// The peer sends nothing more, or has closed the connection: read to the end.
pub(crate) const DONE: u8 = 2;
/// The connection is closed in both directions.
pub(crate) const BROKEN: u8 = 4;
/// The socket is queued to be read without an event.
pub(crate) const QUEUED: u8 = 8;
/// Sending failed; nothing more is sent.
pub(crate) const FAILED: u8 = 16;
/// A server that is not connected yet.
pub(crate) const CONNECTING: u8 = 32;
/// A client that is logging in, as far as is known; it shares the bit with [`CONNECTING`].
pub(crate) const LOGGING_IN: u8 = CONNECTING;
/// The last read filled the small part of the buffer: use the large one.
pub(crate) const BULK: u8 = 64;
/// A server with bytes that its former worker had not read. Only together with [`READABLE`],
/// because the engine waits for the reading.
pub(crate) const NEWS: u8 = 128;

/// PostgreSQL's send buffer. A read that returns at least this much, and everything, is a piece of
/// a large result.
pub(crate) const PIECE: usize = 8 * 1024;

thread_local! {
    /// TLS records on their way to a socket; kept for its capacity.
    static RECORDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Output that the kernel did not accept.
#[derive(Debug)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    sent: usize,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Continues sending. Returns true when everything is sent.
    pub(crate) fn send(&mut self, fd: RawFd) -> io::Result<bool> {
        self.sent += send_some(fd, &self.bytes[self.sent..])?;
        Ok(self.sent == self.bytes.len())
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn into_unsent(mut self) -> Vec<u8> {
        self.bytes.split_off(self.sent)
    }
}

/// A client that has left, and its unsent output.
#[derive(Debug)]
pub(crate) struct Lingering {
    pub(crate) pending: Box<Pending>,
    pub(crate) until: Micros,
}

#[derive(Debug)]
pub(crate) struct Conn {
    /// -1 while the address is being looked up.
    pub(crate) fd: RawFd,
    pub(crate) flags: u8,
    /// The number of pieces that have arrived in a row, if they are counted (`sockets/rest.rs`).
    pub(crate) pieces: u8,
    /// The last read of a client held so many small messages that the next one must be short.
    pub(crate) crowded: bool,
    pub(crate) pending: Option<Box<Pending>>,
    pub(crate) tls: Option<Box<Tls>>,
    /// The socket at the other side of the link, if reading it is suspended because of our unsent
    /// output.
    pub(crate) stalls: Token,
}

impl Default for Conn {
    fn default() -> Self {
        Self {
            fd: -1,
            flags: 0,
            pieces: 0,
            crowded: false,
            pending: None,
            tls: None,
            stalls: Token::default(),
        }
    }
}

/// The result of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has accepted them, or they are queued behind others.
    Accepted,
    /// Some are kept: watch whether the socket is writable.
    KeptBack,
    Failed,
}

impl Conn {
    pub(crate) fn new(fd: RawFd, flags: u8) -> Self {
        Self { fd, flags, ..Self::default() }
    }

    #[inline]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        if self.tls.is_some() { self.send_secured(bytes) } else { self.send_as_it_is(bytes) }
    }

    fn send_secured(&mut self, bytes: &[u8]) -> Sent {
        // A record that was encrypted must be sent, or the peer would miss its number.
        if bytes.is_empty() || self.has(FAILED) {
            return Sent::Accepted;
        }
        RECORDS.with_borrow_mut(|records| {
            records.clear();
            match self.tls.as_mut().map(|tls| tls.send(bytes, records)) {
                Some(Ok(())) => self.send_as_it_is(records),
                _ => {
                    self.flags |= FAILED;
                    Sent::Failed
                }
            }
        })
    }

    /// Sends bytes that need no encryption.
    #[inline]
    pub(crate) fn send_as_it_is(&mut self, bytes: &[u8]) -> Sent {
        if let Some(pending) = &mut self.pending {
            pending.push(bytes);
            return Sent::Accepted;
        }
        if self.has(FAILED) || bytes.is_empty() {
            return Sent::Accepted;
        }
        match send_some(self.fd, bytes) {
            Ok(sent) if sent == bytes.len() => Sent::Accepted,
            Ok(sent) => {
                let bytes = bytes[sent..].to_vec();
                self.pending = Some(Box::new(Pending { bytes, sent: 0 }));
                Sent::KeptBack
            }
            Err(_) => {
                self.flags |= FAILED;
                Sent::Failed
            }
        }
    }

    /// Sends TLS's closing alert, if there is room for it.
    pub(crate) fn say_tls_is_over(&mut self) {
        if let (Some(mut tls), None) = (self.tls.take(), &self.pending)
            && !self.has(FAILED)
        {
            let mut record = Vec::new();
            if tls.close(&mut record).is_ok() {
                let _ = self.send_as_it_is(&record);
            }
        }
    }

    /// Sends the kept output. Returns true if nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Some(pending) = &mut self.pending else { return Ok(true) };
        match pending.send(self.fd) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.pending = None;
                Ok(true)
            }
            Err(error) => {
                self.pending = None;
                self.flags |= FAILED;
                Err(error)
            }
        }
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.len())
    }

    /// Records epoll's events for reading.
    #[inline]
    pub(crate) fn note_events(&mut self, events: u32) {
        if events & epoll::READABLE != 0 {
            self.flags |= READABLE;
        }
        if events & (epoll::PEER_DONE | epoll::BROKEN) != 0 {
            self.flags |= READABLE | DONE;
        }
        if events & epoll::BROKEN != 0 {
            self.flags |= BROKEN;
        }
    }

    /// Records that `count` bytes were read into a buffer of `room`. Returns true if nothing more
    /// can arrive before the next event.
    #[inline]
    pub(crate) fn note_read(&mut self, count: usize, room: usize) -> bool {
        if count == room {
            self.flags |= BULK;
            return false;
        }
        self.flags &= !BULK;
        if self.has(DONE) {
            return false;
        }
        self.flags &= !(READABLE | NEWS);
        if count < PIECE {
            self.pieces = 0;
        }
        true
    }
}

/// Sends what the kernel accepts now, perhaps nothing.
#[inline]
fn send_some(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket::send(fd, bytes) {
            Ok(sent) => return Ok(sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Conn>() <= 32, "{} bytes", size_of::<Conn>());
    }

    #[test]
    fn output_that_the_kernel_does_not_accept_is_kept_in_order() {
        let (ours, theirs) = socket::pair();
        socket::set_send_buffer(ours.as_raw_fd(), 4096).unwrap();
        let mut conn = Conn::new(ours.as_raw_fd(), 0);
        let all: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(conn.send(&all[..100_000]), Sent::KeptBack);
        assert_eq!(conn.send(&all[100_000..]), Sent::Accepted);
        assert!(conn.pending_len() > 100_000 && conn.pending_len() < 200_000);

        let mut got = Vec::new();
        let mut buffer = [0; 5000];
        while got.len() < all.len() {
            match socket::recv(theirs.as_raw_fd(), &mut buffer) {
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                Err(_) => drop(conn.flush().unwrap()),
            }
        }
        assert!(got == all, "bytes were lost, doubled or moved");
        assert!(conn.flush().unwrap() && conn.pending.is_none());
        assert_eq!(conn.send(b"more"), Sent::Accepted);
    }

    #[test]
    fn a_lost_peer_is_told_once() {
        let (ours, theirs) = socket::pair();
        drop(theirs);
        let mut conn = Conn::new(ours.as_raw_fd(), 0);
        assert_eq!(conn.send(b"x"), Sent::Failed);
        assert_eq!(conn.send(b"x"), Sent::Accepted);
    }

    #[test]
    fn a_short_read_clears_the_latch_unless_the_peer_is_done() {
        let mut conn = Conn::new(3, 0);
        conn.note_events(epoll::READABLE);
        assert!(!conn.note_read(16, 16) && conn.has(READABLE) && conn.has(BULK));
        conn.flags |= NEWS;
        assert!(conn.note_read(15, 16) && !conn.has(READABLE | BULK | NEWS));
        conn.note_events(epoll::READABLE | epoll::PEER_DONE);
        assert!(!conn.note_read(15, 16) && conn.has(READABLE));
    }
}
