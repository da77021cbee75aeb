//! Sockets of the benchmark's peers, and the epoll that watches them. Both use Weir's own system calls.

use std::fs::Permissions;
use std::io;
use std::net::{AddrParseError, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use net::sys::{Address, Epoll, Events, epoll, socket};

/// The length of the queue of connections that are not accepted yet.
const BACKLOG: u32 = 4_096;
/// Events taken at a time.
const BATCH: usize = 512;

/// Parses `127.0.0.1:5432`, or a path that begins with `/`.
pub(crate) fn parse(text: &str) -> Result<Address, AddrParseError> {
    if text.starts_with('/') {
        return Ok(Address::Unix(text.into()));
    }
    text.parse().map(Address::Inet)
}

/// Returns the text that [`parse`] reads.
pub(crate) fn text(address: &Address) -> String {
    match address {
        Address::Unix(path) => path.display().to_string(),
        Address::Inet(_) | Address::Abstract(_) | Address::Unnamed => address.to_string(),
    }
}

/// Returns the address of a port of 127.0.0.1. The system chooses a port for 0.
pub(crate) fn local(port: u16) -> Address {
    Address::Inet(([127, 0, 0, 1], port).into())
}

/// A socket that does not block: one that listens, or one that is connected.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Opens a listening socket. A unix socket is open to every user of the machine, since the pooler
    /// may run as another user.
    pub(crate) fn listen(address: &Address) -> io::Result<Self> {
        let own = Self(socket::open(address)?);
        if let Address::Inet(_) = address {
            socket::set_reuse_address(own.0.as_raw_fd())?;
        }
        socket::bind(own.0.as_raw_fd(), address)?;
        if let Address::Unix(path) = address {
            std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
        }
        socket::listen(own.0.as_raw_fd(), BACKLOG)?;
        Ok(own)
    }

    /// Connects. It blocks only during the kernel's handshake; on one machine, that does not wait
    /// for the listening process while its backlog has room.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Inet(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self(stream.into()))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self(stream.into()))
            }
            Address::Abstract(_) | Address::Unnamed => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Begins to connect without waiting. If the backlog is full, the kernel tries again later.
    /// Reading shows whether the connection has failed.
    pub(crate) fn begin(address: &Address) -> io::Result<Self> {
        let Address::Inet(_) = address else { return Self::connect(address) };
        let own = Self(socket::open(address)?);
        socket::set_nodelay(own.0.as_raw_fd())?;
        socket::connect(own.0.as_raw_fd(), address)?;
        Ok(own)
    }

    /// Accepts the next connection. Returns `None` if there is none.
    pub(crate) fn accept(&self) -> io::Result<Option<Self>> {
        let Some((fd, from)) = unless_blocked(socket::accept(self.0.as_raw_fd()))? else {
            return Ok(None);
        };
        if let Address::Inet(_) = from {
            socket::set_nodelay(fd.as_raw_fd())?;
        }
        Ok(Some(Self(fd)))
    }

    /// Returns the own address, with the port that the system chose.
    pub(crate) fn address(&self) -> io::Result<Address> {
        socket::local_address(self.0.as_raw_fd())
    }

    /// Reads into `buffer`. Returns `None` if nothing has arrived yet, and 0 at the end of the
    /// stream. A reset counts as the end.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match socket::recv(self.0.as_raw_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(0)),
            other => unless_blocked(other),
        }
    }

    /// Writes as many bytes as the socket takes now. Returns `None` if it takes none.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        unless_blocked(socket::send(self.0.as_raw_fd(), bytes))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// An edge-triggered epoll instance. Each socket has a token.
#[derive(Debug)]
pub(crate) struct Poll {
    epoll: Epoll,
    events: Events,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, events: Events::with_room(BATCH) })
    }

    /// Watches a socket for input and for its end.
    pub(crate) fn add(&self, socket: &Socket, token: usize) -> io::Result<()> {
        self.epoll.add(socket.0.as_raw_fd(), epoll::READ, token as u64)
    }

    /// Starts or stops to watch for the readiness to write.
    pub(crate) fn want_write(&self, socket: &Socket, token: usize, wanted: bool) -> io::Result<()> {
        let interest = if wanted { epoll::READ_WRITE } else { epoll::READ };
        self.epoll.modify(socket.0.as_raw_fd(), interest, token as u64)
    }

    /// Waits at most `timeout` and returns how many sockets became ready.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        // A load without a rate needs only milliseconds, and so one call.
        let is_fine = !timeout.subsec_nanos().is_multiple_of(1_000_000);
        if is_fine {
            self.epoll.wait_finely(timeout)?;
        }
        let rest = if is_fine { Duration::ZERO } else { timeout };
        self.epoll.wait(&mut self.events, i32::try_from(rest.as_millis()).unwrap_or(i32::MAX))?;
        Ok(self.events.len())
    }

    /// Returns the token of a socket that became ready, and whether its stream may have ended.
    pub(crate) fn ready(&self, index: usize) -> (usize, bool) {
        let (token, events) = self.events.at(index);
        (token as usize, events & (epoll::PEER_DONE | epoll::BROKEN) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_a_socket_address() {
        for address in ["/run/x/.s.PGSQL.1", "127.0.0.1:5432"] {
            assert_eq!(parse(address).map(|parsed| text(&parsed)), Ok(address.to_owned()));
        }
        assert!(parse("localhost").is_err());
    }
}
