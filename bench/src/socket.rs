//! TCP and unix sockets in one type, since the peers of the benchmark use both.

use std::fmt;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use socket2::{Domain, Socket, Type};

/// The address of a socket: `127.0.0.1:5432`, or a path that begins with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('/') {
            Ok(Self::Unix(text.into()))
        } else {
            text.parse().map(Self::Tcp)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Opens a non-blocking listening socket. A unix socket is open to every user of the machine,
    /// since the pooler may run as another user.
    pub(crate) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            Address::Unix(path) => {
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener))
            }
        }
    }

    /// Accepts the next connection. Returns `None` if there is none.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().and_then(|(s, _)| Stream::from_tcp(s)),
            Self::Unix(listener) => listener.accept().and_then(|(s, _)| Stream::from_unix(s)),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the address in use, with the port that the system chose.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(Address::Unix(address.as_pathname().map(PathBuf::from).unwrap_or_default()))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connected, non-blocking socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects. It blocks only during the kernel's handshake; on one machine, that does not wait
    /// for the listening process while its backlog has room.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Self::from_tcp(TcpStream::connect(address)?),
            Address::Unix(path) => Self::from_unix(UnixStream::connect(path)?),
        }
    }

    /// Begins to connect without waiting. If the backlog is full, the kernel tries again later.
    /// Reading shows whether the connection has failed.
    pub(crate) fn begin(address: &Address) -> io::Result<Self> {
        let Address::Tcp(address) = address else { return Self::connect(address) };
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM.nonblocking(), None)?;
        match socket.connect(&(*address).into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Self::from_tcp(socket.into()),
        }
    }

    fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Tcp(stream))
    }

    fn from_unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    /// Reads into `buffer`. Returns `None` if nothing has arrived yet, and 0 at the end of the
    /// stream. A reset counts as the end.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let result = match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(0)),
            other => unless_blocked(other),
        }
    }

    /// Writes as many bytes as the socket takes now. Returns `None` if it takes none.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        unless_blocked(match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        })
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_a_socket_address() {
        assert_eq!("/run/x/.s.PGSQL.1".parse(), Ok(Address::Unix("/run/x/.s.PGSQL.1".into())));
        assert_eq!(
            "127.0.0.1:5432".parse::<Address>().map(|a| a.to_string()),
            Ok("127.0.0.1:5432".into())
        );
        assert!("localhost".parse::<Address>().is_err());
    }
}
