//! Sockets: opening, reading, writing, and their options. All of them are non-blocking.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    io, mem,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
};

use super::{
    address::{Address, Raw},
    checked, checked_len,
};

/// Reads available bytes. Returns 0 at the end, and `WouldBlock` if there are none yet.
#[inline]
pub fn recv(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: at most as many bytes are written as the buffer is long.
    checked_len(unsafe {
        libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    })
}

/// Reads available bytes like [`recv`], but leaves them unread.
pub fn peek(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: at most as many bytes are written as the buffer is long.
    checked_len(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
}

/// Writes as much as the kernel accepts. A closed peer is an error, not a signal.
#[inline]
pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are alive and only read.
    checked_len(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Opens a stream socket for addresses of this kind.
pub fn open(address: &Address) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = checked(unsafe { libc::socket(address.family(), kind, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a unix socket whose messages keep their bounds.
pub fn open_packets() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Is there something to read, or an end?
pub fn is_readable(fd: RawFd) -> bool {
    let mut own = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live element, as the count says.
    unsafe { libc::poll(&raw mut own, 1, 0) > 0 }
}

/// Starts to connect. Returns true if the connection is made already.
pub fn connect(fd: RawFd, address: &Address) -> io::Result<bool> {
    let raw = Raw::new(address)?;
    // SAFETY: the address is alive and `len` bytes long.
    match checked(unsafe { libc::connect(fd, raw.as_ptr(), raw.len) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn bind(fd: RawFd, address: &Address) -> io::Result<()> {
    let raw = Raw::new(address)?;
    // SAFETY: the address is alive and `len` bytes long.
    checked(unsafe { libc::bind(fd, raw.as_ptr(), raw.len) }).map(drop)
}

pub fn listen(fd: RawFd, backlog: u32) -> io::Result<()> {
    let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes no pointers.
    checked(unsafe { libc::listen(fd, backlog) }).map(drop)
}

/// Takes over a descriptor that was passed to this process and has no owner yet.
///
/// # Errors
/// When it is not a stream socket that listens.
pub fn adopt_listener(fd: RawFd) -> io::Result<OwnedFd> {
    let listens = option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? == 1;
    let streams = option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE)? == libc::SOCK_STREAM;
    if !(listens && streams) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: takes no pointers.
    unsafe {
        checked(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC))?;
        let flags = checked(libc::fcntl(fd, libc::F_GETFL))?;
        checked(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    // SAFETY: it is open, as the calls above showed, and the caller knows of no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the next connection and its origin; `WouldBlock` if there is none.
pub fn accept(fd: RawFd) -> io::Result<(OwnedFd, Address)> {
    let mut raw = Raw::empty();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `len` says how much room the address has, and is set to what was used.
    let accepted =
        checked(unsafe { libc::accept4(fd, raw.as_mut_ptr(), &raw mut raw.len, flags) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok((unsafe { OwnedFd::from_raw_fd(accepted) }, raw.to_address()))
}

/// Returns the address of our own end.
pub fn local_address(fd: RawFd) -> io::Result<Address> {
    let mut raw = Raw::empty();
    // SAFETY: as for `accept`.
    checked(unsafe { libc::getsockname(fd, raw.as_mut_ptr(), &raw mut raw.len) })?;
    Ok(raw.to_address())
}

/// Returns the address of the other end.
pub fn peer_address(fd: RawFd) -> io::Result<Address> {
    let mut raw = Raw::empty();
    // SAFETY: as for `accept`.
    checked(unsafe { libc::getpeername(fd, raw.as_mut_ptr(), &raw mut raw.len) })?;
    Ok(raw.to_address())
}

/// Returns the error that is pending on the socket, such as the result of connecting.
pub fn take_error(fd: RawFd) -> io::Result<()> {
    match option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Returns process and user at the other end of a unix socket.
pub fn peer_credentials(fd: RawFd) -> io::Result<(u32, u32)> {
    let credentials = option::<libc::ucred>(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok((credentials.pid.cast_unsigned(), credentials.uid))
}

/// The bytes of a TCP connection, without those that were sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub received: u64,
    pub sent: u64,
}

/// Returns the bytes of a TCP connection so far; `None` for other sockets.
pub fn traffic(fd: RawFd) -> Option<Traffic> {
    /// The kernel's `struct tcp_info` in words of 8 bytes, of which `libc` has only the beginning.
    const WORDS: usize = 27;
    const BYTES_RECEIVED: usize = 16;
    const BYTES_SENT: usize = 25;
    const BYTES_SENT_AGAIN: usize = 26;
    let about: [u64; WORDS] = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    let sent = about[BYTES_SENT].saturating_sub(about[BYTES_SENT_AGAIN]);
    Some(Traffic { received: about[BYTES_RECEIVED], sent })
}

/// Ends sending (`write_only`), or the connection in both directions.
pub fn shutdown(fd: RawFd, write_only: bool) {
    let how = if write_only { libc::SHUT_WR } else { libc::SHUT_RDWR };
    // SAFETY: takes no pointers. An error means that the peer has closed it already.
    unsafe { libc::shutdown(fd, how) };
}

/// Raises the receive buffer so that a window of so many bytes fits. A higher SO_RCVLOWAT raises it
/// for good, and the kernel may enlarge it further. If SO_RCVBUF has fixed the size, only SO_RCVBUF
/// can raise it. The kernel uses half of the buffer for itself.
pub fn raise_window(fd: RawFd, bytes: i32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1)?;
    if option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? < 2 * bytes {
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
    }
    Ok(())
}

/// Sends small messages at once.
pub fn set_nodelay(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

pub fn set_reuse_address(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
}

pub fn set_reuse_port(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Keeps an IPv6 socket from taking the IPv4 port as well.
pub fn set_v6_only(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
}

/// Probes a silent peer.
pub fn set_keepalive(fd: RawFd, on: bool) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, on.into())
}

/// The options for probing a silent peer: idle seconds, seconds between probes, number of probes.
const KEEPALIVE_TIMES: [libc::c_int; 3] =
    [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];

/// Sets them. Zero keeps the present value, which is the system's default for a new socket.
pub fn set_keepalive_times(fd: RawFd, idle: u32, interval: u32, count: u32) -> io::Result<()> {
    for (name, value) in KEEPALIVE_TIMES.into_iter().zip([idle, interval, count]) {
        if value > 0 {
            let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
            set_option(fd, libc::IPPROTO_TCP, name, value)?;
        }
    }
    Ok(())
}

/// The time that a listening socket holds back a connection without data, in seconds.
const DEFER_ACCEPT_SECONDS: libc::c_int = 45;

/// Lets a listening socket report a connection only when its client's first bytes are there.
pub fn set_defer_accept(fd: RawFd, on: bool) -> io::Result<()> {
    let seconds = if on { DEFER_ACCEPT_SECONDS } else { 0 };
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Sets how long sent data may stay unacknowledged, in milliseconds; zero is the system's default.
pub fn set_user_timeout(fd: RawFd, milliseconds: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, value)
}

/// Sets the kernel's buffers for each direction, in bytes; zero keeps the present size.
pub fn set_buffers(fd: RawFd, bytes: u32) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, value)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, value)
}

const BUFFERS: [libc::c_int; 2] = [libc::SO_SNDBUF, libc::SO_RCVBUF];
/// Tells which buffers have a fixed size, so that the kernel does not tune them any more. Since
/// Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// The default values of a TCP socket's options, for keys that are zero in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpDefaults {
    times: [libc::c_int; 3],
    buffers: [libc::c_int; 2],
    locks: libc::c_int,
}

impl TcpDefaults {
    pub fn of(fd: RawFd) -> io::Result<Self> {
        let [idle, interval, count] =
            KEEPALIVE_TIMES.map(|name| option(fd, libc::IPPROTO_TCP, name));
        let [sent, received] = BUFFERS.map(|name| option(fd, libc::SOL_SOCKET, name));
        let locks = option(fd, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
        Ok(Self { times: [idle?, interval?, count?], buffers: [sent?, received?], locks })
    }

    /// Restores these values on a socket, where it has others.
    pub fn restore(self, fd: RawFd) -> io::Result<()> {
        let now = Self::of(fd)?;
        for (at, name) in KEEPALIVE_TIMES.into_iter().enumerate() {
            if now.times[at] != self.times[at] {
                set_option(fd, libc::IPPROTO_TCP, name, self.times[at])?;
            }
        }
        for (at, name) in BUFFERS.into_iter().enumerate() {
            if now.buffers[at] != self.buffers[at] {
                // The kernel doubles the given value for its own overhead.
                set_option(fd, libc::SOL_SOCKET, name, self.buffers[at] / 2)?;
            }
        }
        if now == self { Ok(()) } else { self.restore_locks(fd) }
    }

    fn restore_locks(self, fd: RawFd) -> io::Result<()> {
        match set_option(fd, libc::SOL_SOCKET, SO_BUF_LOCK, self.locks) {
            // An older kernel. The sizes are right, but stay fixed until the next start.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            other => other,
        }
    }
}

pub fn set_send_buffer(fd: RawFd, bytes: i32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is alive, `size` bytes long and only read.
    checked(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) }).map(drop)
}

pub fn option<T: Copy>(fd: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    // SAFETY: used with types made of integers only, for which zero is valid.
    let mut value: T = unsafe { mem::zeroed() };
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to the value, which is as long.
    checked(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut size) })?;
    Ok(value)
}

/// Returns two connected sockets, for tests.
///
/// # Panics
/// When the system refuses descriptors.
#[must_use]
pub fn pair() -> (OwnedFd, OwnedFd) {
    let pair = std::os::unix::net::UnixStream::pair();
    let (a, b) = pair.expect("the system gives a pair of sockets");
    a.set_nonblocking(true).expect("a socket can be made non-blocking");
    b.set_nonblocking(true).expect("a socket can be made non-blocking");
    (a.into(), b.into())
}
